"""What was measured, for the documentation: tables and single figures from the newest results of the benchmarks.

In a page or the README::

    <!-- benchmark: training_speed; columns: network | batch | times float32; rows: simplecnn | unet -->
    <!-- end -->

becomes a table (all columns and rows without the options; ``caption: no`` leaves out date, machine and command;
``optional: yes`` is for what may not have been measured yet), and::

    <!-- figure: thread_scaling / vgg16_bn / Ringlet / gain --><!-- /figure -->

one cell: the benchmark, the first cells of the row, the column. ``*`` for the rows means all: from the least to the
largest. Columns in which nothing was measured are left out of tables.

Numbers that look measured and stand elsewhere are found by :func:`typed_figures`: they would contradict the next
measurement. Those that are none (limits, published values, examples) are in ``allowed_figures.toml``.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
ALLOWED = Path(__file__).parent / "allowed_figures.toml"
NOTHING = ("", "-")
UNIT = re.compile(r" x(?: \(.*\))?$")
"""What stands behind the number of a ratio: sentences have their own words for it."""
OPTIONS = ("columns", "rows", "caption", "optional")
FIGURE = re.compile(r"(<!-- figure: (.+?) -->).*?(<!-- /figure -->)", re.DOTALL)
GENERATED = re.compile(r"<!-- (?:table|benchmark): .+? -->\n.*?<!-- end -->", re.DOTALL)
CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
NUMBER = r"(?<![\w.,])\d[\d,]*(?:\.\d+)?"
TYPED = re.compile(
    rf"{NUMBER} ?x(?![\w/])"  # 1.8x
    rf"|{NUMBER} times (?:as |stock|native|PyTorch|DDP|Gloo)|(?<![\w.,])\d+\.\d+ times"
    rf"|{NUMBER} (?:samples|images|rows|steps|GFLOP|MFLOP)/s"
    rf"|{NUMBER} ?(?:us|µs|ms)\b|{NUMBER} s\b"
    rf"|{NUMBER} (?:MiB|GiB)\b"
    rf"|(?<![\w.,])\d+\.\d+ ?%"
    r"|^\|(?: ?:?-+:? ?\|)* ?-+: ?\|.*$",  # the line below the head of a table with numbers
    re.MULTILINE,
)


def newest(name: str, results: Path = RESULTS) -> dict[str, Any]:
    """The newest result of a benchmark, by its name or ``NAME.PART``."""
    files = sorted(results.glob(f"{name}-????-??-??.json"))
    if not files:
        benchmark = name.partition(".")[0]
        sys.exit(f"no results of the benchmark '{name}' in {results}: run `python -m benchmarks.{benchmark}`")
    found: dict[str, Any] = json.loads(files[-1].read_text(encoding="utf-8"))
    return found


def benchmark_table(request: str, results: Path = RESULTS) -> str:
    """The table that a marker asks for, and what it was measured with."""
    name, *words = (word.strip() for word in request.split(";"))
    options = {key.strip(): value.strip() for key, _, value in (word.partition(":") for word in words)}
    if unknown := options.keys() - set(OPTIONS):
        sys.exit(f"benchmark '{request}': unknown option {', '.join(sorted(unknown))}; known: {', '.join(OPTIONS)}")
    if options.get("optional") == "yes" and not list(results.glob(f"{name}-????-??-??.json")):
        return f"Not measured yet: `python -m benchmarks {name}`.\n"
    found = newest(name, results)
    columns, rows = list(found["columns"]), list(found["rows"])
    if "rows" in options:
        wanted = _split(options["rows"])
        rows = [row for row in rows if row[0] in wanted]
        _require(request, wanted, [row[0] for row in rows], "rows begin with")
    if "columns" in options:
        _require(request, _split(options["columns"]), columns, "columns are")
        columns = _split(options["columns"])
    places = [found["columns"].index(column) for column in columns]
    places = [place for place in places if any(row[place] not in NOTHING for row in rows)]
    table = markdown([found["columns"][place] for place in places], [[row[place] for place in places] for row in rows])
    return table if options.get("caption") == "no" else f"{table}\n{caption(found)}\n"


def _split(text: str) -> list[str]:
    return [word.strip() for word in text.split("|")]


def _require(request: str, wanted: Sequence[str], known: Sequence[str], what: str) -> None:
    if missing := [name for name in wanted if name not in known]:
        sys.exit(f"benchmark '{request}': nothing is called {', '.join(missing)}; {what}: {', '.join(known)}")


def caption(found: Mapping[str, Any]) -> str:
    """When, where and how it was measured."""
    machine = found["machine"]
    days = [day_text(day) for day in sorted(set(found.get("row_dates") or [found["date"]]))]
    place = [machine["processor"], f"{machine['cores']} cores", machine["instruction_set"]]
    note = "".join(
        f" {text}" for text in (found.get("source", "") and "Earlier measurement.", found.get("note")) if text
    )
    return f"{' and '.join(days)}, {', '.join(filter(None, place))}: `{found['command']}`.{note}"


def day_text(day: str) -> str:
    """``17 November 2026``."""
    parsed = date.fromisoformat(day)
    return f"{parsed.day} {parsed:%B %Y}"


def markdown(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; columns of numbers are right-aligned."""
    cells = [[str(cell).replace("|", "\\|") for cell in row] for row in rows]
    numeric = re.compile(r"[-+]?\d[\d,.]*.*|-|")
    rule = [
        "---:" if place and all(numeric.fullmatch(row[place]) for row in cells) else "---"
        for place in range(len(columns))
    ]
    return "".join("| " + " | ".join(line) + " |\n" for line in (columns, rule, *cells))


def figure(request: str, results: Path = RESULTS) -> str:
    """The cell that ``NAME / first cells … / COLUMN`` names."""
    name, *keys, column = (word.strip() for word in request.split(" / "))
    found = newest(name, results)
    if column not in found["columns"]:
        sys.exit(f"figure '{request}': no column '{column}'; columns are: {', '.join(found['columns'])}")
    place = found["columns"].index(column)
    rows = [row for row in found["rows"] if keys == ["*"] or list(row[: len(keys)]) == keys]
    if not rows:
        known = ["/".join(row[: found.get("num_keys", 1)]) for row in found["rows"]]
        sys.exit(f"figure '{request}': no row '{' / '.join(keys)}'; rows are: {', '.join(known)}")
    cells = sorted((row[place] for row in rows if row[place] not in NOTHING), key=_number)
    if not cells:
        return "-"
    least, most = (UNIT.sub("", cell) for cell in (cells[0], cells[-1]))
    return least if least == most else f"{least} to {most}"


def _number(cell: str) -> float:
    found = re.search(r"[-+]?\d[\d,]*(?:\.\d+)?", cell)
    return float(found[0].replace(",", "")) if found else 0.0


def with_figures(text: str, results: Path = RESULTS) -> str:
    """A page with its single figures as they are now."""
    return FIGURE.sub(lambda match: f"{match[1]}{figure(match[2], results)}{match[3]}", text)


def typed_figures(page: str, text: str, allowed: Sequence[Mapping[str, str]]) -> list[str]:
    """Lines of a page with numbers that look measured, are not generated and not allowed; and useless permissions."""
    entries = [entry for entry in allowed if entry["page"] == page]
    problems = [
        f"{page}: allowed text '{entry['text']}' is not there" for entry in entries if entry["text"] not in text
    ]
    for generated in (GENERATED, FIGURE, CODE, COMMENT):
        text = generated.sub(_blank, text)
    for entry in entries:
        pattern = re.escape(entry["text"])
        if entry["text"].startswith("#"):
            pattern = rf"^{pattern}$.*?(?=^#|\Z)"
        text = re.sub(pattern, _blank, text, flags=re.MULTILINE | re.DOTALL)
    lines = text.splitlines()
    for match in TYPED.finditer(text):
        line = text.count("\n", 0, match.start())
        problems.append(f"{page}:{line + 1}: '{match[0].strip()}' in: {lines[line].strip()[:100]}")
    return problems


def allowed_figures(path: Path = ALLOWED) -> list[dict[str, str]]:
    """Texts with numbers that no benchmark measures, with the reason."""
    found: list[dict[str, str]] = []
    for page, entries in tomllib.loads(path.read_text(encoding="utf-8")).items():
        for text, reason in entries.items():
            if not reason.strip():
                sys.exit(f"{path.name}: '{text}' of {page} is allowed without a reason")
            found.append({"page": page, "text": text, "reason": reason})
    return found


def _blank(match: re.Match[str]) -> str:
    return _blank_text(match[0])


def _blank_text(text: str) -> str:
    """As many lines without anything on them."""
    return re.sub(r"[^\n]", " ", text)
