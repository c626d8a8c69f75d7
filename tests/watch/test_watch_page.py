"""The page in a real browser."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from browser import Browser
from watched import STEPS, LoggedRun, Watched

from ringlet.cli.main import main
from ringlet.config import RunConfig
from ringlet.training.run import Run

pytestmark = pytest.mark.xdist_group("browser")
HOSTILE = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"
POINTS = "Runs.all[0].series.get('step:loss').y.length"
PAINTED = """[...document.querySelectorAll('.chart canvas')].filter(canvas => {
  const image = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  return new Uint32Array(image.data.buffer).some(pixel => pixel !== 0);
}).length"""
DRAWN = "[...Charts.made.get('figure:loss').plot.data[1]].filter(value => value !== null && value !== undefined).length"


def charts(browser: Browser) -> list[str]:
    return browser.evaluate("[...document.querySelectorAll('.chart h2')].map(title => title.textContent)")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a real run that learned masks, so that it has pictures."""
    path = tmp_path_factory.mktemp("real") / "run"
    config = RunConfig(
        model="unet", model_options={"levels": 2, "width": 4}, dataset="shapes", num_samples=24, image_size=(16, 16),
        num_epochs=2, run_dir=str(path), threads=1,
    )  # fmt: skip
    Run(config).execute()
    return path


def test_a_finished_run_is_shown(browser, trained):
    with Watched(trained) as watched:
        browser.open(watched.address)
        browser.wait_for("document.querySelectorAll('.chart').length === 6")
        assert browser.wait_for("document.querySelector('#title .chip').textContent") == "finished"
        assert charts(browser) == ["loss", "dice", "iou", "learning rate", "samples per second", "share of time"]
        assert browser.evaluate(PAINTED) == 6
        assert browser.evaluate(POINTS) == browser.evaluate(DRAWN) == browser.evaluate("Runs.one.status.step") > 2
        assert browser.wait_for("document.querySelector('#pictures img').naturalWidth > 0")
        assert browser.evaluate("document.querySelectorAll('#ranks .rank').length") == 1
        assert browser.evaluate("document.querySelectorAll('#checkpoints tbody tr').length") == 1
        assert "finished" in browser.evaluate("document.querySelector('#notes li p').textContent")
        for axis in ("epoch", "time"):
            browser.evaluate(f"document.querySelector('[data-axis={axis}]').click()")
            last = browser.evaluate("Charts.made.get('figure:loss').plot.data[0].at(-1)")
            assert last == browser.evaluate(f"Runs.last(Runs.one, 'axis:{axis}')")
        before = browser.evaluate("getComputedStyle(document.body).backgroundColor")
        browser.evaluate("document.querySelector('#theme').click(); document.querySelector('#logarithmic').click()")
        assert browser.evaluate("getComputedStyle(document.body).backgroundColor") != before
        assert browser.complaints == []
        assert browser.requests
        assert [url for url in browser.requests if not url.startswith((watched.address, "data:"))] == []


def test_a_live_page_follows_a_run_that_grows_is_cut_and_ends(browser, tmp_path):
    run = LoggedRun(tmp_path / HOSTILE.replace("/", "∕"), model=HOSTILE)
    with Watched(run.path) as watched:
        browser.open(watched.address)
        browser.wait_for("document.querySelector('#tiles .value').textContent === '0 / 5'")
        for epoch in (1, 2):
            run.epoch(epoch)
            browser.wait_for(f"{DRAWN} === {epoch * STEPS}")
        kept = run.events.stat().st_size
        run.epoch(3, loss=float("nan"))
        browser.wait_for(f"{POINTS} === {3 * STEPS} && {DRAWN} === {2 * STEPS}")
        os.truncate(run.events, kept)
        run.step = 2 * STEPS
        run.resume(HOSTILE)
        run.epoch(3)
        browser.wait_for(f"{DRAWN} === {3 * STEPS}")
        restart = "[...document.querySelectorAll('#notes li.bad p')].map(note => note.textContent)"
        assert browser.evaluate(restart) == [f"restart 1: {HOSTILE}"]
        run.end()
        browser.wait_for("document.querySelector('#title .chip').textContent === 'finished'")
        assert HOSTILE in browser.evaluate("document.querySelector('#subtitle').textContent")
        assert browser.evaluate("window.hacked === undefined && document.querySelectorAll('img').length === 1")
        assert browser.complaints == []
        assert [url for url in browser.requests if not url.startswith((watched.address, "data:"))] == []


def test_the_saved_page_of_several_runs_works_from_its_file(browser, trained, tmp_path, capsys):
    run = LoggedRun(tmp_path / f"</script>{HOSTILE}".replace("/", "∕"), model=f"</script>{HOSTILE}")
    run.epoch(1)
    run.stale(1)
    page = tmp_path / "page.html"
    assert main(["watch", str(trained), str(run.path), "--save", str(page)]) == 0
    assert capsys.readouterr().out.strip() == str(page)
    browser.open(page.as_uri())
    browser.wait_for("Runs.all.length === 2 && document.querySelectorAll('.chart').length === 8")
    assert charts(browser)[0] == "loss"
    assert browser.evaluate(PAINTED) == 8
    assert browser.evaluate("[...document.querySelectorAll('nav button')].length") == 2
    assert browser.wait_for("document.querySelector('#pictures img').naturalWidth > 0")
    browser.evaluate("document.querySelectorAll('nav button')[1].click()")
    assert browser.evaluate("document.querySelectorAll('#staleness .columns div').length") == 4
    assert HOSTILE in browser.evaluate("document.querySelector('#subtitle').textContent")
    assert browser.evaluate("window.hacked") is None
    assert browser.complaints == []
    assert {url.partition(":")[0] for url in browser.requests} <= {"file", "data"}


def test_a_long_log_is_thinned_for_the_saved_page(browser, tmp_path):
    run = LoggedRun(tmp_path / "long", num_epochs=3000)
    for epoch in range(1, 1001):
        run.epoch(epoch)
    page = tmp_path / "page.html"
    assert main(["watch", str(run.path), "--save", str(page)]) == 0
    assert page.stat().st_size < run.events.stat().st_size / 2
    browser.open(page.as_uri())
    assert 1000 < browser.wait_for(f"document.querySelector('canvas') && {POINTS}") <= 4000
    assert browser.evaluate("Runs.last(Runs.one, 'step:loss')") == pytest.approx(1 / 10_000)
