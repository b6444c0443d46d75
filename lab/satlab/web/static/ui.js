// SPDX-License-Identifier: GPL-3.0-or-later
// What moves: the page of a run while it runs, and the count of runs to compare. Everything else works without it.
"use strict";

const PERIOD_MS = 1000;
const SLOWEST_MS = 15000;

function follow(live) {
  const announce = document.getElementById("announce");
  const url = location.pathname.replace(/\/$/, "");
  let wait = PERIOD_MS;

  // Shows what is new; false when it was the last time, and the whole page follows.
  function show(text) {
    const next = new DOMParser().parseFromString(text, "text/html").getElementById("live");
    if (!next) throw new Error("no live part");
    if (next.dataset.phase !== live.dataset.phase) announce.textContent = next.dataset.phase;
    if (!("running" in next.dataset)) {
      location.reload();
      return false;
    }
    live.replaceWith(next);
    live = next;
    return true;
  }

  // The server pushes; where it does not, for lack of room or since the session is over, the page polls.
  function listen() {
    const source = new EventSource(url + "/events");
    source.onmessage = (event) => {
      if (!show(event.data)) source.close();
    };
    source.onerror = () => {
      if (source.readyState === EventSource.CLOSED) setTimeout(poll, wait);
    };
  }

  async function poll() {
    try {
      const answer = await fetch(url + "/live", { credentials: "same-origin", redirect: "error" });
      if (!answer.ok) throw new Error(String(answer.status));
      if (!show(await answer.text())) return;
      wait = PERIOD_MS;
    } catch (error) {
      wait = Math.min(2 * wait, SLOWEST_MS);
    }
    setTimeout(poll, wait);
  }

  listen();
}

function count(form) {
  const button = form.querySelector("[data-compare-button]");
  const most = Number(form.dataset.compare);
  function update() {
    const ticked = form.querySelectorAll("input[name=run]:checked").length;
    button.disabled = ticked < 2 || ticked > most;
    button.textContent = ticked < 2 ? "Compare the ticked runs" : `Compare ${ticked} runs`;
  }
  form.addEventListener("change", update);
  update();
}

const live = document.querySelector("#live[data-running]");
if (live) follow(live);
const compare = document.querySelector("form[data-compare]");
if (compare) count(compare);
const faults = document.getElementById("faults");
if (faults) faults.focus();
