// Numbers and times as people read them, and elements without markup from data: text is only ever text.
"use strict";
const Format = {
  number(value) {
    if (value === null || value === undefined || !Number.isFinite(value)) return "–";
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-3 || size >= 1e9)) return value.toExponential(2);
    if (size >= 1000) return Math.round(value).toLocaleString("en");
    return Number(value.toPrecision(4)).toString();
  },
  share(value) {
    return Number.isFinite(value) ? `${(100 * value).toFixed(value < 0.0995 ? 1 : 0)} %` : "–";
  },
  metric(name, value) {
    const isShare = /accuracy|top5|top_5|dice|iou|exact_match|precision|recall|f1/.test(name) && value >= 0 && value <= 1;
    return isShare ? `${(100 * value).toFixed(2)} %` : Format.number(value);
  },
  seconds(value) {
    if (!Number.isFinite(value)) return "–";
    if (value < 0.1) return `${Number((1000 * value).toPrecision(2))} ms`;
    if (value < 10) return `${value.toFixed(1)} s`;
    if (value < 60) return `${Math.round(value)} s`;
    const minutes = Math.floor(value / 60);
    if (minutes < 60) return `${minutes} min ${Math.round(value % 60)} s`;
    const hours = Math.floor(minutes / 60);
    return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
  },
  clock(time) {
    if (!Number.isFinite(time) || Math.abs(time) > 8e12) return "";
    return new Date(1000 * time).toLocaleTimeString("en-GB");
  },
  bytes(value) {
    return value >= 1e9 ? `${(value / 1e9).toFixed(2)} GB` : value >= 1e6 ? `${(value / 1e6).toFixed(1)} MB` : `${Math.ceil(value / 1e3)} kB`;
  },
};

function element(tag, className, content) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (content !== undefined) made.textContent = content;
  return made;
}

function byId(name) {
  return document.getElementById(name);
}
