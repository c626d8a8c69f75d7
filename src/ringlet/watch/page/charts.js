// Curves. Each chart has one metric; several runs share it, each with its own colour.
"use strict";
const GROUPS = ["compute", "exchange", "wait", "data", "validation", "other"];
const HEIGHT = 230;
const Charts = {
  axis: "step",
  logarithmic: false,
  made: new Map(),

  theme() {
    return document.documentElement.dataset.theme === "dark" ? "dark" : "light";
  },

  css(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  },

  // Which charts there are, and which lines each has.
  plan() {
    const metrics = new Set();
    for (const run of Runs.all) {
      for (const name of run.series.keys()) {
        const [kind, ...rest] = name.split(":");
        if (["step", "train", "val"].includes(kind)) metrics.add(rest.join(":"));
      }
    }
    const names = [...metrics].sort((a, b) => (b === "loss") - (a === "loss") || (a < b ? -1 : 1));
    const plans = names.map((name) => ({
      key: `metric:${name}`, title: name, isLoss: name === "loss", format: (value) => Format.metric(name, value),
      tick: (value) => Format.metric(name, value).replace(/\.?0+ %$/, " %"),
      lines: Runs.all.flatMap((run) => Charts.metricLines(run, name)),
    }));
    plans.push({ key: "rate", title: "learning rate", format: Format.number, lines: Charts.perRun("rate", "learning rate") });
    plans.push({ key: "throughput", title: "samples per second", format: Format.number, fromZero: true, lines: [
      ...Charts.perRun("throughput:steps", "now", { faint: true }), ...Charts.perRun("throughput:epochs", "epoch", { points: true }),
    ] });
    const one = Runs.one;
    plans.push({ key: "shares", title: "share of time", format: Format.share, tick: (value) => `${Math.round(100 * value)} %`, fromZero: true, lines: GROUPS
      .filter((group) => one && one.series.has(`share:${group}`))
      .map((group) => ({ run: one, name: `share:${group}`, label: group, color: Charts.css(group), points: true })) });
    plans.push({ key: "staleness", title: "staleness of gradients, in updates", format: Format.number, fromZero: true, lines: [
      ...Charts.perRun("staleness:mean", "mean", { points: true }), ...Charts.perRun("staleness:max", "maximum", { dash: true }),
    ] });
    return plans.filter((plan) => plan.lines.length > 0);
  },

  metricLines(run, name) {
    const several = Runs.all.length > 1;
    const own = Runs.color(run.index, Charts.theme());
    const color = several ? own : Charts.css("accent");
    const head = several ? `${run.name} ` : "";
    const lines = [
      { name: `step:${name}`, label: `${head}step`, color, faint: true },
      { name: `train:${name}`, label: `${head}training`, color, dash: several, points: true },
      { name: `val:${name}`, label: `${head}validation`, color: several ? own : Charts.css("second"), points: true },
    ];
    const found = lines.filter((line) => run.series.has(line.name));
    const shown = several && found.length > 1 ? found.filter((line) => !line.faint) : found;
    return shown.map((line) => ({ run, ...line }));
  },

  perRun(name, label, style = {}) {
    const several = Runs.all.length > 1;
    return Runs.all.filter((run) => run.series.has(name)).map((run) => ({
      run, name, label: several ? `${run.name} ${label}` : label,
      color: several ? Runs.color(run.index, Charts.theme()) : Charts.css("accent"), ...style,
    }));
  },

  data(plan) {
    const positive = plan.isLoss && Charts.logarithmic;
    const tables = plan.lines.map(({ run, name }) => {
      const points = run.series.get(name);
      const x = Runs.places(run, points.x, Charts.axis);
      const kept = [[], []];
      x.forEach((place, index) => {
        if (place === null || (kept[0].length && place <= kept[0][kept[0].length - 1])) return;
        kept[0].push(place);
        kept[1].push(positive && points.y[index] <= 0 ? null : points.y[index]);
      });
      return kept;
    });
    return tables.length === 1 ? tables[0] : uPlot.join(tables);
  },

  draw() {
    const plans = Charts.plan();
    const wanted = new Set(plans.map((plan) => plan.key));
    for (const [key, chart] of Charts.made) if (!wanted.has(key)) Charts.remove(key, chart);
    for (const plan of plans) {
      const style = `${Charts.axis} ${Charts.logarithmic} ${Charts.theme()}`;
      const shape = JSON.stringify([style, Runs.chosen, plan.lines.map((line) => [line.run.index, line.name, line.label])]);
      const old = Charts.made.get(plan.key);
      if (old && old.shape === shape) Charts.refresh(old, plan);
      else Charts.make(plan, shape, old);
    }
    plans.forEach((plan) => byId("charts").append(Charts.made.get(plan.key).box));
    for (const chart of Charts.made.values()) Charts.fit(chart);
  },

  remove(key, chart) {
    Charts.sizes.unobserve(chart.box);
    chart.plot.destroy();
    chart.box.remove();
    Charts.made.delete(key);
  },

  refresh(chart, plan) {
    chart.plot.setData(Charts.data(plan), !chart.zoomed);
    if (chart.zoomed) chart.plot.redraw();
  },

  make(plan, shape, old) {
    const box = old ? old.box : element("article", "chart");
    if (old) old.plot.destroy();
    box.replaceChildren(element("h2", "", plan.title));
    if (!old) byId("charts").append(box);
    const chart = { box, shape, zoomed: false };
    chart.plot = new uPlot(Charts.options(plan, chart, box), Charts.data(plan), box);
    Charts.made.set(plan.key, chart);
    Charts.sizes.observe(box);
  },

  options(plan, chart, box) {
    const line = { stroke: Charts.css("faint"), grid: { stroke: Charts.css("grid"), width: 1 }, ticks: { show: false } };
    const unit = { step: Format.number, epoch: Format.number, time: Format.seconds }[Charts.axis];
    const logarithmic = plan.isLoss && Charts.logarithmic;
    const vertical = logarithmic ? { distr: 3 } : plan.fromZero ? { range: (_, low, high) => [0, high > 0 ? 1.06 * high : 1] } : {};
    return {
      width: Charts.width(box), height: HEIGHT,
      scales: { x: { time: false }, y: vertical },
      cursor: { sync: { key: "steps", scales: ["x", null] }, drag: { x: true, y: false }, points: { size: 6 } },
      axes: [
        { ...line, size: 32, values: (_, ticks) => ticks.map((tick) => Charts.axis === "time" ? Charts.shortTime(tick) : Format.number(tick)) },
        { ...line, size: 62, values: (_, ticks) => ticks.map((tick) => tick === null ? "" : (plan.tick || plan.format)(tick)) },
      ],
      series: [
        { label: Charts.axis, value: (_, value) => (value === null ? "–" : unit(value)) },
        ...plan.lines.map((shown) => Charts.lineOptions(shown, plan)),
      ],
      hooks: { draw: [Charts.drawMarks], setSelect: [(plot) => { chart.zoomed = plot.select.width > 0; }],
        ready: [(plot) => plot.over.addEventListener("dblclick", () => { chart.zoomed = false; })] },
    };
  },

  lineOptions(line, plan) {
    const points = { show: line.points ? (plot, index) => plot.data[index].filter((value) => value !== null && value !== undefined).length < 60 : false, size: 5, fill: line.color };
    return {
      label: line.label, stroke: line.faint ? `${line.color}66` : line.color, width: line.faint ? 1 : 2, spanGaps: true,
      dash: line.dash ? [6, 4] : undefined, points, value: (_, value) => (value === null || value === undefined ? "–" : plan.format(value)),
    };
  },

  // Where the chosen run went on from a checkpoint, or skipped an update.
  drawMarks(plot) {
    const run = Runs.one;
    const marked = run ? run.notes.filter((note) => note.step && note.kind !== "info") : [];
    const places = run ? Runs.places(run, marked.map((note) => note.step), Charts.axis) : [];
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.setLineDash([3, 3]);
    marked.forEach((note, index) => {
      const x = places[index] === null ? NaN : plot.valToPos(places[index], "x", true);
      if (!(x >= bbox.left && x <= bbox.left + bbox.width)) return;
      ctx.strokeStyle = Charts.css(note.kind);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    });
    ctx.restore();
  },

  shortTime(seconds) {
    if (seconds < 120) return `${Number(seconds.toPrecision(3))} s`;
    return seconds < 7200 ? `${Number((seconds / 60).toPrecision(3))} min` : `${Number((seconds / 3600).toPrecision(3))} h`;
  },

  width(box) {
    return Math.max(box.clientWidth - 30, 120);
  },

  // A card becomes narrower when others come beside it, and when the window does.
  fit(chart) {
    const width = Charts.width(chart.box);
    if (chart.plot.width !== width) chart.plot.setSize({ width, height: HEIGHT });
  },

  sizes: new ResizeObserver((entries) => {
    const changed = new Set(entries.map((entry) => entry.target));
    for (const chart of Charts.made.values()) if (changed.has(chart.box)) Charts.fit(chart);
  }),
};
