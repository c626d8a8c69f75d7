// What is known of all runs; documents from the server or from the saved file are merged into it.
"use strict";
const COLORS = {
  light: ["#2563c9", "#d9631e", "#1b8a4b", "#8451b5", "#c9302c", "#0f8b8d", "#9a6b00", "#b0388a"],
  dark: ["#6aa1ff", "#ff9a5c", "#4cc38a", "#bd93f9", "#ff7a72", "#4fd1d3", "#e2b340", "#f08bd0"],
};
const MAX_NOTES = 400;
const Runs = {
  all: [],
  chosen: 0,

  merge(news) {
    for (const part of news.runs || []) {
      let run = Runs.all[part.index];
      if (!run || part.is_new) run = Runs.all[part.index] = { index: part.index, series: new Map(), notes: [], status: {}, about: {} };
      Object.assign(run, { name: part.name, path: part.path });
      for (const name of ["about", "status", "tests", "ranks", "staleness", "checkpoints", "pictures", "images", "evaluation", "sheets"]) {
        if (part[name] !== undefined) run[name] = part[name];
      }
      for (const [name, points] of Object.entries(part.series || {})) Runs.extend(run, name, points);
      if (part.notes) run.notes = run.notes.concat(part.notes).slice(-MAX_NOTES);
    }
  },

  extend(run, name, points) {
    const known = run.series.get(name);
    if (!known || points.start === 0) {
      run.series.set(name, { x: points.x, y: points.y });
      return;
    }
    known.x = known.x.slice(0, points.start).concat(points.x);
    known.y = known.y.slice(0, points.start).concat(points.y);
  },

  get one() {
    return Runs.all[Runs.chosen] || Runs.all[0];
  },

  color(index, theme) {
    const colors = COLORS[theme];
    return colors[index % colors.length];
  },

  last(run, name) {
    const points = run.series.get(name);
    if (!points) return null;
    for (let place = points.y.length - 1; place >= 0; place--) if (points.y[place] !== null) return points.y[place];
    return null;
  },

  // Steps as epochs or seconds, by straight lines between known places.
  places(run, steps, axis) {
    const known = axis === "step" ? undefined : run.series.get(`axis:${axis}`);
    if (!known || !known.x.length) return axis === "step" ? steps : steps.map(() => null);
    let right = 0;
    return steps.map((step) => {
      while (right < known.x.length - 1 && known.x[right] < step) right++;
      const left = Math.max(right - 1, 0);
      const width = known.x[right] - known.x[left];
      const share = width > 0 ? Math.min(Math.max((step - known.x[left]) / width, 0), 1) : 0;
      return known.y[left] + share * (known.y[right] - known.y[left]);
    });
  },
};
