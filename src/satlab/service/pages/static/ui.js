// SPDX-License-Identifier: GPL-3.0-or-later
// Updates the page of an active run, the number of runs to compare, and the picture of a scenario; zooms curves. Everything else works without scripts.
"use strict";

const PERIOD_MS = 1000;
const SLOWEST_MS = 15000;

function follow(live) {
  const announce = document.getElementById("announce");
  const url = location.pathname.replace(/\/$/, "");
  let wait = PERIOD_MS;
  let pressed = false;
  let later = null;

  // Replaces the live part. Returns false after the final one: then the whole page is loaded again.
  function show(text) {
    const next = new DOMParser().parseFromString(text, "text/html").getElementById("live");
    if (!next) throw new Error("no live part");
    if (next.dataset.phase !== live.dataset.phase) announce.textContent = next.dataset.phase;
    if (!("running" in next.dataset)) {
      location.reload();
      return false;
    }
    replace(next);
    return true;
  }

  // What has the focus, what is unfolded, and how far a table is scrolled, stay so. A browser sends no click if a press
  // and its release meet different elements, so figures that arrive in between wait for the release.
  function replace(next) {
    const typing = live.contains(document.activeElement) && document.activeElement.matches("input");
    if (pressed || typing) {
      later = next;
      return;
    }
    const focused = live.contains(document.activeElement) ? document.activeElement.id : "";
    for (const each of live.querySelectorAll("details[open][id]")) {
      const same = next.querySelector("#" + CSS.escape(each.id));
      if (same) same.open = true;
    }
    const scrolled = [...live.querySelectorAll(".scroll[id]")].map((each) => [each.id, each.scrollLeft]);
    live.replaceWith(next);
    live = next;
    for (const [id, left] of scrolled) document.getElementById(id)?.scrollTo(left, 0);
    if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
  }

  function press(event) {
    pressed = event.button === 0 && live.contains(event.target);
  }

  function release() {
    pressed = false;
    if (later) replace(later);
    later = null;
  }

  // The server sends events. If it refuses (too many listeners, the session has ended), the page polls.
  function listen() {
    const source = new EventSource(url + "/events" + location.search);
    source.onmessage = (event) => {
      if (!show(event.data)) source.close();
    };
    source.onerror = () => {
      if (source.readyState === EventSource.CLOSED) setTimeout(poll, wait);
    };
  }

  async function poll() {
    try {
      const answer = await fetch(url + "/live" + location.search, { credentials: "same-origin", redirect: "error" });
      if (!answer.ok) throw new Error(String(answer.status));
      if (!show(await answer.text())) return;
      wait = PERIOD_MS;
    } catch (error) {
      wait = Math.min(2 * wait, SLOWEST_MS);
    }
    setTimeout(poll, wait);
  }

  addEventListener("pointerdown", press);
  for (const name of ["pointerup", "pointercancel", "blur"]) addEventListener(name, () => setTimeout(release, 0));
  listen();
}

function count(form) {
  const button = form.querySelector("[data-compare-button]");
  const exports = form.querySelectorAll("[data-export]");
  const most = Number(form.dataset.compare);
  function update() {
    const selected = form.querySelectorAll("input[name=run]:checked").length;
    button.disabled = selected < 2 || selected > most;
    for (const each of exports) each.disabled = selected < 1 || selected > most;
    button.textContent = selected < 2 ? "Compare the selected runs" : `Compare ${selected} runs`;
  }
  form.addEventListener("change", update);
  update();
}

// The link that `satlab serve` prints has the first token after "#", which stays in the browser; from there it goes into the form.
function takeToken(password) {
  const found = /^#token=([\w-]{8,64})$/.exec(location.hash);
  if (!found) return;
  history.replaceState(null, "", location.pathname + location.search);
  document.getElementById("login").value = "admin";
  password.value = found[1];
  password.form.querySelector("button").focus();
}

// Dragging over a curve shows its time range in all of them. Margins are those of the pictures (plot_svg.py), in their units.
const LEFT = 64, RIGHT = 12;
let dragged = null;

function secondsAt(svg, event) {
  const [from, to] = svg.closest(".charts").dataset.span.split(" ").map(Number);
  const box = svg.getBoundingClientRect();
  const unit = box.width / svg.viewBox.baseVal.width;
  const share = ((event.clientX - box.left) / unit - LEFT) / (svg.viewBox.baseVal.width - LEFT - RIGHT);
  return from + Math.min(Math.max(share, 0), 1) * (to - from);
}

addEventListener("pointerdown", (event) => {
  const svg = event.button === 0 && event.pointerType === "mouse" && event.target.closest?.(".charts[data-span] svg");
  dragged = svg ? { svg, from: secondsAt(svg, event), x: event.clientX } : null;
});
addEventListener("pointerup", (event) => {
  if (!dragged || Math.abs(event.clientX - dragged.x) < 8) return;
  const range = [dragged.from, secondsAt(dragged.svg, event)].sort((a, b) => a - b);
  const query = new URLSearchParams(location.search);
  query.set("since", range[0].toFixed(2));
  query.set("until", range[1].toFixed(2));
  location.assign(`${location.pathname}?${query}#curves`);
});

// Commands can be copied where the browser allows it.
addEventListener("click", async (event) => {
  const button = event.target.closest?.("[data-copy]");
  if (!button) return;
  await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
  document.getElementById("announce").textContent = "Copied";
});
if (navigator.clipboard) document.documentElement.classList.add("can-copy");

// The picture of a scenario follows its text; the server draws it.
function drawGraph(text) {
  let timer = 0;
  async function update() {
    const answer = await fetch(text.dataset.graph, { method: "POST", body: new URLSearchParams({ document: text.value }), credentials: "same-origin", redirect: "error" });
    const next = answer.ok && new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("graph");
    if (next) document.getElementById("graph").replaceWith(next);
  }
  text.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => update().catch(() => {}), 400);
  });
}

const live = document.querySelector("#live[data-running]");
if (live) follow(live);
const compare = document.querySelector("form[data-compare]");
if (compare) count(compare);
const graphed = document.querySelector("textarea[data-graph]");
if (graphed) drawGraph(graphed);
const faults = document.getElementById("faults");
if (faults) faults.focus();
const password = document.querySelector("form[action$='/login'] #password");
if (password) {
  takeToken(password);
  addEventListener("hashchange", () => takeToken(password)); // the link was pasted into this tab
}
