// What belongs to one run: summary, ranks, staleness, pictures, checkpoints, events.
"use strict";
const Details = {
  span: "last",
  epochShown: null,

  draw() {
    const run = Runs.one;
    if (!run) return;
    Details.heading(run);
    Details.runs();
    Details.tiles(run);
    Details.progress(run);
    Details.ranks(run);
    Details.staleness(run);
    Details.pictures(run);
    Evaluation.draw(run);
    Details.checkpoints(run);
    Details.notes(run);
    Details.about(run);
  },

  state(run) {
    const state = run.status.state || "waiting";
    const kind = { running: "info", validating: "info", trained: "info", finished: "good", interrupted: "warning", waiting: "quiet" }[state] || "bad";
    const quiet = Date.now() / 1000 - run.status.time;
    if (kind === "info" && (Page.isSaved || quiet > 60)) return [Page.isSaved ? `was ${state}` : `no news for ${Format.seconds(quiet)}`, "warning"];
    return [state, kind];
  },

  heading(run) {
    const names = Runs.all.length > 1 ? `${Runs.all.length} runs` : run.name;
    document.title = `${names} – Ringlet`;
    const [state, kind] = Details.state(run);
    byId("title").replaceChildren(`${names} `, element("span", `chip ${kind}`, state));
    const about = run.about;
    const workers = about.num_workers === 1 ? "1 worker" : `${about.num_workers} workers`;
    byId("subtitle").textContent = about.model ? `${about.model} on ${about.dataset}, ${workers}, engine ${about.engine}` : "nothing logged yet";
  },

  runs() {
    const nav = byId("runs");
    nav.hidden = Runs.all.length < 2;
    if (nav.hidden) return;
    nav.replaceChildren(...Runs.all.map((run) => {
      const button = element("button");
      button.type = "button";
      button.setAttribute("aria-pressed", String(run === Runs.one));
      const swatch = element("span", "swatch");
      swatch.style.background = Runs.color(run.index, Charts.theme());
      const [state, kind] = Details.state(run);
      button.append(swatch, element("span", "", run.name), element("span", `chip ${kind}`, state));
      button.addEventListener("click", () => { Runs.chosen = run.index; Page.draw(); });
      return button;
    }));
  },

  tiles(run) {
    const status = run.status;
    const tiles = [["epoch", `${status.epochs_done || 0} / ${status.num_epochs || "–"}`, `update ${Format.number(status.step || 0)}`]];
    const watched = Charts.plan().filter((plan) => plan.key.startsWith("metric:")).map((plan) => plan.title);
    for (const name of watched.slice(0, 3)) tiles.push(Details.metricTile(run, name));
    const rate = Runs.last(run, "throughput:epochs") ?? Runs.last(run, "throughput:steps");
    tiles.push(["samples per second", Format.number(rate), "training alone"]);
    const shares = run.ranks && run.ranks.shares.last;
    if (shares && run.ranks.count > 1) {
      tiles.push(["exchange and wait", Format.share((shares.exchange || 0) + (shares.wait || 0)), "of all ranks' time, last epoch"]);
    }
    tiles.push(["time", Format.seconds(status.elapsed), Details.left(run)]);
    if (status.num_restarts) tiles.push(["restarts", String(status.num_restarts), "see the events"]);
    byId("tiles").replaceChildren(...tiles.filter(Boolean).map(([name, value, more]) => {
      const tile = element("div", "tile");
      tile.append(element("div", "name", name), element("div", "value", value), element("div", "more", more));
      return tile;
    }));
  },

  metricTile(run, name) {
    const points = run.series.get(`val:${name}`) || run.series.get(`train:${name}`) || run.series.get(`step:${name}`);
    if (!points) return null;
    const kind = run.series.has(`val:${name}`) ? "validation" : "training";
    const known = points.y.filter((value) => value !== null);
    if (!known.length) return [`${kind} ${name}`, "–", "no finite value"];
    const rises = /accuracy|top5|dice|iou|exact_match|precision|recall|f1|r2/.test(name) && name !== "loss";
    const best = known.reduce((a, b) => (rises ? Math.max(a, b) : Math.min(a, b)));
    const test = run.tests && run.tests.after && run.tests.after[name];
    const more = Number.isFinite(test) ? `test ${Format.metric(name, test)}` : `best ${Format.metric(name, best)}`;
    return [`${kind} ${name}`, Format.metric(name, known[known.length - 1]), more];
  },

  share(run) {
    const { epoch, num_epochs: all, num_steps: steps, step_in_epoch: done, epochs_done: epochs = 0 } = run.status;
    if (!all) return 0;
    const within = epoch > epochs && steps ? Math.min(done / steps, 1) : 0;
    return Math.min((epochs + within) / all, 1);
  },

  left(run) {
    const share = Details.share(run);
    if (run.status.outcome || share >= 1 || share <= 0.01) return "of training and validation";
    return `about ${Format.seconds((run.status.elapsed / share) * (1 - share))} left`;
  },

  progress(run) {
    const bar = byId("bar");
    bar.hidden = !run.status.num_epochs;
    const percent = 100 * Details.share(run);
    bar.setAttribute("aria-valuenow", percent.toFixed(0));
    bar.firstElementChild.style.width = `${percent}%`;
  },

  ranks(run) {
    const panel = byId("ranks");
    const ranks = run.ranks;
    panel.hidden = !ranks || !ranks.count;
    if (panel.hidden) return;
    byId("span").textContent = Details.span === "last" ? `epoch ${ranks.epoch}` : "all epochs";
    const rows = ranks[Details.span];
    const sums = rows.map(({ seconds }) => GROUPS.reduce((sum, group) => sum + (seconds[group] || 0), 0));
    const longest = Math.max(...sums, 1e-9);
    panel.querySelector(".keys").replaceChildren(...GROUPS.map((group) => {
      const key = element("span");
      const swatch = element("span", "swatch");
      swatch.style.background = Charts.css(group);
      key.append(swatch, `${group} ${Format.share(ranks.shares[Details.span][group] || 0)}`);
      return key;
    }));
    panel.querySelector(".rows").replaceChildren(...rows.map(({ rank, seconds }, index) => {
      const row = element("div", "rank");
      const stack = element("div", "stack");
      for (const group of GROUPS) {
        const part = element("div");
        part.style.width = `${(100 * (seconds[group] || 0)) / longest}%`;
        part.style.background = Charts.css(group);
        part.title = `${group}: ${Format.seconds(seconds[group] || 0)}`;
        stack.append(part);
      }
      row.append(element("span", "", `rank ${rank}`), stack, element("span", "time", Format.seconds(sums[index])));
      return row;
    }));
    const left = ranks.count - rows.length;
    panel.querySelector(".remark").textContent = left > 0
      ? `${rows.length} of ${ranks.count} ranks: those that waited least, for whom others waited, and those that waited most.`
      : "Who waits little keeps the others waiting.";
  },

  staleness(run) {
    const panel = byId("staleness");
    panel.hidden = !run.staleness;
    if (panel.hidden) return;
    const { histogram, epoch, mean, max } = run.staleness;
    const most = Math.max(...histogram, 1);
    panel.querySelector(".columns").replaceChildren(...histogram.map((gradients, staleness) => {
      const column = element("div");
      column.style.height = `${(100 * gradients) / most}%`;
      column.title = `${gradients} gradients were ${staleness} updates old`;
      return column;
    }));
    panel.querySelector(".remark").textContent =
      `Epoch ${epoch}: from 0 to ${Format.number(max)} updates old, ${Format.number(mean)} on average.`;
  },

  pictures(run) {
    const panel = byId("pictures");
    const epochs = Page.isSaved ? Object.keys(run.images || {}).map(Number) : run.pictures || [];
    panel.hidden = !epochs.length;
    if (panel.hidden) return;
    const slider = panel.querySelector("input");
    const follows = Details.epochShown === null || !epochs.includes(Details.epochShown);
    const epoch = follows ? epochs[epochs.length - 1] : Details.epochShown;
    Object.assign(slider, { min: 0, max: epochs.length - 1, step: 1, value: epochs.indexOf(epoch) });
    slider.hidden = epochs.length < 2;
    slider.oninput = () => {
      const wanted = epochs[Number(slider.value)];
      Details.epochShown = wanted === epochs[epochs.length - 1] ? null : wanted;
      Details.pictures(run);
    };
    panel.querySelector("span").textContent = `epoch ${epoch}`;
    const address = Page.isSaved ? `data:image/png;base64,${run.images[epoch]}` : `runs/${run.index}/pictures/${epoch}.png`;
    const image = panel.querySelector("img");
    if (image.getAttribute("src") !== address) image.setAttribute("src", address);
  },

  checkpoints(run) {
    const panel = byId("checkpoints");
    const list = run.checkpoints || [];
    panel.hidden = !list.length;
    panel.querySelector("tbody").replaceChildren(...list.slice().reverse().map(({ step, time, bytes }) => {
      const row = element("tr");
      row.append(element("td", "", step.toLocaleString("en")), element("td", "", Format.clock(time)), element("td", "", Format.bytes(bytes)));
      return row;
    }));
  },

  notes(run) {
    const panel = byId("notes");
    panel.hidden = !run.notes.length;
    panel.querySelector("ol").replaceChildren(...run.notes.slice().reverse().map((note) => {
      const item = element("li", note.kind);
      item.append(element("time", "", Format.clock(note.time)), element("p", "", note.text));
      return item;
    }));
  },

  about(run) {
    const panel = byId("about");
    const entries = Object.entries(run.about).filter(([, value]) => value !== "" && value !== 0);
    panel.hidden = !entries.length;
    const rows = [["folder", run.path], ...entries];
    if (run.status.num_broken) rows.push(["unreadable lines", run.status.num_broken]);
    panel.querySelector("dl").replaceChildren(...rows.flatMap(([name, value]) => [
      element("dt", "", name.replace(/^num_/, "").replaceAll("_", " ")),
      element("dd", "", typeof value === "number" ? value.toLocaleString("en") : value),
    ]));
  },
};
