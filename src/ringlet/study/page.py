"""One self-contained HTML page: no scripts, no external resources, readable on light and dark screens and on paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

_STYLE = """
:root { color-scheme: light dark;
  --text: #1d2330; --faint: #667085; --line: #d8dde6; --card: #f6f7f9; --back: #ffffff; --mark: #0b6bcb; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6e9ef; --faint: #9aa4b5; --line: #363d4a; --card: #20252e; --back: #171b22; --mark: #63b1ff; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.5rem 4rem; max-width: 78rem; background: var(--back); color: var(--text);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
h1 { font-size: 1.8rem; line-height: 1.2; margin: 0 0 .3rem; }
h2 { font-size: 1.2rem; margin: 2.4rem 0 .7rem; padding-bottom: .3rem; border-bottom: 1px solid var(--line); }
p { margin: .5rem 0; }
.faint { color: var(--faint); font-size: .9rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; width: 100%; }
th, td { padding: .35rem .45rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { color: var(--faint); font-weight: 600; white-space: normal; vertical-align: bottom; }
th.text, td.text { text-align: left; }
td.long { white-space: normal; }
ul.verdicts { list-style: none; padding: 0; margin: 0; display: grid; gap: .5rem;
  grid-template-columns: repeat(auto-fill, minmax(min(24rem, 100%), 1fr)); }
ul.verdicts li { background: var(--card); border-left: 4px solid var(--mark); border-radius: 4px;
  padding: .5rem .8rem; }
ul.verdicts li.unsure { border-left-color: var(--faint); }
ul.verdicts .where { color: var(--faint); font-size: .85rem; display: block; }
figure { margin: 1rem 0; }
figure svg { width: 100%; height: auto; color: var(--text); }
figcaption { color: var(--faint); font-size: .9rem; }
dl.facts { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1.2rem; font-size: .9rem; margin: 0; }
dl.facts dt { color: var(--faint); }
dl.facts dd { margin: 0; overflow-wrap: anywhere; }
details summary { cursor: pointer; color: var(--mark); }
@media print {
  :root { --text: #000; --faint: #444; --line: #bbb; --card: #fff; --back: #fff; --mark: #333; }
  body { padding: 0; max-width: none; font-size: 10pt; }
  table { font-size: 7.5pt; }
  th, td { padding: .2rem .3rem; }
  figure, li, tr { break-inside: avoid; }
  h2 { break-after: avoid; }
  .wide { overflow: visible; }
}
"""


def page(title: str, subtitle: str, parts: Sequence[str]) -> str:
    """The whole document; ``parts`` are HTML from the functions below."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f'<h1>{escape(title)}</h1>\n<p class="faint">{escape(subtitle)}</p>\n'
        + "\n".join(parts)
        + "\n</body>\n</html>\n"
    )


def section(heading: str, *parts: str) -> str:
    """A heading and what follows."""
    return f"<h2>{escape(heading)}</h2>\n" + "\n".join(parts)


def paragraph(text: str, *, faint: bool = False) -> str:
    """Plain text."""
    kind = ' class="faint"' if faint else ""
    return f"<p{kind}>{escape(text)}</p>"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, texts: Sequence[str] = ()) -> str:
    """A table of plain texts; columns named in ``texts`` are set left, all others are numbers."""
    kinds = [' class="text"' if column in texts else "" for column in columns]
    head = "".join(f"<th{kind}>{_breakable(column)}</th>" for column, kind in zip(columns, kinds, strict=True))
    lines = [
        "<tr>" + "".join(_cell(cell, kind) for cell, kind in zip(row, kinds, strict=True)) + "</tr>" for row in rows
    ]
    body = "\n".join(lines)
    return f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>'


def _breakable(name: str) -> str:
    """A column's name that may go over several lines."""
    return escape(name).replace("_", "_<wbr>")


def _cell(text: str, kind: str) -> str:
    if kind and len(text) > 60:
        kind = ' class="text long"'
    return f"<td{kind}>{escape(text)}</td>"


def facts(values: Mapping[str, str]) -> str:
    """Names and values, one pair per line."""
    return (
        '<dl class="facts">' + "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in values.items()) + "</dl>"
    )


def verdicts(sentences: Sequence[tuple[str, str, bool]]) -> str:
    """(where, sentence, whether it is sure) as a list."""
    items = []
    for where, sentence, sure in sentences:
        kind = "" if sure else ' class="unsure"'
        items.append(f'<li{kind}><span class="where">{escape(where)}</span>{escape(sentence)}</li>')
    return '<ul class="verdicts">\n' + "\n".join(items) + "\n</ul>"


def figure(svg: str, caption: str) -> str:
    """A drawing, as inline SVG from :func:`ringlet.study.plots.inline_svg`, with its caption."""
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def folded(summary: str, *parts: str) -> str:
    """What is shown when asked for."""
    return f"<details><summary>{escape(summary)}</summary>\n" + "\n".join(parts) + "\n</details>"
