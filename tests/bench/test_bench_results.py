"""Results of benchmarks are dated files with their machine, and tables of the documentation come from them."""

from __future__ import annotations

import argparse
import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_newest_result_becomes_a_table(tmp_path: Path, capsys, monkeypatch) -> None:
    common, docs = load("benchmarks/common.py"), load("scripts/update_docs.py")
    monkeypatch.setattr(common, "RESULTS", tmp_path)
    given = argparse.Namespace(output=None, rounds=2)
    common.report(given, "speed", ("what", "ms"), [("a step", 7)], steps=[0.007])
    (file,) = tmp_path.iterdir()
    stored = json.loads(file.read_text())
    assert (stored["benchmark"], stored["options"], stored["steps"]) == ("speed", {"rounds": 2}, [0.007])
    assert stored["machine"]["versions"]["ringlet"]
    assert "| a step |  7 |" in capsys.readouterr().out
    older = {**stored, "date": "2001-02-03", "rows": [["an old step", "9"]]}
    (tmp_path / "speed-2001-02-03.json").write_text(json.dumps(older))
    table = docs.benchmark_table("speed", tmp_path)
    assert "| a step | 7 |" in table
    assert stored["machine"]["processor"] in table
    file.unlink()
    assert "3 February 2001" in docs.benchmark_table("speed", tmp_path)


def test_a_benchmark_without_results_is_named(tmp_path: Path) -> None:
    docs = load("scripts/update_docs.py")
    with pytest.raises(SystemExit, match=r"python -m benchmarks\.nothing"):
        docs.benchmark_table("nothing", tmp_path)


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks").glob("*.py")), ids=lambda path: path.stem)
def test_every_benchmark_keeps_its_results_under_its_name(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    if "__main__" in text:
        assert f'report(given, "{path.stem}", ' in text
