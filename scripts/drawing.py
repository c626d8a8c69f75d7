"""A small kit for diagrams: boxes, arrows and words become SVG text.

A picture brings its own background and follows the reader's light or dark setting, so it is readable on any page. The
same calls always give the same text.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

STYLE = """
  .paper { fill: #ffffff; stroke: #d4dbe0; }
  .box { fill: #eef5f6; stroke: #5b8c91; stroke-width: 1.5; }
  .warm { fill: #fdf1e3; stroke: #c98a3c; stroke-width: 1.5; }
  .cool { fill: #e8eefb; stroke: #5a78b8; stroke-width: 1.5; }
  .frame { fill: none; stroke: #9aa7ae; stroke-width: 1.5; stroke-dasharray: 6 4; }
  .line { fill: none; stroke: #4a5a61; stroke-width: 1.6; }
  .tip { fill: #4a5a61; }
  text { fill: #1d2b30; font-family: system-ui, "Segoe UI", "DejaVu Sans", sans-serif; font-size: 15px; }
  .small { font-size: 13px; fill: #4a5a61; }
  .bold { font-weight: 600; }
  .code { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: 13px; }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #1c2327; stroke: #3a464c; }
    .box { fill: #22383b; stroke: #6fb0b6; }
    .warm { fill: #40311d; stroke: #d9a25c; }
    .cool { fill: #26314a; stroke: #86a3df; }
    .frame { stroke: #75848c; }
    .line { stroke: #b4c2c9; }
    .tip { fill: #b4c2c9; }
    text { fill: #e8eef0; }
    .small { fill: #b4c2c9; }
  }
"""


class Drawing:
    """A picture of a fixed size, filled from back to front; all lengths are pixels."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._size = (width, height)
        self._title = title
        self._parts: list[str] = []

    def box(self, x: float, y: float, width: float, height: float, *lines: str, kind: str = "box") -> None:
        """A rectangle with lines of text in its middle: the first one bold, the others small."""
        self._parts.append(f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="7"/>')
        top = y + height / 2 - (len(lines) - 1) * 9 + 5
        for number, line in enumerate(lines):
            self.text(x + width / 2, top + 18 * number, line, kind="small" if number else "bold")

    def frame(self, x: float, y: float, width: float, height: float, label: str) -> None:
        """A dashed border around things that belong together, named above its upper edge."""
        self._parts.append(f'<rect class="frame" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="9"/>')
        self.text(x + 10, y - 8, label, anchor="start", kind="small")

    def text(self, x: float, y: float, words: str, *, anchor: str = "middle", kind: str = "") -> None:
        """Words at a place: their middle, start or end."""
        style = f' class="{kind}"' if kind else ""
        self._parts.append(f'<text{style} x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(words)}</text>')

    def arrow(self, *points: tuple[float, float], label: str = "", both: bool = False) -> None:
        """A line over points with a tip at its end (and at its start), and words beside its middle."""
        way = " ".join(f"{'L' if number else 'M'}{x:g} {y:g}" for number, (x, y) in enumerate(points))
        start = ' marker-start="url(#tip)"' if both else ""
        self._parts.append(f'<path class="line" d="{way}" marker-end="url(#tip)"{start}/>')
        if label:
            (x1, y1), (x2, y2) = points[len(points) // 2 - 1], points[len(points) // 2]
            if x1 == x2:
                self.text(x1 + 8, (y1 + y2) / 2 + 4, label, anchor="start", kind="small")
            else:
                self.text((x1 + x2) / 2, (y1 + y2) / 2 - 7, label, kind="small")

    def line(self, points: Iterable[tuple[float, float]]) -> None:
        """A line without a tip."""
        way = " ".join(f"{'L' if number else 'M'}{x:g} {y:g}" for number, (x, y) in enumerate(points))
        self._parts.append(f'<path class="line" d="{way}"/>')

    def svg(self) -> str:
        """The whole file."""
        width, height = self._size
        tip = (
            '<marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" '
            'orient="auto-start-reverse"><path class="tip" d="M0 1 L10 5 L0 9 Z"/></marker>'
        )
        size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
            f"<title>{escape(self._title)}</title>",
            f"<style>{STYLE}</style>",
            f"<defs>{tip}</defs>",
            f'<rect class="paper" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="10"/>',
            *self._parts,
            "</svg>",
        ]
        return "\n".join(lines) + "\n"
