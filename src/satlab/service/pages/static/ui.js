// SPDX-License-Identifier: GPL-3.0-or-later
// Updates the page of an active run, and the number of runs to compare. Everything else works without scripts.
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
    if (pressed) {
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

const live = document.querySelector("#live[data-running]");
if (live) follow(live);
const compare = document.querySelector("form[data-compare]");
if (compare) count(compare);
const faults = document.getElementById("faults");
if (faults) faults.focus();
const password = document.querySelector("form[action$='/login'] #password");
if (password) {
  takeToken(password);
  addEventListener("hashchange", () => takeToken(password)); // the link was pasted into this tab
}
