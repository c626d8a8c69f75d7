"""Results of benchmarks are dated files with their machine; a run of some cases joins the newest of them."""

from __future__ import annotations

import argparse
import ast
import json
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
from benchmarks import common, documents
from benchmarks.__main__ import PARTS
from benchmarks.documents import Table

ROOT = Path(__file__).resolve().parents[2]
OPTIONAL = ("ringlet.kernels.bfloat16",)
"""What benchmarks look for before they import it."""
RESULTS = sorted((ROOT / "benchmarks" / "results").glob("*.json"))


def given(**options: object) -> argparse.Namespace:
    return argparse.Namespace(**{"output": None, "merge": False, "rounds": 2, "defaults": {"rounds": 5}, **options})


def saved(folder: Path, rows: list[tuple[object, ...]], **options: object) -> dict[str, object]:
    table = Table("speed", ("network", "batch", "ms"), rows, num_keys=2, details={"results": {str(rows[0][0]): 1.0}})
    return json.loads(documents.save(table, given(**options), folder).read_text(encoding="utf-8"))


def test_a_report_is_printed_and_kept_with_its_machine(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(documents, "RESULTS", tmp_path)
    common.report(given(), "speed", ("what", "ms"), [("a step", 7)], part="small", steps=[0.0070000001])
    (file,) = tmp_path.iterdir()
    stored = json.loads(file.read_text())
    assert file.name == f"speed.small-{stored['date']}.json"
    assert (stored["benchmark"], stored["options"], stored["steps"]) == ("speed.small", {"rounds": 2}, [0.007])
    assert stored["command"] == "python -m benchmarks.speed --rounds 2"
    assert stored["machine"]["versions"]["ringlet"]
    assert "| a step |  7 |" in capsys.readouterr().out


def test_places_on_this_machine_are_no_part_of_the_command(tmp_path: Path) -> None:
    stored = saved(tmp_path, [("a", 1, 2.0)], path="/data/mnist", prefix=tmp_path, workers=[2, 4], verbose=True)
    assert stored["command"] == "python -m benchmarks.speed PATH --rounds 2"
    assert stored["options"] == {"rounds": 2, "workers": [2, 4], "verbose": True}
    defaults = {"rounds": 2, "workers": [2], "verbose": False}
    stored = saved(tmp_path, [("a", 1, 2.0)], workers=[2, 4], verbose=True, defaults=defaults)
    assert stored["command"] == "python -m benchmarks.speed --workers 2 4 --verbose"


def test_some_cases_replace_their_rows_and_keep_the_others_with_their_dates(tmp_path: Path) -> None:
    first = saved(tmp_path, [("a", 1, 9.0), ("a", 4, 8.0), ("b", 1, 7.0)])
    older = {**first, "date": "2001-02-03"}
    (tmp_path / f"speed-{first['date']}.json").unlink()
    (tmp_path / "speed-2001-02-03.json").write_text(json.dumps(older))
    merged = saved(tmp_path, [("a", 4, 5.0), ("c", 1, 6.0)], merge=True)
    assert merged["rows"] == [["a", "1", "9.0"], ["a", "4", "5.0"], ["b", "1", "7.0"], ["c", "1", "6.0"]]
    assert merged["row_dates"] == ["2001-02-03", first["date"], "2001-02-03", first["date"]]
    again = saved(tmp_path, [("b", 1, 1.0)], merge=True)
    assert again["row_dates"] == ["2001-02-03", first["date"], first["date"], first["date"]]
    assert again["results"] == {"a": 1.0, "b": 1.0}


def test_results_with_other_columns_are_not_merged(tmp_path: Path) -> None:
    saved(tmp_path, [("a", 1, 9.0)])
    table = Table("speed", ("network", "batch", "seconds"), [("a", 1, 1)], num_keys=2)
    with pytest.raises(SystemExit, match=r"other columns \(network, batch, ms\)\. Run the whole benchmark"):
        documents.save(table, given(merge=True), tmp_path)


def test_documents_are_json_with_a_line_for_each_row() -> None:
    document = {"rows": [["a", "1"], ["b", "2"]], "results": {"a": {"median": 0.123456789}}}
    text = documents.to_text(document)
    assert json.loads(text) == {"rows": [["a", "1"], ["b", "2"]], "results": {"a": {"median": 0.12346}}}
    assert '  ["a", "1"],\n' in text


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_kept_results_are_small_and_complete(path: Path) -> None:
    stored = json.loads(path.read_text(encoding="utf-8"))
    assert path.name == f"{stored['benchmark']}-{stored['date']}.json"
    assert all(len(row) == len(stored["columns"]) for row in stored["rows"])
    keys = [tuple(row[: stored["num_keys"]]) for row in stored["rows"]]
    assert len(set(keys)) == len(keys)
    assert len(documents.row_dates(stored)) == len(stored["rows"])
    assert {"processor", "cores", "instruction_set"} <= stored["machine"].keys()
    assert path.stat().st_size < 100_000


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks").glob("*.py")), ids=lambda path: path.stem)
def test_every_benchmark_keeps_its_results_under_its_name(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    if "__main__" in text and path.stem not in ("__main__", "gloo_alone"):
        assert f'report(given, "{path.stem}", ' in text


@pytest.mark.parametrize("name", PARTS)
def test_every_part_is_a_benchmark_and_is_in_the_documentation(name: str) -> None:
    benchmark = PARTS[name].words.split()[0]
    assert benchmark == name.partition(".")[0]
    assert (ROOT / "benchmarks" / f"{benchmark}.py").is_file()
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    assert any(f"<!-- benchmark: {name}" in page.read_text(encoding="utf-8") for page in pages)


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks").glob("*.py")), ids=lambda path: path.stem)
def test_benchmarks_import_what_ringlet_has(path: Path) -> None:
    wanted = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
    for node in wanted:
        name = node.module or ""
        if name.partition(".")[0] == "ringlet" and name not in OPTIONAL:
            module = import_module(name)
            missing = [
                entry.name for entry in node.names if not hasattr(module, entry.name) and not _is_module(name, entry)
            ]
            assert missing == [], name


def _is_module(package: str, entry: ast.alias) -> bool:
    return f"{package}.{entry.name}" in OPTIONAL or find_spec(f"{package}.{entry.name}") is not None
