"""Pages for people: one self-contained HTML file each, of studies and of searches.

No scripts, no external resources, readable on light and dark screens and on paper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources


def page(title: str, subtitle: str, parts: Sequence[str]) -> str:
    """The whole document; ``parts`` are HTML from the functions below."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{_style()}</style>\n</head>\n<body>\n"
        f'<h1>{escape(title)}</h1>\n<p class="faint">{escape(subtitle)}</p>\n'
        + "\n".join(parts)
        + "\n</body>\n</html>\n"
    )


def _style() -> str:
    return resources.files("ringlet.study").joinpath("style.css").read_text(encoding="utf-8")


def section(heading: str, *parts: str) -> str:
    """A heading and what follows."""
    return f"<h2>{escape(heading)}</h2>\n" + "\n".join(parts)


def paragraph(text: str, *, faint: bool = False) -> str:
    """Plain text."""
    kind = ' class="faint"' if faint else ""
    return f"<p{kind}>{escape(text)}</p>"


def html_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, texts: Sequence[str] = ()) -> str:
    """A table of plain texts; columns named in ``texts`` are set left, all others are numbers."""
    kinds = [' class="text"' if column in texts else "" for column in columns]
    head = "".join(f"<th{kind}>{_breakable(column)}</th>" for column, kind in zip(columns, kinds, strict=True))
    lines = [
        "<tr>" + "".join(_table_cell(cell, kind) for cell, kind in zip(row, kinds, strict=True)) + "</tr>"
        for row in rows
    ]
    body = "\n".join(lines)
    return f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>'


def _breakable(name: str) -> str:
    """A column's name that may go over several lines."""
    return escape(name).replace("_", "_<wbr>")


def _table_cell(text: str, kind: str) -> str:
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
    """A drawing, as inline SVG from :meth:`ringlet.bench.plotting.Plot.inline_svg`, with its caption."""
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def folded(summary: str, *parts: str) -> str:
    """What is shown when asked for."""
    return f"<details><summary>{escape(summary)}</summary>\n" + "\n".join(parts) + "\n</details>"
