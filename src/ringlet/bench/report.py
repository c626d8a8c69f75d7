"""The measurements as rows of a table and as a plot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ringlet.bench.measurement import Measurement
from ringlet.bench.plotting import Plot, finish, line_style, make_figure
from ringlet.bench.quantities import exact_size_text, parse_size
from ringlet.errors import UsageError

LARGEST = 16 << 30


def parse_sizes(text: str) -> list[int]:
    """The bytes of ``64k,4M,1000``."""
    sizes = [parse_size("size", size, LARGEST) for size in text.split(",") if size.strip()]
    if not sizes:
        raise UsageError("no sizes: expected bytes such as 1k,4M")
    return sizes


def time_text(seconds: float) -> str:
    """``12.3 us`` or ``4.56 ms``."""
    return f"{1e6 * seconds:.1f} us" if seconds < 1e-3 else f"{1e3 * seconds:.2f} ms"


def table_rows(measurements: Sequence[Measurement]) -> tuple[list[str], list[list[str]]]:
    """Columns and rows: a size each; of every contender its time, bandwidth and how many times Ringlet's it took."""
    names = list(dict.fromkeys(entry.contender for entry in measurements))
    by_place = {(entry.collective, entry.num_bytes, entry.contender): entry for entry in measurements}
    rows = []
    for collective, num_bytes in dict.fromkeys((entry.collective, entry.num_bytes) for entry in measurements):
        row = [collective, exact_size_text(num_bytes) if num_bytes else ""]
        own = by_place.get((collective, num_bytes, names[0]))
        row += [_cell(by_place.get((collective, num_bytes, name)), own) for name in names]
        rows.append(row)
    return ["collective", "size", *names], rows


def _cell(entry: Measurement | None, own: Measurement | None) -> str:
    if entry is None:
        return ""
    parts = [time_text(entry.seconds)]
    if entry.num_bytes:
        parts.append(f"{entry.bandwidth / 1e9:.2f} GB/s")
    if own is not None and entry is not own:
        parts.append(f"({entry.seconds / own.seconds:.1f}x)")
    return ", ".join(parts[:2]) + (f" {parts[2]}" if len(parts) > 2 else "")


def plot(measurements: Sequence[Measurement], title: str) -> Plot:
    """Time over size, one panel per collective, both axes logarithmic."""
    sized = [entry for entry in measurements if entry.num_bytes]
    collectives = list(dict.fromkeys(entry.collective for entry in sized))
    names = list(dict.fromkeys(entry.contender for entry in sized))

    def draw(_ink: str) -> Any:
        figure, panels = make_figure(4.2, len(collectives))
        for axes, collective in zip(panels, collectives, strict=True):
            chosen = [entry for entry in sized if entry.collective == collective]
            for name in dict.fromkeys(entry.contender for entry in chosen):
                own = sorted((entry.num_bytes, entry.seconds) for entry in chosen if entry.contender == name)
                times = [1e6 * seconds for _, seconds in own]
                axes.plot([size for size, _ in own], times, label=name, **line_style(names.index(name)))
            axes.set(xscale="log", yscale="log", xlabel="size", ylabel="microseconds", title=collective)
            sizes = sorted({entry.num_bytes for entry in chosen})[::2]
            axes.set_xticks(sizes, [exact_size_text(size) for size in sizes])
            axes.minorticks_off()
            finish(axes)
        figure.suptitle(title)
        return figure

    return Plot("collectives", title, draw)
