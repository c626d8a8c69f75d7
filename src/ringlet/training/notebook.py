"""A bar in a notebook: one output that is redrawn, with a line for every finished epoch above it."""

from __future__ import annotations

import sys
import time
from html import escape
from typing import Any, final

from ringlet.training.display import Clock, Display
from ringlet.training.metric_text import joined

WIDTH = 24
INTERVAL = 0.2
"""A notebook's page is redrawn by a browser, over a network."""
MAX_LINES = 200
"""Of finished epochs that stay: older ones are in the history."""


def in_notebook() -> bool:
    """Whether this program runs in a Jupyter kernel, whose pages can be redrawn."""
    shell = _shell()
    return shell is not None and type(shell).__name__ != "TerminalInteractiveShell" and hasattr(shell, "kernel")


def _shell() -> Any:
    """IPython's shell, if this program runs in one; IPython is not imported for it."""
    module = sys.modules.get("IPython")
    return None if module is None else module.get_ipython()


@final
class NotebookDisplay(Display):
    """Draws into one output of the cell, by IPython's own display."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        super().__init__(clock)
        self._lines: list[str] = []
        self._running = ""
        self._handle: Any = None

    @property
    def _interval(self) -> float:
        return INTERVAL

    def _show(self, *parts: str) -> None:
        position = self._position
        filled = round(WIDTH * position.done / max(position.num_samples, 1))
        bar = "█" * filled + "░" * (WIDTH - filled)
        count = f"{position.label} {bar} {position.done}/{position.num_samples}"
        self._running = joined([count, *filter(None, parts)], None)
        self._draw()

    def _line(self, parts: list[str], style: str = "") -> None:  # noqa: ARG002  plain
        self._lines = [*self._lines, joined(parts, None)][-MAX_LINES:]
        self._running = ""
        self._draw()

    def close(self) -> None:
        """The lines stay, the bar goes."""
        if self._running:
            self._running = ""
            self._draw()

    def _draw(self) -> None:
        text = "\n".join([*self._lines, *filter(None, [self._running])])
        content = {"text/plain": text, "text/html": f"<pre>{escape(text)}</pre>"}
        if self._handle is None:
            from IPython.display import display  # type: ignore[import-not-found,unused-ignore]

            self._handle = display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)
