"""Times, rates and sizes as people write them: ``20us``, ``25Gbit/s``, ``16GB``."""

from __future__ import annotations

import math
import re

from ringlet.errors import UsageError

_NUMBER = re.compile(r"\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*(.*?)\s*\Z")
_SECONDS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_BINARY = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZES = ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "kB"))


def parse_seconds(name: str, text: str) -> float:
    """The seconds of ``20us``, ``1.5ms`` or ``0.25``."""
    number, unit = _split(name, text, "a time such as 20us, 1.5ms or 0.25 (seconds)")
    if unit not in _SECONDS:
        raise UsageError(f"{name} = '{text}': unit '{unit}' is no time, expected s, ms, us or ns")
    return number * _SECONDS[unit]


def parse_rate(name: str, text: str) -> float:
    """Bytes per second of ``25Gbit/s`` (also ``25Gb/s``) or ``3GB/s``; units are powers of 1000, as networks count."""
    expected = "a rate such as 25Gbit/s or 3GB/s"
    number, unit = _split(name, text, expected)
    match = re.fullmatch(r"([kKMGT]?)(bit|bits|b|B)(?:/s|ps)", unit)
    if match is None:
        raise UsageError(f"{name} = '{text}': expected {expected} (a small b is a bit, a large B a byte)")
    return number * _PREFIXES[match[1].lower()] / (1 if match[2] == "B" else 8)


def parse_size(name: str, text: str, at_most: int | None = None) -> int:
    """The bytes of ``16GB``, ``64M`` or ``1000``; units are powers of 1024, as memory counts."""
    expected = "bytes such as 1024, 256k or 64M" + ("" if at_most is None else f", at most {exact_size_text(at_most)}")
    number, unit = _split(name, text, expected)
    match = re.fullmatch(r"([kmgt]?)i?b?", unit.lower())
    num_bytes = 0 if match is None else int(number * _BINARY[match[1]])
    if num_bytes < 1 or (at_most is not None and num_bytes > at_most):
        raise UsageError(f"{name} = '{text}': expected {expected}")
    return num_bytes


def seconds_text(seconds: float) -> str:
    """Three digits with a fitting unit: ``12.3 us``, ``4.56 ms``, ``1.20 s``, ``3 h 05 min``."""
    if seconds >= 3600:
        hours, minutes = divmod(round(seconds / 60), 60)
        return f"{hours:,} h {minutes:02d} min"
    if seconds >= 100:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes} min {rest:02d} s"
    unit, factor = ("s", 1.0) if seconds >= 1 else ("ms", 1e3) if seconds >= 1e-3 else ("us", 1e6)
    return f"{_three_digits(seconds * factor)} {unit}"


def size_text(num_bytes: float) -> str:
    """Three digits with a fitting unit, powers of 1024: ``58.1 MB``."""
    for factor, unit in _SIZES:
        if num_bytes >= factor:
            return f"{_three_digits(num_bytes / factor)} {unit}"
    return f"{num_bytes:.0f} B"


def exact_size_text(num_bytes: int) -> str:
    """All digits that matter, for round sizes: ``64 kB``."""
    factor, unit = next((entry for entry in _SIZES if num_bytes >= entry[0]), (1, "B"))
    return f"{num_bytes / factor:g} {unit}"


def _three_digits(value: float) -> str:
    if value == 0:
        return "0"
    return f"{value:,.{max(0, 2 - max(0, math.floor(math.log10(value))))}f}"


def _split(name: str, text: str, expected: str) -> tuple[float, str]:
    match = _NUMBER.match(text)
    if match is None or not math.isfinite(float(match[1])):
        raise UsageError(f"{name} = '{text}': expected {expected}")
    return float(match[1]), match[2]
