// The last evaluation of a run: scores of classes, confusion matrix, calibration, pictures of the worst samples.
"use strict";
const COLUMNS = [
  ["precision", "precision"], ["recall", "recall"], ["f1", "F1"], ["iou", "IoU"], ["dice", "dice"],
  ["mae", "MAE"], ["rmse", "RMSE"], ["r2", "R²"], ["bias", "bias"], ["max_error", "largest error"], ["support", "count"],
];
const NUMBERS = new Set(["mae", "rmse", "r2", "bias", "max_error"]);
const Evaluation = {
  drawn: null,

  draw(run) {
    const panel = byId("evaluation");
    const found = run.evaluation;
    panel.hidden = !found;
    if (!found) { Evaluation.drawn = null; return; }
    const state = JSON.stringify([run.index, found.time, Charts.theme()]);
    if (Evaluation.drawn === state) return;
    Evaluation.drawn = state;
    const title = [`Evaluation on ${found.split} data`, found.dataset, found.tta && `averaged over views: ${found.tta}`];
    panel.querySelector("h2").textContent = title.filter(Boolean).join(", ");
    const metrics = Object.entries(found.metrics).map(([name, value]) => `${name} ${Format.metric(name, value)}`);
    panel.querySelector(".summary").textContent =
      [`${found.num_samples.toLocaleString("en")} samples`, ...metrics, Format.clock(found.time)].join(" · ");
    Evaluation.scores(panel, found);
    Evaluation.confusion(panel.querySelector(".matrix"), found);
    Evaluation.calibration(panel.querySelector(".calibration"), found.calibration);
    Evaluation.sheets(panel.querySelector(".sheets"), run, found);
  },

  value(name, value) {
    if (value === null || value === undefined) return "–";
    if (name === "support") return value.toLocaleString("en");
    return NUMBERS.has(name) ? Format.number(value) : `${(100 * value).toFixed(1)} %`;
  },

  scores(panel, found) {
    const columns = COLUMNS.filter(([name]) => found.rows.some((row) => row[name] !== undefined && row[name] !== null));
    const head = element("tr");
    head.append(element("th", "", found.task === "regression" ? "output" : "class"), ...columns.map(([, title]) => element("th", "", title)));
    panel.querySelector("thead").replaceChildren(head);
    const means = Object.entries(found.averages).map(([name, values]) => ({ name: `${name} mean`, ...values, isMean: true }));
    panel.querySelector("tbody").replaceChildren(...[...found.rows, ...means].map((row) => {
      const line = element("tr", row.isMean ? "mean" : "");
      const name = element("td", "name");
      if (row.colour) {
        const swatch = element("span", "swatch");
        swatch.style.background = row.colour;
        name.append(swatch);
      }
      name.append(row.name);
      line.append(name, ...columns.map(([column]) => {
        const cell = element("td", "", Evaluation.value(column, row[column]));
        if (!NUMBERS.has(column) && column !== "support" && row[column] < 0.5) cell.className = "bad";
        return cell;
      }));
      return line;
    }));
  },

  confusion(place, found) {
    if (found.matrix) {
      place.replaceChildren(element("h3", "", "Confusion: truth in rows, prediction in columns"), Evaluation.matrix(found));
    } else if (found.confusions.length) {
      const list = element("ol");
      list.append(...found.confusions.map((one) => {
        const item = element("li");
        item.append(element("time", "", one.count.toLocaleString("en")), element("p", "", `${one.truth} taken for ${one.predicted} (${Format.share(one.share)})`));
        return item;
      }));
      place.replaceChildren(element("h3", "", "Most frequent confusions"), list);
    } else {
      place.replaceChildren();
    }
  },

  // Cells with numbers where they have room, otherwise plain shades; each says in words what it counts.
  matrix(found) {
    const { matrix, rows } = found;
    const isRoomy = matrix.length <= 25;
    const scroll = element("div", "scroll tall");
    const grid = element("table", isRoomy ? "confusion" : "confusion small");
    if (isRoomy) {
      const head = element("tr");
      head.append(element("th"), ...rows.map((row) => { const cell = element("th", "", row.name.slice(0, 7)); cell.title = row.name; return cell; }));
      grid.append(head);
    }
    matrix.forEach((counts, truth) => {
      const total = Math.max(counts.reduce((sum, value) => sum + value, 0), 1);
      const line = element("tr");
      line.append(element("th", "", isRoomy ? rows[truth].name.slice(0, 20) : ""));
      counts.forEach((value, predicted) => {
        const cell = element("td", "", isRoomy && value ? value.toLocaleString("en") : "");
        const share = value / total;
        const color = truth === predicted ? "var(--accent)" : "var(--bad)";
        if (value) cell.style.background = `color-mix(in srgb, ${color} ${Math.round(12 + 68 * Math.sqrt(share))}%, transparent)`;
        cell.title = `${rows[truth].name} predicted as ${rows[predicted].name}: ${value.toLocaleString("en")} (${Format.share(share)})`;
        line.append(cell);
      });
      grid.append(line);
    });
    scroll.append(grid);
    return scroll;
  },

  calibration(place, found) {
    if (!found) { place.replaceChildren(); return; }
    const columns = element("div", "reliability");
    for (const bin of found.bins) {
      const column = element("div", "column");
      if (bin.count) {
        const bar = element("div", "accuracy");
        bar.style.height = `${100 * bin.accuracy}%`;
        const mark = element("div", "confidence");
        mark.style.bottom = `${100 * bin.confidence}%`;
        column.append(bar, mark);
        column.title = `confidence ${Format.share(bin.confidence)}, right ${Format.share(bin.accuracy)}, ${bin.count.toLocaleString("en")} predictions`;
      }
      columns.append(column);
    }
    const words = `Calibration: expected error ${(100 * found.ece).toFixed(2)} %. Bars: share that is right, by confidence from 0 to 100 %; lines: the confidence itself.`;
    place.replaceChildren(element("h3", "", "Calibration"), columns, element("p", "remark", words));
  },

  sheets(place, run, found) {
    place.replaceChildren(...Object.entries(found.sheets).flatMap(([name, title]) => {
      const saved = Page.isSaved ? run.sheets && run.sheets[name] : true;
      if (!saved) return [];
      const image = element("img");
      image.alt = `${title} samples`;
      image.src = Page.isSaved ? `data:image/png;base64,${saved}` : `runs/${run.index}/evaluation/${name}.png?${found.time}`;
      return [element("h3", "", `${title[0].toUpperCase()}${title.slice(1)}`), image];
    }));
  },
};
