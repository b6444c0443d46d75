# SPDX-License-Identifier: GPL-3.0-or-later
"""What is checked of any page in a browser: script errors, width, contrast (WCAG 2.2), what Tab
reaches, names.
"""

import time
from typing import Any, Literal

from selenium import webdriver

REDRAWN_S = 20.0
"""Within what time plots have the colours of another theme, also on a busy host."""
CONTROLS = (
    "const shown = e => e.checkVisibility({visibilityProperty: true}) && e.getClientRects().length"
    " > 0;const some = 'a[href], button, input:not([type=hidden]), select, textarea, summary,"
    " [tabindex=\"0\"]';const label = e => [e.tagName, e.id, e.getAttribute('name'),"
    " e.getAttribute('value'), e.getAttribute('aria-label'), e.getAttribute('href'),"
    " e.textContent.trim().slice(0, 40)].join(' ');const controls ="
    " [...document.querySelectorAll(some)].filter(e => shown(e) && !e.disabled);"
)
"""The controls of a page that can be seen, and a text that stays the same when a live page replaces
one.
"""

WEAK_TEXTS = """
const channels = text => {
  const found = text.match(/^rgba?\\(([^)]+)\\)$/);
  if (!found) return null;
  const [r, g, b, a] = found[1].split(/[ ,/]+/).map(Number);
  return [r, g, b, a === undefined ? 1 : a];
};
const over = (top, ground) => [0, 1, 2].map(n => top[n] * top[3] + ground[n] * (1 - top[3])).concat(1);
const luminance = colour => {
  const linear = share => share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  const [r, g, b] = colour.slice(0, 3).map(channel => linear(channel / 255));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const contrast = (one, other) => {
  const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (light + 0.05) / (dark + 0.05);
};
// What lies under a point of an element: its own ground and those of what it is in; in a picture the shapes there.
const ground = (element, box) => {
  const layers = [];
  const svg = element.closest('svg');
  if (svg) {
    const [x, y] = [box.left + box.width / 2, box.top + box.height / 2];
    const under = [...svg.querySelectorAll('rect')].filter(e => {
      const place = e.getBoundingClientRect();
      return place.left <= x && x <= place.right && place.top <= y && y <= place.bottom;
    });
    for (const e of under.reverse()) {
      const style = getComputedStyle(e), colour = channels(style.fill);
      if (colour) layers.push([...colour.slice(0, 3), colour[3] * style.fillOpacity * style.opacity]);
    }
  }
  for (let e = svg || element; e; e = e.parentElement) layers.push(channels(getComputedStyle(e).backgroundColor));
  let found = [255, 255, 255, 1];
  for (const layer of layers.filter(each => each).reverse()) found = over(layer, found);
  return found;
};
const weak = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const text = walker.currentNode.textContent.trim(), element = walker.currentNode.parentElement;
  if (!text || element.closest('script, style, option, :disabled, .sr')) continue;
  const box = element.getBoundingClientRect(), style = getComputedStyle(element);
  const isClipped = box.width < 2 || box.height < 2 || box.right < 0;
  if (isClipped || !element.checkVisibility({visibilityProperty: true})) continue;
  const colour = channels(element.closest('svg') ? style.fill : style.color);
  if (!colour || colour[3] === 0) continue;
  const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
  const under = ground(element, box), ratio = contrast(over(colour, under), under);
  if (ratio < (large ? 3 : 4.5)) weak.push(`${text.slice(0, 40)}: ${ratio.toFixed(2)}, ${colour} on ${under}`);
}
return weak.slice(0, 8);
"""
"""Returns texts whose contrast is too small:

WCAG 2.2, 1.4.3, by the colours that the browser has computed.
"""


def errors(driver: webdriver.Chrome) -> list[str]:
    """Return the errors in the browser's console since the last call, without that of a page that
    is missing.
    """
    entries: list[dict[str, Any]] = driver.get_log("browser")  # type: ignore[no-untyped-call]
    said = [entry["message"] for entry in entries if entry["level"] == "SEVERE"]
    return [message for message in said if "status of 404" not in message]


def too_wide(driver: webdriver.Chrome, width: int) -> list[str]:
    """Return what reaches beyond the page's width, outside of what scrolls by itself; empty if the
    page fits.
    """
    if driver.execute_script("return document.documentElement.scrollWidth") <= width:
        return []
    script = (
        "return [...document.body.querySelectorAll('*')].filter(e => !e.closest('.scroll') &&"
        " e.getBoundingClientRect().right > arguments[0] + 1).map(e => e.outerHTML.slice(0,"
        " 120)).slice(0, 5)"
    )
    return [*driver.execute_script(script, width), "the page is too wide"]


def weak_texts(driver: webdriver.Chrome, theme: Literal["light", "dark"]) -> list[str]:
    """Return texts with too little contrast in a theme, in which the page stays.

    Plots are drawn again in it.
    """
    features = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", features)
    end = time.monotonic() + REDRAWN_S
    while (found := driver.execute_script(WEAK_TEXTS)) and time.monotonic() < end:
        time.sleep(0.2)
    return [f"{theme}: {each}" for each in found]


def unreached(driver: webdriver.Chrome) -> list[str]:
    """Return the controls of a page to which the Tab key does not lead, by a text each."""
    driver.execute_script(
        CONTROLS + "window.reached = new Set();"
        "document.addEventListener('focusin', event => reached.add(label(event.target)));"
        "document.activeElement.blur();"
    )
    count = driver.execute_script(CONTROLS + "return controls.length")
    for _ in range(count + 5):
        for kind in ("rawKeyDown", "keyUp"):
            driver.execute_cdp_cmd(
                "Input.dispatchKeyEvent", {"type": kind, "key": "Tab", "windowsVirtualKeyCode": 9}
            )
    found: list[str] = driver.execute_script(
        CONTROLS + "return controls.map(label).filter(each => !reached.has(each) &&"
        " !each.startsWith('BODY'))"
    )
    return found


SMALL = """
const some = 'button, .button, input:not([type=checkbox]):not([type=hidden]), select';
return [...document.querySelectorAll(some)].filter(e => e.getClientRects().length
    && e.getBoundingClientRect().height < 32).map(e => e.outerHTML);
"""
NAMED = ("button", "link", "textbox", "combobox", "checkbox", "image", "navigation", "region")


def nameless(driver: webdriver.Chrome) -> list[str]:
    """Return controls and images without a name for those who hear a page, controls too low for a
    finger, and whether a heading or the main part is missing.
    """
    tree = driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    nodes = [node for node in tree if not node["ignored"]]
    named = [node for node in nodes if node.get("role", {}).get("value") in NAMED]
    found = [f"without a name: {node}" for node in named if not node["name"]["value"]]
    found += [f"low: {each}" for each in driver.execute_script(SMALL)]
    counts = "return ['h1', 'main'].map(name => document.querySelectorAll(name).length)"
    return found + ([] if driver.execute_script(counts) == [1, 1] else ["not one h1 and one main"])
