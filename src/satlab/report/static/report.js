"use strict";
// Draws every figure in the colours of the page's theme, and again when the theme changes. Pictures in the page are printed.
(async () => {
  // Figures and library are compressed in the page. The policy allows the unpacked library by its hash.
  const unpack = element => {
    const bytes = Uint8Array.from(atob(element.textContent), character => character.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  };
  const packed = ["plotly", "figures"].map(id => document.getElementById(id));
  if (packed.includes(null)) return;
  const [library, data] = await Promise.all(packed.map(unpack));
  const script = document.createElement("script");
  script.textContent = library;
  document.head.append(script);
  const figures = JSON.parse(data);
  const coarse = matchMedia("(pointer: coarse)").matches;
  const config = key => ({ responsive: true, displaylogo: false, displayModeBar: coarse ? false : "hover",
    modeBarButtons: [["toImage"]], toImageButtonOptions: { format: "svg", filename: key } });

  // Only colours name variables: a text that begins with "--" stays a text.
  const resolve = (value, style, key = "") => {
    if (typeof value === "string") return /color(scale)?$/.test(key) && value.startsWith("--") ? style.getPropertyValue(value).trim() : value;
    if (Array.isArray(value)) return value.map(item => resolve(item, style, key === "colorscale" ? key : ""));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, resolve(item, style, name)]));
  };

  const themed = (layout, style) => {
    const narrow = innerWidth < 640;
    const axis = { gridcolor: "--grid", linecolor: "--line", zerolinecolor: "--line", automargin: true };
    const base = {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", dragmode: coarse ? false : "zoom",
      font: { family: getComputedStyle(document.body).fontFamily, size: narrow ? 12 : 13, color: "--text" },
      margin: { l: narrow ? 44 : 56, r: 12, t: 24, b: 48 }, hovermode: "closest",
      modebar: { bgcolor: "rgba(0,0,0,0)", color: "--muted", activecolor: "--text" },
      hoverlabel: { bgcolor: "--card", bordercolor: "--line", font: { color: "--text" } },
      legend: { orientation: "h", x: 0, xanchor: "left", yref: "container", y: 0, yanchor: "bottom",
        ...(layout.barmode === "stack" && { traceorder: "normal" }) }, // Plotly's default is the reverse of the bars
    };
    const axes = Object.keys(layout).filter(key => /^[xy]axis\d*$/.test(key));
    const merged = { ...base, ...layout };
    for (const key of axes) merged[key] = { ...axis, fixedrange: coarse, ...layout[key] };
    // Names of requests would take half of a narrow page: they are shown on touch, and are in the table.
    for (const key of narrow ? axes : []) if (layout[key].ticktext?.some(name => name.length > 14)) merged[key].showticklabels = false;
    return resolve(merged, style);
  };

  // Of labels that would cover each other the first one stays.
  const thin = place => {
    const shown = [];
    for (const label of place.querySelectorAll(".annotation")) {
      const box = label.getBoundingClientRect();
      const covers = other => box.left < other.right && other.left < box.right && box.top < other.bottom && other.top < box.bottom;
      const isHidden = shown.some(covers);
      label.style.visibility = isHidden ? "hidden" : "";
      if (!isHidden) shown.push(box);
    }
  };

  const places = () => [...document.querySelectorAll("[data-figure]")].filter(place => !place.closest("details:not([open])"));
  const plot = (place, style) => {
    const { data, layout } = figures[place.dataset.figure];
    place.parentElement.classList.add("drawn"); // in place of the picture
    const height = parseInt(getComputedStyle(place).minHeight, 10);
    const isNew = !place.on;
    Plotly.react(place, resolve(data, style), { ...themed(layout, style), height }, config(place.dataset.figure));
    if (isNew) place.on("plotly_afterplot", () => thin(place));
    thin(place);
  };
  const draw = () => {
    const style = getComputedStyle(document.documentElement);
    for (const place of places()) plot(place, style);
  };

  matchMedia("screen and (prefers-color-scheme: dark)").addEventListener("change", draw); // also after print, which is light
  addEventListener("toggle", event => { if (event.target.querySelector("[data-figure]")) draw(); }, true);
  // One figure at a time, so that the page can be read and scrolled meanwhile.
  for (const place of places()) {
    plot(place, getComputedStyle(document.documentElement));
    await new Promise(resume => setTimeout(resume));
  }
})();
