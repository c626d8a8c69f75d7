"""One look for all plots: colours, sizes and settings of Matplotlib, as PNG files on white and as SVG within a page.

Colours are those of the live page (``watch/page/style.css``), so that compute, exchange and waiting look the same
everywhere. Matplotlib is imported when something is drawn.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ringlet.errors import UsageError
from ringlet.libraries import require

FORMATS = (".png", ".svg", ".pdf")
INK = "#1c2330"
_PAGE_INK = "#010203"
"""A colour that nothing else has: in SVG for the page it becomes the page's text colour."""
COLOURS = ("#2563c9", "#d9631e", "#1b8a4b", "#8451b5", "#c9302c", "#0f8b8d", "#9a6b00", "#b0388a")
PHASE_COLOURS = {
    "compute": "#2563c9",
    "exchange": "#d9631e",
    "wait": "#c4a000",
    "data": "#1b8a4b",
    "other": "#9aa3b2",
}
"""What time is spent on."""
_MARKERS = "osD^vP*X"


@dataclass(frozen=True)
class Plot:
    """A drawing by name."""

    name: str
    caption: str
    draw: Callable[[str], Any]
    """Given the colour of lines and letters, makes a Matplotlib figure."""

    def save(self, path: Path) -> None:
        """Write a file on white; the ending of its name says in which format."""
        with _settings(INK):
            self.draw(INK).savefig(path, dpi=120, facecolor="white")

    def inline_svg(self) -> str:
        """As SVG that stands within an HTML page: no links, names of its own, and the page's text colour."""
        stream = io.StringIO()
        with _settings(_PAGE_INK):
            self.draw(_PAGE_INK).savefig(stream, format="svg", transparent=True, metadata={"Date": None})
        return inline_svg(stream.getvalue(), self.name)


def can_draw() -> bool:
    """Whether Matplotlib is there."""
    return find_spec("matplotlib") is not None


def check_plot(path: Path) -> None:
    """Refuse a plot that could not be drawn at the end."""
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"plot '{path}': expected a name that ends in {', '.join(FORMATS)}")
    if not path.parent.is_dir():
        raise UsageError(f"plot '{path}': folder '{path.parent}' does not exist. Make it first")
    if not can_draw():
        raise UsageError('a plot needs Matplotlib: pip install "ringlet[report]"')


def make_figure(height: float, num_panels: int = 1, *, wide: bool = False) -> tuple[Any, list[Any]]:
    """A figure with panels of this height in inches, two in a row."""
    columns, lines = min(num_panels, 2), max(1, -(-num_panels // 2))
    size = (10.5 if wide or columns > 1 else 7.0, height * lines)
    figure = require("matplotlib.figure").Figure(figsize=size, layout="constrained")
    require("matplotlib.backends.backend_agg").FigureCanvasAgg(figure)
    return figure, [figure.add_subplot(lines, columns, place + 1) for place in range(num_panels)]


def line_style(place: int) -> dict[str, Any]:
    """Colour and marker of the line with this number."""
    return {"color": COLOURS[place % len(COLOURS)], "marker": _MARKERS[place % len(_MARKERS)], "ms": 6, "lw": 1.8}


def ideal_style(ink: str, label: str = "ideal") -> dict[str, Any]:
    """A line to compare with."""
    return {"ls": "--", "color": ink, "lw": 1.2, "alpha": 0.6, "label": label}


def finish(axes: Any, *, grid: str = "both", **legend: Any) -> None:
    """A grid behind everything, and a legend without a frame."""
    axes.grid(visible=True, axis=grid, alpha=0.15)
    axes.set_axisbelow(True)
    axes.legend(frameon=False, fontsize=9, **legend)


def inline_svg(text: str, prefix: str) -> str:
    """Matplotlib's SVG document as an element for HTML: without declarations, metadata and namespaces."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text).replace("xlink:href", "href")
    text = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', text)
    text = re.sub(r'href="#([^"]+)"', rf'href="#{prefix}-\1"', text)
    text = re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}-\1)", text)
    box = re.search(r'viewBox="([^"]+)"', text)
    place = box[1] if box else "0 0 720 432"
    width = round(96 / 72 * float(place.split()[2]))  # points as pixels: never larger than drawn
    text = re.sub(r"<svg\s[^>]*>", f'<svg viewBox="{place}" style="max-width: {width}px" role="img">', text, count=1)
    return text.replace(_PAGE_INK, "currentColor").strip()


@contextmanager
def _settings(ink: str) -> Iterator[None]:
    matplotlib = require("matplotlib")
    colours = dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), ink)
    look = {"font.size": 11, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "ringlet"}
    with matplotlib.rc_context({**colours, **look, "legend.labelcolor": ink, "grid.color": ink}):
        yield
