"""What runs show: every epoch in files, one line that fits on terminals, one output in notebooks, nothing elsewhere."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from ringlet import Trainer
from ringlet.errors import ConfigError
from ringlet.training.display import LiveDisplay, PlainDisplay, display_for, fitting
from ringlet.training.events import (
    EpochFinished,
    EpochResumed,
    EpochStarted,
    Event,
    StepFinished,
    TrainingFinished,
    ValidationStarted,
)
from ringlet.training.metric_text import joined, time_left
from ringlet.training.notebook import NotebookDisplay

METRICS = {"loss": 0.12345, "accuracy": 0.98765, "top5_accuracy": 1.0}
OPTIONS: dict[str, Any] = {"model": "simplemlp", "kernels": "reference", "steps_per_epoch": 2, "threads": 1}


def run_of(epochs: int, steps: int = 10) -> Iterator[Event]:
    """The events of a run with batches of a hundred samples."""
    validated = {**METRICS, **{f"val_{name}": value for name, value in METRICS.items()}}
    for epoch in range(1, epochs + 1):
        yield EpochStarted(epoch, epochs, steps, 100 * steps)
        for step in range(1, steps + 1):
            yield StepFinished(epoch, step, step, 100, 0.1, METRICS, METRICS)
        yield ValidationStarted(epoch, 100)
        yield EpochFinished(epoch, epochs, epoch * steps, validated, 0.1, 100 * steps, 12.5, 1.0, 80.0)
    yield TrainingFinished(epochs, epochs * steps, 100, 1.0, 80.0)


class Clock:
    """A second passes between two looks."""

    def __init__(self, tick: float = 1.0) -> None:
        self.now, self.tick = 0.0, tick

    def __call__(self) -> float:
        self.now += self.tick
        return self.now


def test_a_file_gets_a_line_for_every_epoch_however_fast_they_are() -> None:
    text = io.StringIO()
    display = PlainDisplay(Console(file=text, width=160), clock=Clock(1e-3))
    for event in run_of(100, steps=2):
        display(event)
    lines = text.getvalue().splitlines()
    assert [re.match(r"Epoch +(\d+)/100: 200 samples in 12.50 s", line)[1] for line in lines] == [
        str(number) for number in range(1, 101)
    ]


def test_long_epochs_tell_how_far_they_are_and_how_long_the_run_will_take() -> None:
    text = io.StringIO()
    display = PlainDisplay(Console(file=text, width=160), clock=Clock(2.0))
    for event in run_of(2):
        display(event)
    within = [line for line in text.getvalue().splitlines() if "/1000 samples" in line]
    assert len(within) > 2
    assert all(
        re.search(r"Epoch \d/2: \d+/1000 samples, [\d,]+ samples/s, loss: .*, \d+:\d\d left$", own) for own in within
    )


@pytest.mark.parametrize("width", [80, 100, 140])
def test_the_bar_is_one_line_that_fits_and_keeps_the_time_left(width: int) -> None:
    text = io.StringIO()
    console = Console(file=text, width=width, force_terminal=True, color_system=None, legacy_windows=False)
    display = LiveDisplay(console, clock=Clock())
    bars = []
    for event in run_of(2):
        display(event)
        if isinstance(event, StepFinished):
            drawn = io.StringIO()
            Console(file=drawn, width=width).print(display._bar())
            bars.append(drawn.getvalue().rstrip("\n"))
    assert all(len(bar) <= width and "\n" not in bar for bar in bars)
    assert all(re.search(r"\d+:\d\d left *$", bar) for bar in bars)
    assert all("loss: 0.12345" in bar for bar in bars)
    assert ("samples/s" in bars[-1]) == (width >= 100)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", text.getvalue())
    finished = re.findall(r"Epoch \d/2: .*(?:\n  .*)*", plain)
    assert len(finished) == 2
    assert all(len(line) <= width for entry in finished for line in entry.splitlines())


def test_a_resumed_epoch_counts_from_where_it_was() -> None:
    display = LiveDisplay(Console(file=io.StringIO(), width=100, force_terminal=True), clock=Clock())
    display(EpochResumed(2, 4, 10, 1000, 5, 500))
    display(StepFinished(2, 16, 6, 100, 0.1, METRICS, METRICS))
    assert display._position.done == 600
    display.close()


def test_parts_are_left_out_from_the_speed_on_and_lines_break_between_values() -> None:
    parts = ("9 samples/s", "loss: 1.00000", "acc: 99.00%", "0:01 left")
    assert fitting(parts, 100) == list(parts)
    assert fitting(parts, 40) == ["loss: 1.00000", "acc: 99.00%", "0:01 left"]
    assert fitting(parts, 30) == ["loss: 1.00000", "0:01 left"]
    assert fitting(parts, 3) == ["0:01 left"]
    assert joined(parts, 30) == "9 samples/s, loss: 1.00000,\n  acc: 99.00%, 0:01 left"
    assert joined(parts, None).count("\n") == 0
    assert [time_left(seconds) for seconds in (0.2, 61, 3723)] == ["0:00 left", "1:01 left", "1:02:03 left"]


# -- Trainer.fit ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("verbose", "lines"), [("auto", 0), (False, 0), (0, 0), (True, 2), (1, 2), (2, 2)])
def test_fit_shows_what_was_asked_for(verbose: Any, lines: int, capfd: pytest.CaptureFixture[str]) -> None:
    Trainer(**OPTIONS).fit(2, verbose=verbose)
    shown = capfd.readouterr()
    assert shown.out == ""
    assert len(shown.err.splitlines()) == lines


@pytest.mark.parametrize("verbose", ["loud", 3, None])
def test_anything_else_is_refused_before_training(verbose: Any) -> None:
    trainer = Trainer(**OPTIONS)
    with pytest.raises(ConfigError, match='expected "auto"'):
        trainer.fit(1, verbose=verbose)
    assert trainer.progress.num_steps == 0


class Page:
    """A notebook's page: outputs by handle, as IPython's display keeps them."""

    def __init__(self) -> None:
        self.outputs: list[list[dict[str, str]]] = []

    def display(self, content: dict[str, str], *, raw: bool, display_id: bool) -> Any:
        assert raw
        assert display_id
        states = [content]
        self.outputs.append(states)
        return SimpleNamespace(update=lambda content, raw: states.append(content) if raw else None)


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Page:
    """A Jupyter kernel, as far as one can be seen from within."""
    found = Page()
    shell = type("ZMQInteractiveShell", (), {"kernel": object()})()
    package, module = ModuleType("IPython"), ModuleType("IPython.display")
    package.get_ipython = lambda: shell  # type: ignore[attr-defined]
    module.display = found.display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    return found


def test_a_notebook_shows_one_output_that_is_redrawn(page: Page, capfd: pytest.CaptureFixture[str]) -> None:
    Trainer(**OPTIONS).fit(2)
    assert len(page.outputs) == 1
    last = page.outputs[0][-1]["text/plain"].splitlines()
    assert [line[:10] for line in last] == ["Epoch 1/2:", "Epoch 2/2:"]
    assert any("░" in state["text/plain"] for state in page.outputs[0])
    assert capfd.readouterr() == ("", "")


def test_the_bar_of_a_notebook_is_escaped_and_goes_in_the_end(page: Page) -> None:
    display = NotebookDisplay(clock=Clock())
    for event in run_of(1):
        display(event)
    display._line(["<b>"])
    states = page.outputs[0]
    assert any(re.search(r"█+░+ \d+/1000, .* left", state["text/plain"]) for state in states)
    assert "&lt;b&gt;" in states[-1]["text/html"]
    assert "█" not in states[-1]["text/plain"]


def test_a_python_terminal_is_no_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    package = ModuleType("IPython")
    package.get_ipython = lambda: type("TerminalInteractiveShell", (), {})()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", package)
    assert display_for("auto") is None
    assert isinstance(display_for(True), PlainDisplay)
