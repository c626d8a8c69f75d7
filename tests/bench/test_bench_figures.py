"""Tables and figures of the documentation come from the newest results, and numbers that were typed are found."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import figures
import pytest
import update_docs

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Two results of one benchmark, the newer with an unmeasured column."""
    machine = {"processor": "Fast One", "cores": 2, "instruction_set": "x86_64_v4"}
    rows = [["a", "1", "1.50 x", "-", "12"], ["a", "4", "2.00 x", "-", "1,000"], ["b", "1", "0.90 x", "-", "-"]]
    newer: dict[str, Any] = {
        "benchmark": "speed",
        "date": "2026-11-18",
        "command": "python -m benchmarks.speed",
        "machine": machine,
        "num_keys": 2,
        "columns": ["network", "batch", "times", "bf16", "samples/s"],
        "rows": rows,
    }
    (tmp_path / "speed-2026-11-18.json").write_text(json.dumps(newer))
    (tmp_path / "speed-2026-11-02.json").write_text(json.dumps({**newer, "date": "2026-11-02", "rows": []}))
    (tmp_path / "speed.two-2026-11-19.json").write_text(json.dumps({**newer, "benchmark": "speed.two"}))
    return tmp_path


def test_a_table_has_what_was_measured_and_says_when_and_where(results: Path) -> None:
    assert figures.benchmark_table("speed", results) == (
        "| network | batch | times | samples/s |\n| --- | ---: | ---: | ---: |\n"
        "| a | 1 | 1.50 x | 12 |\n| a | 4 | 2.00 x | 1,000 |\n| b | 1 | 0.90 x | - |\n\n"
        "18 November 2026, Fast One, 2 cores, x86_64_v4: `python -m benchmarks.speed`.\n"
    )


def test_a_table_may_have_some_columns_and_rows(results: Path) -> None:
    request = "speed; columns: network | samples/s; rows: a; caption: no"
    assert figures.benchmark_table(request, results) == (
        "| network | samples/s |\n| --- | ---: |\n| a | 12 |\n| a | 1,000 |\n"
    )


def test_rows_of_several_days_and_older_sources_are_told(results: Path) -> None:
    path = results / "speed-2026-11-18.json"
    stored = json.loads(path.read_text())
    stored |= {
        "row_dates": ["2026-11-18", "2026-11-17", "2026-11-18"],
        "source": "earlier measurement",
        "note": "Two runs.",
    }
    path.write_text(json.dumps(stored))
    last = figures.benchmark_table("speed", results).splitlines()[-1]
    assert last.startswith("17 November 2026 and 18 November 2026, Fast One")
    assert last.endswith("`python -m benchmarks.speed`. Earlier measurement. Two runs.")


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ("nothing", r"python -m benchmarks\.nothing"),
        ("nothing.part", r"python -m benchmarks\.nothing`"),
        ("speed; columns: network | price", "nothing is called price; columns are: network, batch"),
        ("speed; rows: c", "nothing is called c; rows begin with"),
        ("speed; colums: network", "unknown option colums; known: columns, rows"),
    ],
)
def test_a_table_of_something_unknown_is_an_error_that_says_what_there_is(
    results: Path, request_: str, message: str
) -> None:
    with pytest.raises(SystemExit, match=message):
        figures.benchmark_table(request_, results)


def test_what_may_be_unmeasured_says_how_to_measure_it(results: Path) -> None:
    text = figures.benchmark_table("speed.three; optional: yes", results)
    assert text == "Not measured yet: `python -m benchmarks speed.three`.\n"
    assert "| a | 1 |" in figures.benchmark_table("speed; optional: yes", results)


@pytest.mark.parametrize(
    ("request_", "cell"),
    [
        ("speed / a / 4 / times", "2.00"),
        ("speed / a / samples/s", "12 to 1,000"),
        ("speed / * / times", "0.90 to 2.00"),
        ("speed / b / 1 / samples/s", "-"),
        ("speed.two / b / 1 / times", "0.90"),
    ],
)
def test_a_figure_is_a_cell_or_the_range_of_cells(results: Path, request_: str, cell: str) -> None:
    assert figures.figure(request_, results) == cell


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ("speed / a / 4 / price", "no column 'price'; columns are"),
        ("speed / c / times", "no row 'c'; rows are: a/1, a/4"),
    ],
)
def test_a_figure_that_is_not_there_is_an_error(results: Path, request_: str, message: str) -> None:
    with pytest.raises(SystemExit, match=message):
        figures.figure(request_, results)


def test_a_ratio_in_a_sentence_has_neither_its_sign_nor_its_spread(results: Path) -> None:
    path = results / "speed-2026-11-18.json"
    path.write_text(path.read_text().replace("1.50 x", "1.50 x (1.40 to 1.60)"))
    assert figures.figure("speed / a / 1 / times", results) == "1.50"


def test_figures_in_sentences_follow_the_results(results: Path) -> None:
    text = "It is <!-- figure: speed / a / 1 / times -->9.99<!-- /figure --> times as fast."
    assert figures.with_figures(text, results) == text.replace("9.99", "1.50")


@pytest.mark.parametrize(
    "text",
    [
        "is 1.8x as fast",
        "reached 1.87 x",
        "12,000 samples/s",
        "took 1.30 times as long",
        "in 22 us",
        "after 0.07 s",
        "and 7 s on one",
        "peaks at 346 MiB",
        "98.43 % right",
        "runs at 109 GFLOP/s",
        "| a | b |\n| --- | ---: |\n| x | 5 |",
    ],
)
def test_a_typed_figure_is_found(text: str) -> None:
    (problem,) = figures.typed_figures("docs/page.md", f"# Title\n\n{text}\n", [])
    assert problem.startswith(("docs/page.md:3:", "docs/page.md:4:"))


@pytest.mark.parametrize(
    "text",
    [
        "images of 128x128 pixels, 3x3 kernels",
        "```\n1.8x, 12 ms\n```",
        "`--stall-seconds 30 s`",
        "<!-- benchmark: speed -->\n| 1.5 x |\n<!-- end -->",
        "<!-- figure: speed / a / times -->1.5<!-- /figure --> times as fast",
        "16 lanes, 3 % of the time, x86_64_v4",
        "| a | b |\n| --- | --- |\n| x | y |",
    ],
)
def test_what_is_generated_shown_or_no_measurement_is_not(text: str) -> None:
    assert figures.typed_figures("docs/page.md", f"# Title\n\n{text}\n", []) == []


def test_numbers_that_are_allowed_stay_and_useless_permissions_are_found() -> None:
    text = "# Title\n\nAfter 30 s it ends.\n\n## Old\n\nIt took 9 ms.\n\n## New\n\nIt took 8 ms.\n"
    allowed = [{"page": "a.md", "text": "After 30 s"}, {"page": "a.md", "text": "## Old"}]
    (problem,) = figures.typed_figures("a.md", text, allowed)
    assert problem.startswith("a.md:11: '8 ms'")
    assert figures.typed_figures("b.md", "nothing", [{"page": "b.md", "text": "5 s"}]) == [
        "b.md: allowed text '5 s' is not there"
    ]


def test_every_permission_has_a_reason(tmp_path: Path) -> None:
    file = tmp_path / "allowed.toml"
    file.write_text('["a.md"]\n"5 s" = " "\n')
    with pytest.raises(SystemExit, match=r"'5 s' of a\.md is allowed without a reason"):
        figures.allowed_figures(file)


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        ("<!-- benchmark: startup; caption: no -->\n| what | median ms |\n<!-- end -->\n", "not those of the code and"),
        ("<!-- figure: startup / import ringlet / median ms -->0<!-- /figure -->\n", "not those of the code and"),
        ("It is 1.8x as fast.\n", r"figures that were typed.*\n.*README.md:1: '1.8x'"),
    ],
)
def test_the_check_fails_on_a_page_that_differs_from_its_results(
    page: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "README.md").write_text(page)
    monkeypatch.setattr(update_docs, "ROOT", tmp_path)
    monkeypatch.setattr(update_docs, "DOCS", tmp_path / "docs")
    monkeypatch.setattr(update_docs, "allowed_figures", list)
    monkeypatch.setattr(sys, "argv", ["update_docs.py", "--check"])
    with pytest.raises(SystemExit, match=reason):
        update_docs.main()
    if "typed" not in reason:
        monkeypatch.setattr(sys, "argv", ["update_docs.py"])
        update_docs.main()
        monkeypatch.setattr(sys, "argv", ["update_docs.py", "--check"])
        update_docs.main()


def test_benchmarks_list_their_parts() -> None:
    command = [sys.executable, "-m", "benchmarks", "--list", "exchange", "memory"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True).stdout
    assert [line.split("|")[2].strip() for line in listed.splitlines()[2:]] == [
        "python -m benchmarks.exchange",
        "python -m benchmarks.memory",
    ]
