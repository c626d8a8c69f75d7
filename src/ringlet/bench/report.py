"""The measurements as rows of a table and as a plot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ringlet.bench.measurement import Measurement
from ringlet.errors import UsageError

FORMATS = (".png", ".svg", ".pdf")
_UNITS = (("GB", 1 << 30), ("MB", 1 << 20), ("kB", 1 << 10), ("B", 1))


def size_text(num_bytes: int) -> str:
    """``64 kB``; units are powers of 1024."""
    unit, factor = next((unit, factor) for unit, factor in _UNITS if num_bytes >= factor or factor == 1)
    return f"{num_bytes / factor:g} {unit}"


def parse_size(text: str) -> int:
    """The bytes of ``64k``, ``4M``, ``1 kB`` or ``1000``."""
    plain = text.strip().lower().removesuffix("b").removesuffix("i").strip()
    factor = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}.get(plain[-1:], 1)
    digits = plain[:-1].strip() if factor > 1 else plain
    if not digits.isdecimal() or not 0 < int(digits) * factor <= 1 << 34:
        raise UsageError(f"size '{text}': expected bytes such as 1024, 256k or 64M, at most 16G")
    return int(digits) * factor


def time_text(seconds: float) -> str:
    """``12.3 us`` or ``4.56 ms``."""
    return f"{1e6 * seconds:.1f} us" if seconds < 1e-3 else f"{1e3 * seconds:.2f} ms"


def table_rows(measurements: Sequence[Measurement]) -> tuple[list[str], list[list[str]]]:
    """Columns and rows: a size each; of every contender its time, bandwidth and how many times Ringlet's it took."""
    names = list(dict.fromkeys(entry.contender for entry in measurements))
    by_place = {(entry.collective, entry.num_bytes, entry.contender): entry for entry in measurements}
    rows = []
    for collective, num_bytes in dict.fromkeys((entry.collective, entry.num_bytes) for entry in measurements):
        row = [collective, size_text(num_bytes) if num_bytes else ""]
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


def check_plot(path: Path) -> None:
    """Refuse a plot that could not be drawn at the end."""
    from importlib.util import find_spec

    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"plot '{path}': expected a name that ends in {', '.join(FORMATS)}")
    if not path.parent.is_dir():
        raise UsageError(f"plot '{path}': folder '{path.parent}' does not exist. Make it first")
    if find_spec("matplotlib") is None:
        raise UsageError('a plot needs Matplotlib: pip install "ringlet[report]"')


def draw(path: Path, measurements: Sequence[Measurement], title: str) -> None:
    """Time over size, one panel per collective, both axes logarithmic."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    sized = [entry for entry in measurements if entry.num_bytes]
    collectives = list(dict.fromkeys(entry.collective for entry in sized))
    figure = Figure(figsize=(5.2 * max(len(collectives), 1), 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    for place, collective in enumerate(collectives):
        axes = figure.add_subplot(1, len(collectives), place + 1)
        chosen = [entry for entry in sized if entry.collective == collective]
        for name in dict.fromkeys(entry.contender for entry in chosen):
            own = sorted((entry.num_bytes, entry.seconds) for entry in chosen if entry.contender == name)
            axes.plot([size for size, _ in own], [1e6 * seconds for _, seconds in own], marker="o", ms=4, label=name)
        axes.set(xscale="log", yscale="log", xlabel="size", ylabel="microseconds", title=collective)
        sizes = sorted({entry.num_bytes for entry in chosen})[::2]
        axes.set_xticks(sizes, [size_text(size) for size in sizes])
        axes.minorticks_off()
        axes.grid(visible=True, alpha=0.3)
        axes.legend(frameon=False)
    figure.suptitle(title)
    figure.savefig(path, dpi=120)
