// Plots of the last half minute. uPlot draws them on canvas.

import { make, setText } from "./dom.js";
import { bytes, count, milliseconds, percent, rate } from "./format.js";
import { locale, t } from "./i18n.js";

// Wide enough to see a controller settle, short enough to see single bursts.
const WINDOW_S = 30;
const HEIGHT_PX = 170;
const AXIS_PX = 74;
// How far above the rate of whole seconds the plot of the throughput reaches.
const MAX_BURST = 2.5;
const plain = (value) => (value === null || value === undefined ? "–" : count(value));

/** The charts: each series is a column of the history, in the colour of the CSS variable `--NAME`. */
const CHARTS = [
  { name: "throughput", value: rate, band: true, step: 1000, series: [["burst", 1], ["second", 2.5], ["pace", 1.5, [6, 4]]] },
  { name: "buffers", value: bytes, step: 1024, series: [["socket", 1.5], ["application", 1.5], ["cache", 1.5], ["rwin", 1.5, [6, 4]]] },
  { name: "rtt", value: milliseconds, step: 1000, series: [["rtt", 1.8], ["data", 1.2], ["min", 1.2, [6, 4]]] },
  { name: "streams", value: plain, step: 1000, series: [["streams", 2], ["lost", 1.5], ["reordered", 1.2]] },
];

export class Charts {
  element = make("div", { class: "charts" });
  #history;
  #plots = [];
  #isUpload;

  constructor(history, isUpload) {
    this.#history = history;
    this.#isUpload = isUpload;
    this.#build();
    this.#resize = new ResizeObserver(() => this.#fit());
    this.#resize.observe(this.element);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", this.#recolour);
  }

  #resize;
  #recolour = () => {
    this.#plots.forEach(({ plot }) => plot.destroy());
    this.#plots = [];
    this.#build();
    this.#fit();
    this.draw();
  };

  destroy() {
    this.#resize.disconnect();
    matchMedia("(prefers-color-scheme: dark)").removeEventListener("change", this.#recolour);
    this.#plots.forEach(({ plot }) => plot.destroy());
  }

  draw() {
    const { columns, now } = this.#history;
    let from = columns.at.length;
    while (from > 0 && columns.at[from - 1] >= now - WINDOW_S) from -= 1;
    const cut = (name) => columns[name].slice(from);
    const at = cut("at");
    for (const { plot, series, legend, chart } of this.#plots) {
      plot.setData([at, ...series.map(([name]) => cut(name))], false);
      plot.setScale("x", { min: Math.max(0, now - WINDOW_S), max: Math.max(WINDOW_S, now) });
      this.#values(plot, series, legend, chart, plot.cursor.idx ?? at.length - 1);
      if (chart.band) this.#bands(legend);
    }
  }

  #build() {
    this.element.replaceChildren(...CHARTS.map((chart) => this.#one(chart)));
  }

  #one(chart) {
    const series = chart.series.filter(([name]) => name !== "pace" || this.#isUpload);
    const title = t(`chart.${chart.name}`);
    const legend = make("p", { class: "legend" }, series.map(([name]) =>
      make("span", { class: `key key-${name}` }, `${t(`series.${name}`)} `, make("b", { "data-series": name }, "–"))));
    if (chart.band) legend.append(make("span", { class: "bands" }));
    const place = make("div", { class: "plot", role: "img", "aria-label": `${title}, ${t("chart.time")}` });
    const element = make("figure", { class: "card chart" }, make("figcaption", {}, title), place, legend);
    const plot = new uPlot(this.#options(chart, series, legend), [[], ...series.map(() => [])], place);
    this.#plots.push({ plot, series, legend, chart, place });
    return element;
  }

  #options(chart, series, legend) {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    const axis = {
      stroke: colour("faint"), font: "11px system-ui, sans-serif",
      grid: { stroke: colour("grid"), width: 1 }, ticks: { show: false },
    };
    return {
      width: 320, height: HEIGHT_PX, legend: { show: false }, padding: [8, 8, 0, 0],
      cursor: { y: false, drag: { x: false, y: false }, points: { show: false } },
      scales: { x: { time: false }, y: { range: (plot, min, max) => [0, nice(chart.band ? calm(plot, max) : max, chart.step)] } },
      axes: [
        { ...axis, size: 24, values: (plot, splits) => splits.map((value) => value.toLocaleString(locale())) },
        { ...axis, size: AXIS_PX, space: 34, splits: (plot, index, min, max) => [0, 1, 2, 3, 4].map((part) => (max * part) / 4),
          values: (plot, splits) => splits.map((value, index) => (index % 2 === 0 ? chart.value(value) : "")) },
      ],
      series: [{}, ...series.map(([name, width, dash]) => ({
        stroke: colour(name), width, dash, points: { show: false }, spanGaps: true,
      }))],
      hooks: {
        drawClear: chart.band ? [(plot) => this.#drawBands(plot, colour)] : [],
        setCursor: [(plot) => this.#values(plot, series, legend, chart, plot.cursor.idx ?? plot.data[0].length - 1)],
      },
    };
  }

  #values(plot, series, legend, chart, index) {
    series.forEach(([name], place) => {
      setText(legend.querySelector(`[data-series=${name}]`), chart.value(plot.data[place + 1]?.[index] ?? null));
    });
  }

  /** Fills the plot behind the curves with the colour of what limited the transfer. */
  #drawBands(plot, colour) {
    const { ctx, bbox } = plot;
    const { min, max } = plot.scales.x;
    if (min === null || min === undefined) return;
    ctx.save();
    for (const { from, to, by } of this.#history.limits) {
      if (to < min || from > max) continue;
      const left = Math.max(bbox.left, plot.valToPos(from, "x", true));
      const right = Math.min(bbox.left + bbox.width, plot.valToPos(to, "x", true));
      ctx.fillStyle = colour(`limit-${by}`) || colour("limit-application");
      ctx.fillRect(left, bbox.top, Math.max(0, right - left), bbox.height);
    }
    ctx.restore();
  }

  #bands(legend) {
    const box = legend.querySelector(".bands");
    const shares = this.#history.shares();
    const text = shares.map(({ by, share }) => `${by} ${Math.round(share * 100)}`).join();
    if (box.dataset.shown === text) return;
    box.dataset.shown = text;
    box.replaceChildren(...shares.map(({ by, share }) =>
      make("span", { class: `band band-${by}` }, `${t(`limit.${by}`)} ${percent(share)}`)));
  }

  #fit() {
    for (const { plot, place } of this.#plots) {
      const width = place.clientWidth;
      if (width > 0 && width !== plot.width) plot.setSize({ width, height: HEIGHT_PX });
    }
  }
}

/** The greatest value to show of the throughput: a single burst of 10 ms must not flatten the curve of whole seconds. */
function calm(plot, max) {
  const second = plot.data[2].reduce((most, value) => Math.max(most, value ?? 0), 0);
  return second > 0 ? Math.min(max, second * MAX_BURST) : max;
}

/** The least round number above the data: 1, 2, 4, 6 or 8 times a power of ten, or of two where bytes are counted. */
function nice(max, step) {
  if (!max || max <= 0) return 1;
  const base = step === 1024 ? 2 : 10;
  const power = base ** Math.floor(Math.log(max) / Math.log(base));
  return ([1, 1.2, 1.6, 2, 3, 4, 6, 8, 10].find((factor) => factor * power >= max * 1.04) ?? 10) * power;
}
