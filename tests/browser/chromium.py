# SPDX-License-Identifier: GPL-3.0-or-later
"""A browser for the tests of the web pages, and patience."""

import re
from collections.abc import Callable
from typing import Any

from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.service import Service

from tests import polling


def browser(
    *, width: int = 1200, scripts: bool = True, motion: bool = True, is_shell: bool = True
) -> webdriver.Chrome:
    """Start a headless Chromium.

    `is_shell`: with the engine alone, which takes two thirds of the CPU time of the browser that
    people have.
    """
    options = webdriver.ChromeOptions()
    # Debian's /usr/bin/chromium-headless-shell is a shell's child: WebDriver would end the shell
    # and leave the browser.
    options.binary_location = (
        "/usr/lib/chromium/chromium-headless-shell" if is_shell else "/usr/bin/chromium"
    )
    arguments = "--headless=new --disable-gpu --disable-dev-shm-usage --no-sandbox --no-proxy-server".split()
    for argument in [
        *arguments,
        f"--window-size={width},900",
        *([] if motion else ["--force-prefers-reduced-motion"]),
    ]:
        options.add_argument(argument)
    if not scripts:
        options.add_experimental_option(
            "prefs", {"profile.managed_default_content_settings.javascript": 2}
        )
    if width < 500:
        metrics = {"width": width, "height": 800, "pixelRatio": 1.0}
        options.add_experimental_option("mobileEmulation", {"deviceMetrics": metrics})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))


def until(condition: Callable[[], Any], what: str, deadline_s: float = 60) -> None:
    """Poll until a condition holds. A page that is replaced meanwhile is read again."""

    def holds() -> Any:
        try:
            return condition()
        except WebDriverException:
            return False

    polling.until(holds, what, seconds=deadline_s)


def text(driver: webdriver.Chrome) -> str:
    """Return what a person reads.

    WebDriver's own command for it takes longer: it looks at each node by a script.
    """
    return re.sub(r"[^\S\n]+", " ", driver.execute_script("return document.body.innerText"))
