"""The last evaluation on the page of a run: what is taken of its report, and how a browser shows it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hostile import hostile_values
from hypothesis import given, settings
from hypothesis import strategies as st
from watched import LoggedRun, Watched

from ringlet.cli.main import main
from ringlet.comm.single import SingleCommunicator
from ringlet.data.source import ArraySource
from ringlet.evaluation.report import make_report, make_tally
from ringlet.watch.evaluation import LastEvaluation, page_document

HOSTILE = "<script>window.hacked = 1</script>"
SETTLED = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))"
OUTSIDE = """[...document.querySelectorAll('#evaluation > *')].filter(part =>
  part.getBoundingClientRect().right > part.parentElement.getBoundingClientRect().right).length"""
"""Parts that reach over the edge of their card."""


def write_report(run: Path, num_classes: int) -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(0, num_classes, 400)
    outputs = rng.random((400, num_classes)) + 1.5 * np.eye(num_classes)[truth] * rng.random((400, 1))
    images = rng.integers(0, 256, (400, 3, 16, 16), dtype=np.uint8)
    names = [f"{HOSTILE} {index}" for index in range(num_classes)]
    tally = make_tally("classification", names, num_classes)
    tally.take(np.arange(400), outputs / outputs.sum(axis=1, keepdims=True), truth)
    source = ArraySource(images, truth, num_classes)
    metrics = {"accuracy": 0.75, "loss": 0.5}
    report = make_report(tally, source, metrics, SingleCommunicator(), split="test", dataset="animals")
    report.write(run / "evaluation")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with a log and no evaluation."""
    logged = LoggedRun(tmp_path / "run")
    logged.epoch(1)
    return logged.path


def test_a_report_is_read_again_when_it_was_written_again(run):
    evaluation = LastEvaluation(run)
    assert evaluation.document() is None
    write_report(run, 3)
    assert len(evaluation.document()["rows"]) == 3
    assert evaluation.document() is evaluation.document()
    write_report(run, 4)
    assert len(evaluation.document()["matrix"]) == 4
    (run / "evaluation" / "report.json").unlink()
    assert evaluation.document() is None


def test_only_pictures_of_an_evaluation_are_given_out(run):
    write_report(run, 3)
    evaluation = LastEvaluation(run)
    assert evaluation.sheet("most_confident_wrong").startswith(b"\x89PNG")
    assert [evaluation.sheet(name) for name in ("worst", "../../secret", "report")] == [None] * 3


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The text of a usual report."""
    run = tmp_path_factory.mktemp("usual")
    write_report(run, 3)
    return (run / "evaluation" / "report.json").read_text()


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_report_becomes_a_document_or_none(data, usual):
    report = json.loads(usual)
    for name in data.draw(st.lists(st.sampled_from(sorted(report)), min_size=1, max_size=4)):
        report[name] = data.draw(hostile_values)
    document = page_document(json.dumps(report).encode("utf-8", "surrogatepass"), 1.0)
    assert len(json.dumps(document, allow_nan=False)) < 1_000_000


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"task": 3}', b"[" * 100_000])
def test_what_is_no_report_is_not_shown(content):
    assert page_document(content, 1.0) is None


@pytest.mark.xdist_group("browser")
@pytest.mark.parametrize(("num_classes", "shown"), [(10, "td"), (60, "td"), (120, "li")])
def test_a_browser_shows_scores_confusion_and_pictures(browser, run, num_classes, shown):
    write_report(run, num_classes)
    with Watched(run) as watched:
        browser.open(watched.address)
        browser.wait_for("!document.querySelector('#evaluation').hidden")
        count = f"document.querySelectorAll('#evaluation .matrix {shown}').length"
        assert browser.evaluate(count) == (20 if shown == "li" else num_classes**2)
        rows = "document.querySelectorAll('#evaluation > .scroll tbody tr').length"
        assert browser.evaluate(rows) == num_classes + 2
        browser.wait_for(
            "[...document.querySelectorAll('#evaluation img')].filter(i => i.naturalWidth > 0).length === 2"
        )
        assert browser.evaluate("document.querySelectorAll('#evaluation .reliability .column').length") == 15
        assert "animals" in browser.evaluate("document.querySelector('#evaluation h2').textContent")
        for width in (1700, 420):
            browser.resize(width)
            browser.evaluate(SETTLED)
            assert browser.evaluate("document.querySelector('#evaluation').getBoundingClientRect().right") <= width
            assert browser.evaluate(OUTSIDE) == 0
        assert browser.evaluate("window.hacked") is None
        assert browser.complaints == []


@pytest.mark.xdist_group("browser")
def test_a_saved_page_has_the_pictures_of_the_evaluation_inside(browser, run, tmp_path, capsys):
    write_report(run, 5)
    assert main(["watch", str(run), "--save", str(tmp_path / "page.html")]) == 0
    browser.open((tmp_path / "page.html").as_uri())
    browser.wait_for("[...document.querySelectorAll('#evaluation img')].filter(i => i.naturalWidth > 0).length === 2")
    assert browser.complaints == []
