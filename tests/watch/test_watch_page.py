"""The page in a real browser."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest
from browser import Browser
from watched import STEPS, LoggedRun, Watched

from ringlet.cli.main import main
from ringlet.config import RunConfig
from ringlet.training.events import EpochStarted, EventLog, PhasesMeasured, StepFinished
from ringlet.training.session import Session

pytestmark = pytest.mark.xdist_group("browser")
HOSTILE = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"
POINTS = "Runs.all[0].series.get('step:loss').y.length"
PAINTED = """[...document.querySelectorAll('.chart canvas')].filter(canvas => {
  const image = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  return new Uint32Array(image.data.buffer).some(pixel => pixel !== 0);
}).length"""
DRAWN = "[...Charts.made.get('metric:loss').plot.data[1]].filter(value => value !== null && value !== undefined).length"


OUTSIDE = """[...document.querySelectorAll('.chart')].flatMap(card => {
  const frame = card.getBoundingClientRect();
  return [...card.querySelectorAll('canvas, .u-wrap, .u-legend')].filter(part => {
    const own = part.getBoundingClientRect();
    return own.left < frame.left || own.right > frame.right + 0.5 || own.bottom > frame.bottom + 0.5;
  }).map(part => card.querySelector('h2').textContent + ': ' + part.className);
})"""
"""What is drawn over the edge of its card."""
NARROW = """[...document.querySelectorAll('.chart')].filter(card =>
  card.querySelector('.u-wrap').getBoundingClientRect().width < 0.8 * card.clientWidth).length"""
"""Cards of which a large part is left empty."""
SETTLED = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(() => done(1), 50))))"


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
    Session.open(config).run()
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
            last = browser.evaluate("Charts.made.get('metric:loss').plot.data[0].at(-1)")
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


class TestLayout:
    """A page that stays open while its window and its data change: headless pictures lay it out once, and hide this."""

    WIDTHS = (1280, 1600, 1920, 700, 380, 2560, 1024)

    def check(self, browser: Browser) -> None:
        browser.evaluate(SETTLED)
        assert browser.evaluate(OUTSIDE) == []
        assert browser.evaluate(NARROW) == 0
        assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth"), "it scrolls sideways"

    @pytest.mark.parametrize("width", WIDTHS)
    def test_charts_fit_their_cards_when_the_page_opens(self, browser, trained, width):
        with Watched(trained) as watched:
            browser.open("about:blank")
            browser.resize(width)
            browser.open(watched.address)
            browser.resize(width)
            browser.wait_for("document.querySelectorAll('.chart').length === 6")
            self.check(browser)

    def test_charts_fit_when_they_come_one_after_the_other_and_the_window_changes(self, browser, tmp_path):
        run = LoggedRun(tmp_path / "run", model="a-network-with-a-very-long-name-" * 8)
        with Watched(run.path) as watched:
            browser.open(watched.address)
            browser.resize(1700)
            run.tell(EpochStarted(1, 5, 3, 90))
            for number in range(1, 4):
                metrics = {f"a metric with a long name, number {place}": 0.5 for place in range(number)}
                run.tell(StepFinished(1, number, number, 9, 0.01, {"loss": 1.0, **metrics}, {}))
                browser.wait_for(f"document.querySelectorAll('.chart').length >= {number + 1}")
                self.check(browser)
            for width in self.WIDTHS:
                browser.resize(width)
                self.check(browser)

    def test_many_ranks_and_many_points_fit_too(self, browser, tmp_path):
        run = LoggedRun(tmp_path / "run")
        run.epoch(1)
        run.tell(PhasesMeasured(1, ("forward", "wait"), tuple((1.0, rank / 64) for rank in range(64))))
        steps = [
            StepFinished(2, 10 + step, step, 9, 0.01, {"loss": 1 / step, "accuracy": 0.5}, {})
            for step in range(1, 100_001)
        ]
        with closing(EventLog(run.events, clock=iter(range(1_700_001_000, 1_800_000_000)).__next__)) as log:
            for step in steps:
                log(step)
        with Watched(run.path) as watched:
            browser.open(watched.address)
            browser.resize(1600)
            browser.wait_for("Runs.one.status.step === 100010")
            self.check(browser)
            browser.resize(900)
            self.check(browser)
