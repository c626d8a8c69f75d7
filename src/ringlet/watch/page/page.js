// The page itself: where data come from, and what its buttons do.
"use strict";
const Page = {
  isSaved: false,
  pending: false,

  start() {
    Page.chooseTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    Page.listen();
    const saved = byId("saved");
    Page.isSaved = saved !== null;
    if (!Page.isSaved) {
      Page.connect();
      return;
    }
    Runs.merge(JSON.parse(saved.textContent));
    Page.tell(`saved ${saved.dataset.time}`, "quiet");
    Page.draw();
  },

  connect() {
    const source = new EventSource("stream");
    source.addEventListener("hello", () => { Runs.all = []; Page.tell("live", "good"); });
    source.addEventListener("news", (event) => {
      Runs.merge(JSON.parse(event.data));
      Page.drawSoon();
    });
    source.addEventListener("over", () => { source.close(); Page.tell("watching ended", "quiet"); });
    source.addEventListener("error", () => Page.tell("not connected", "warning"));
  },

  tell(text, kind) {
    const chip = byId("connection");
    chip.hidden = false;
    chip.className = `chip ${kind}`;
    chip.textContent = text;
  },

  drawSoon() {
    if (Page.pending) return;
    Page.pending = true;
    requestAnimationFrame(() => { Page.pending = false; Page.draw(); });
  },

  draw() {
    Details.draw();
    Charts.draw();
  },

  chooseTheme(theme) {
    document.documentElement.dataset.theme = theme;
  },

  listen() {
    byId("theme").addEventListener("click", () => { Page.chooseTheme(Charts.theme() === "dark" ? "light" : "dark"); Page.draw(); });
    byId("logarithmic").addEventListener("click", (event) => {
      Charts.logarithmic = !Charts.logarithmic;
      event.currentTarget.setAttribute("aria-pressed", String(Charts.logarithmic));
      Page.draw();
    });
    byId("span").addEventListener("click", () => { Details.span = Details.span === "last" ? "total" : "last"; Page.draw(); });
    for (const button of byId("axis").children) {
      button.addEventListener("click", () => {
        Charts.axis = button.dataset.axis;
        for (const other of byId("axis").children) other.setAttribute("aria-pressed", String(other === button));
        Page.draw();
      });
    }
    if (!document.getElementById("saved")) setInterval(() => Runs.one && Details.draw(), 15000);
  },
};
Page.start();
