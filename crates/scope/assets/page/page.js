// Draws the charts that stand in the page as JSON. Those of one group share the range of x and the crosshair.
(() => {
  "use strict";
  const sheet = JSON.parse(document.getElementById("sheet").textContent);
  const root = document.documentElement;
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const style = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const isDark = () => root.dataset.theme === "dark";
  const FONT = '12px Roboto, "Segoe UI", "Helvetica Neue", Arial, sans-serif';
  const HEIGHT = 250;
  const X_SIZE = 30;
  // Where the ranges of each group of charts now end: the same for all of them.
  const zoomed = new Map();
  let plots = [];

  const tidy = (value) => Number(value.toPrecision(9)).toLocaleString("en-US", { maximumFractionDigits: 9 });
  const told = (axis, value, digits) => {
    if (value == null) return "";
    if (axis.scale === "names") return axis.ticks[Math.round(value)]?.text ?? "";
    const number = Number((value / axis.factor).toPrecision(digits));
    return (number.toLocaleString("en-US", { maximumFractionDigits: 6 }) + " " + axis.unit).trim();
  };

  const scale = (axis, range) => ({
    time: false,
    distr: axis.scale === "log" ? 3 : 1,
    log: axis.base ?? 10,
    range,
  });

  // From zero as on paper, but what is zoomed into fills the height.
  function heights(chart) {
    const { low, high, scale } = chart.y;
    if (scale !== "linear" || chart.series.some((series) => series.spread)) return () => [low, high];
    return (plot, min, max) => {
      if (min == null || max == null) return [low, high];
      const top = max > 0 ? max * 1.06 : 0;
      const bottom = min < 0 ? min * 1.06 : 0;
      return top > bottom ? [bottom, top] : [0, 1];
    };
  }

  function widest(texts) {
    const context = document.createElement("canvas").getContext("2d");
    context.font = FONT;
    return Math.max(0, ...texts.map((text) => context.measureText(text).width));
  }

  function ruler(axis, isX, width) {
    const drawn = {
      stroke: style("--ink"),
      font: FONT,
      label: axis.label,
      labelFont: FONT,
      labelSize: 18,
      labelGap: 0,
      grid: { stroke: style("--grid"), width: 1 },
      ticks: { stroke: style("--frame"), width: 1, size: 4 },
      border: { show: true, stroke: style("--frame"), width: 1 },
      values: (plot, splits) => splits.map((value) => (value == null ? "" : tidy(value / axis.factor))),
      size: isX ? X_SIZE : 56,
      space: isX ? 60 : 32,
    };
    if (axis.scale === "linear") return drawn;
    const short = (text) => (text.length > 28 ? text.slice(0, 27) + "…" : text);
    const texts = axis.ticks.map((tick) => short(tick.text));
    const wide = widest(texts) + 14;
    drawn.splits = () => axis.ticks.map((tick) => tick.value);
    drawn.values = () => texts;
    drawn.filter = (plot, splits) => splits;
    drawn.grid.show = axis.scale === "log";
    if (!isX) drawn.size = Math.max(56, wide);
    else if (wide * texts.length > width - 90) {
      drawn.rotate = -35;
      drawn.size = X_SIZE + wide * 0.6;
    }
    return drawn;
  }

  const isBand = (series) => series.mark === "band";
  const isDots = (series) => series.mark === "dots" || series.mark === "events";

  function line(chart, series) {
    const stroke = series.colours[isDark() ? 1 : 0];
    const drawn = {
      label: series.name || chart.y.name,
      stroke,
      width: series.mark === "line" ? 1.2 : 1.6,
      value: (plot, value) => (series.mark === "events" || isBand(series) ? "" : told(chart.y, value, 4)),
      points: { size: 5, fill: stroke },
    };
    const only = series.x.length === 1;
    if (series.mark === "steps" && !only) Object.assign(drawn, { paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } });
    if (series.mark === "dashed") Object.assign(drawn, { dash: [6, 4], points: { show: false } });
    if (isBand(series)) return Object.assign(drawn, { paths: () => null, points: { show: false } });
    if (isDots(series)) Object.assign(drawn, { paths: () => null, points: { show: true, size: 6, fill: stroke } });
    if (series.mark === "measured") drawn.points = { show: true, size: 8, fill: stroke };
    if (only && series.mark !== "dashed") drawn.points = { show: true, size: 6, fill: stroke };
    return drawn;
  }

  // A sample of the line in the legend; dashes as a background, since the marker is a box.
  function sample(chart) {
    return (plot, index) => {
      if (index === 0) return "none";
      const { mark } = chart.series[index - 1];
      const stroke = plot.series[index].stroke();
      return mark === "dashed" ? `repeating-linear-gradient(90deg, ${stroke} 0 4px, transparent 4px 7px)` : stroke;
    };
  }

  // Series have times of their own: the value at the crosshair is the one before, for a curve the nearest.
  function nearest(chart) {
    return (plot, index, hovered) => {
      if (index === 0) return hovered;
      const [xs, values] = [plot.data[0], plot.data[index]];
      let before = hovered, after = hovered;
      while (before >= 0 && values[before] == null) before--;
      while (after < values.length && values[after] == null) after++;
      if (before < 0) return after < values.length ? after : hovered;
      if (after >= values.length || chart.series[index - 1].mark === "steps") return before;
      const x = xs[hovered];
      return x - xs[before] <= xs[after] - x ? before : after;
    };
  }

  // Pale areas behind everything, each between two points of a pair.
  function bands(chart) {
    return (plot) => {
      const { ctx, bbox } = plot;
      ctx.save();
      ctx.beginPath();
      ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
      ctx.clip();
      chart.series.forEach((series, index) => {
        if (!isBand(series) || !plot.series[index + 1].show) return;
        ctx.fillStyle = plot.series[index + 1].stroke();
        for (let at = 0; at + 1 < series.x.length; at += 2) {
          const [left, right] = [series.x[at], series.x[at + 1]].map((value) => plot.valToPos(value, "x", true));
          ctx.fillRect(left, bbox.top, right - left, bbox.height);
        }
      });
      ctx.restore();
    };
  }

  function whiskers(chart) {
    return (plot) => {
      const { ctx } = plot;
      chart.series.forEach((series, index) => {
        if (!series.spread || !plot.series[index + 1].show) return;
        ctx.save();
        ctx.strokeStyle = plot.series[index + 1].stroke();
        ctx.lineWidth = 1.2 * devicePixelRatio;
        ctx.beginPath();
        series.spread.forEach((spread, at) => {
          if (!spread) return;
          const x = plot.valToPos(series.x[at], "x", true);
          const [low, high] = spread.map((value) => plot.valToPos(value, "y", true));
          const half = 4 * devicePixelRatio;
          ctx.moveTo(x - half, low); ctx.lineTo(x + half, low);
          ctx.moveTo(x, low); ctx.lineTo(x, high);
          ctx.moveTo(x - half, high); ctx.lineTo(x + half, high);
        });
        ctx.stroke();
        ctx.restore();
      });
    };
  }

  // A limit that is one point holds everywhere.
  const places = (chart, series) =>
    series.mark === "dashed" && series.x.length === 1
      ? [[chart.x.low, chart.x.high], [series.y[0], series.y[0]]]
      : [series.x, series.y];

  function draw(chart, place) {
    const full = [chart.x.low, chart.x.high];
    const group = chart.group;
    const axes = [ruler(chart.x, true, place.clientWidth), ruler(chart.y, false)];
    const options = {
      width: place.clientWidth,
      // Names that stand aslant take no room from the plot.
      height: HEIGHT + axes[0].size - X_SIZE,
      scales: { x: scale(chart.x, (plot, min, max) => [min, max]), y: scale(chart.y, heights(chart)) },
      axes,
      series: [
        { label: chart.x.name, value: (plot, value) => told(chart.x, value, 7) },
        ...chart.series.map((series) => line(chart, series)),
      ],
      legend: { markers: { width: 0, fill: sample(chart) } },
      cursor: {
        dataIdx: nearest(chart),
        y: false,
        drag: { x: true, y: false },
        sync: { key: group, scales: ["x", null], filters: { pub: (type) => type === "mousemove" || type === "mouseleave" } },
        bind: { dblclick: () => () => zoom(group, null) },
      },
      hooks: {
        drawClear: [bands(chart)],
        draw: [whiskers(chart)],
        setScale: [(plot, key) => {
          if (key !== "x") return;
          const { min, max } = plot.scales.x;
          const [low, high] = zoomed.get(group) ?? full;
          if (min !== low || max !== high) zoom(group, [min, max]);
        }],
      },
    };
    const plot = new uPlot(options, uPlot.join(chart.series.map((series) => places(chart, series))), place);
    const [low, high] = zoomed.get(group) ?? full;
    plot.setScale("x", { min: low, max: high });
    const entries = plot.root.querySelectorAll(".u-series");
    const followers = plot.root.querySelectorAll(".u-cursor-pt");
    chart.series.forEach((series, index) => {
      // What has no name, as the mark of a peak, has no place in the legend, but one line must say the value.
      if (!series.name && index > 0) entries[index + 1]?.classList.add("hidden");
      // The points of these may be far from the crosshair.
      if (series.mark === "dashed" || isDots(series) || isBand(series)) followers[index]?.classList.add("hidden");
    });
    return { plot, chart, place, full };
  }

  function zoom(group, range) {
    if (range) zoomed.set(group, range);
    else zoomed.delete(group);
    for (const { plot, chart, full } of plots) {
      if (chart.group !== group) continue;
      const [low, high] = range ?? full;
      if (plot.scales.x.min !== low || plot.scales.x.max !== high) plot.setScale("x", { min: low, max: high });
    }
    document.getElementById("reset").disabled = zoomed.size === 0;
  }

  function drawAll() {
    const hidden = plots.map(({ plot }) => plot.series.map((series) => !series.show));
    plots.forEach(({ plot }) => plot.destroy());
    plots = sheet.charts
      .map((chart, index) => [chart, document.getElementById("chart-" + index)])
      .filter(([chart, place]) => place)
      .map(([chart, place]) => draw(chart, place));
    plots.forEach(({ plot }, at) => hidden[at]?.forEach((isHidden, index) => {
      if (isHidden) plot.setSeries(index, { show: false });
    }));
  }

  function show(theme) {
    root.dataset.theme = theme;
    document.getElementById("theme").textContent = isDark() ? "Light" : "Dark";
    drawAll();
  }

  document.getElementById("theme").addEventListener("click", () => show(isDark() ? "light" : "dark"));
  document.getElementById("reset").addEventListener("click", () => [...zoomed.keys()].forEach((group) => zoom(group, null)));
  prefersDark.addEventListener("change", () => show(prefersDark.matches ? "dark" : "light"));
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth !== width) drawAll();
    width = innerWidth;
  });
  const asked = location.hash.slice(1);
  show(asked === "dark" || asked === "light" ? asked : prefersDark.matches ? "dark" : "light");
})();
