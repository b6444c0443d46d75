# SPDX-License-Identifier: GPL-3.0-or-later
"""Scripts that the page-load job runs in the browser."""

# Reads the browser's performance timeline (W3C Navigation Timing 2, Resource Timing 2, Paint
# Timing, LCP, Layout Instability). Unless `arguments[0]` is false, waits for the end of the load
# event first, and asks afterwards which server it was. null: the browser has no such entries.
# Cumulative Layout Shift is the largest sum of the shifts of a session window, which are less than
# 1 s apart and less than 5 s from its first (web.dev/articles/cls).
READ_TIMELINE = """
const [complete, done] = arguments;
const failure = () => document.URL.startsWith('chrome-error:')
  ? (document.body.innerText.match(/ERR_[A-Z_]+/) || [''])[0] : '';
const ms = time => time === null ? null : Math.round(time * 1000) / 1000;  // the clock ticks in 0.1 ms
const read = (largest, shift, server) => {
  const pick = e => ({name: e.name, initiator_type: e.initiatorType, next_hop_protocol: e.nextHopProtocol,
    response_status: e.responseStatus, start_ms: ms(e.startTime), response_end_ms: ms(e.responseEnd),
    encoded_body_bytes: e.encodedBodySize, transfer_bytes: e.transferSize});
  const [navigation] = performance.getEntriesByType('navigation');
  const paint = performance.getEntriesByName('first-contentful-paint')[0];
  return {connect_start_ms: ms(navigation.connectStart), connect_end_ms: ms(navigation.connectEnd),
    response_start_ms: ms(navigation.responseStart), load_event_start_ms: ms(navigation.loadEventStart),
    load_event_end_ms: ms(navigation.loadEventEnd), first_contentful_paint_ms: ms(paint ? paint.startTime : null),
    largest_contentful_paint_ms: ms(largest), cumulative_layout_shift: shift,
    long_tasks_ms: has('longtask') ? ms(longTasks) : null, server: server, url: document.URL, error: failure(),
    resources: [navigation, ...performance.getEntriesByType('resource')].map(pick)};
};
const has = type => PerformanceObserver.supportedEntryTypes.includes(type);
const observe = (type, take) => new PerformanceObserver(list => list.getEntries().forEach(take))
  .observe({type: type, buffered: true});
let longTasks = 0, largest = null, shift = 0, session = null;
observe('longtask', e => { longTasks += e.duration; });
observe('largest-contentful-paint', e => { largest = e.startTime; });
observe('layout-shift', e => {
  if (e.hadRecentInput) return;
  const goesOn = session && e.startTime - session.last < 1000 && e.startTime - session.first < 5000;
  if (!goesOn) session = {first: e.startTime, sum: 0};
  session.last = e.startTime;
  session.sum += e.value;
  shift = Math.max(shift, session.sum);
});
const entries = () => new Promise(resolve => setTimeout(resolve, 50));
const loaded = () => new Promise(resolve => {
  const look = () => performance.getEntriesByType('navigation')[0].loadEventEnd > 0 ? resolve() : setTimeout(look, 10);
  look();
});
(async () => {
  if (complete) await loaded();
  await entries();
  const result = read(largest, has('layout-shift') ? shift : null, '');
  if (complete) {
    const request = {method: 'HEAD', cache: 'no-store', signal: AbortSignal.timeout(5000)};
    const answer = await fetch(location.href, request).catch(() => null);
    result.server = answer ? answer.headers.get('server') || '' : '';
  }
  done(result);
})();
"""

AWAIT_CLICK = """
addEventListener('click', event => event.preventDefault(), {capture: true});
const click = window.satlabClick = {longest: null, last: 0};
const take = list => {
  for (const e of list.getEntries())
    if (e.interactionId || e.entryType === 'first-input') {
      click.longest = Math.max(click.longest || 0, e.duration);
      click.last = performance.now();
    }
};
new PerformanceObserver(take).observe({type: 'first-input', buffered: true});
new PerformanceObserver(take).observe({type: 'event', durationThreshold: 16});
"""
"""Observes the click that follows, which leaves the page where it is, whatever it hits. Events below
16 ms are seen only if they are the first input.
"""

READ_INTERACTION = """
const done = arguments[0], click = window.satlabClick, until = performance.now() + 2000;
const look = () => {
  const now = performance.now();
  const isOver = now > until || click.longest !== null && now - click.last > 200;
  return isOver ? done(click.longest) : setTimeout(look, 20);
};
look();
"""
"""The longest duration, from input to next paint, of the events of a click, in steps of 8 ms (W3C
Event Timing); null if the browser reports none within 2 s.
"""

YARDSTICK = """
const start = performance.now();
let value = 0;
for (let i = 0; i < 1e7; i++) value = (value * 31 + i) | 0;
return [performance.now() - start, value];
"""
"""A task of known work: the longer it takes, the less of a core the browser has."""

LONG_TASKS = """
const done = arguments[0];
const tasks = [];
new PerformanceObserver(list => { for (const e of list.getEntries()) tasks.push([e.startTime, e.duration]); })
  .observe({type: 'longtask', buffered: true});
setTimeout(() => done(tasks), 50);
"""
"""Starts and lengths of tasks above 50 ms, ms since navigation start (W3C Long Tasks)."""

MEASURE = """
const [pictures, width, done] = arguments;
const measured = async data => {
  const bytes = Uint8Array.from(atob(data), character => character.charCodeAt(0));
  const image = await createImageBitmap(new Blob([bytes]));
  const full = new OffscreenCanvas(image.width, image.height).getContext('2d', {willReadFrequently: true});
  full.drawImage(image, 0, 0);
  const pixels = full.getImageData(0, 0, image.width, image.height).data;
  const bins = [0, 1, 2].map(() => new Array(64).fill(0));
  for (let at = 0; at < pixels.length; at += 4)
    for (let channel = 0; channel < 3; channel++) bins[channel][pixels[at + channel] >> 2]++;
  const height = Math.round(image.height * width / image.width);
  const small = new OffscreenCanvas(width, height);
  small.getContext('2d').drawImage(image, 0, 0, width, height);
  const jpeg = await (await small.convertToBlob({type: 'image/jpeg', quality: 0.6})).arrayBuffer();
  return {bins: bins.flat(), jpeg: btoa(String.fromCharCode(...new Uint8Array(jpeg)))};
};
(async () => {
  const results = [];
  for (const data of pictures) results.push(await measured(data));
  done(results);
})().catch(error => done(String(error)));
"""
"""Of each picture (base64) the histogram of red, green and blue in 64 bins each, and a smaller
JPEG.

The browser decodes its own pictures, so that the job needs no library for images.
"""
