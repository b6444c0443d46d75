// SPDX-License-Identifier: GPL-3.0-or-later
// What moves: the page of a run while it runs, and the count of runs to compare. Everything else works without it.
"use strict";

const PERIOD_MS = 1000;
const SLOWEST_MS = 15000;

function follow(live) {
  const announce = document.getElementById("announce");
  const url = location.pathname.replace(/\/$/, "") + "/live";
  let wait = PERIOD_MS;

  async function look() {
    try {
      const answer = await fetch(url, { credentials: "same-origin", redirect: "error" });
      if (!answer.ok) throw new Error(String(answer.status));
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const next = page.getElementById("live");
      if (!next) throw new Error("no live part");
      if (next.dataset.phase !== live.dataset.phase) announce.textContent = next.dataset.phase;
      if (!("running" in next.dataset)) {
        location.reload();
        return;
      }
      live.replaceWith(next);
      live = next;
      wait = PERIOD_MS;
    } catch (error) {
      wait = Math.min(2 * wait, SLOWEST_MS);
    }
    setTimeout(look, wait);
  }
  setTimeout(look, wait);
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
