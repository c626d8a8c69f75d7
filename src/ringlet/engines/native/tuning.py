"""Which algorithm computes each convolution: measured once per shape, remembered in memory and on disk.

The choice changes the order of additions and so the last bits of a result. It is therefore settled once: the first
entry that reaches the cache file wins, also among processes that measure at the same time, and every later run with the
same cache gets the same bits. ``tuning="rule"`` or ``RINGLET_TUNING=off`` replaces measuring by a rule that depends on
the shape alone: equal choices, and so equal bits, on any number of threads and ranks. ``exact`` leaves out Winograd's
algorithms, whose rounding is coarser.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.errors import UnknownNameError
from ringlet.io.disk import replacing
from ringlet.kernels.bfloat16 import BFLOAT16
from ringlet.kernels.contract import CONV_ALGORITHMS, Kernels

CONVOLUTIONS = ("conv2d_forward", "conv2d_backward_data", "conv2d_backward_weight")
"""Kernels that take an ``algorithm``."""

TUNINGS = ("measured", "rule")
"""Ways to choose."""

ENVIRONMENT_VARIABLE = "RINGLET_TUNING"
_MOST_RUNS = 50
_STEADY = 0.02
"""Seconds of running that make a figure."""
_SHORT_RUN = 0.5
"""Seconds; a first run shorter than this is repeated at once: it may have had to get its memory."""
_HOPELESS = 1.5
"""An algorithm that takes this many times as long as the best one is not run again."""
_CLEAR = 0.9
"""Only below this share of the time of the rule's algorithm another one is preferred: a choice is kept for good, and a
busy machine shifts times by less. So near ties go the same way everywhere."""

_GENERATION = "6"
"""Raised when algorithms come or change: choices that were made without them are forgotten."""
_LANES_OF_PAIRS = 16
_MANY_CHANNELS = 64
"""From here on two-dimensional Winograd always beats the one along rows."""

_VECTOR = 16
"""Elements of the widest vectors; the rule must not depend on the machine."""

_LEAST_ELEMENTS = 24
"""With fewer tiles than that, transforming the filters costs Winograd as much as if there were so many."""

ConvolutionCall = tuple[str, list[Any], dict[str, Any]]
"""Kernel, arrays, options."""

_memory: dict[str, str] = {}


class Tuner:
    """Chooses algorithms for one set of kernels and one dtype."""

    def __init__(
        self, kernels: Kernels, dtype: np.dtype[Any], *, exact: bool = False, tuning: str = "measured"
    ) -> None:
        if tuning not in TUNINGS:
            raise UnknownNameError("tuning", tuning, TUNINGS)
        self._kernels = kernels
        self._exact = exact
        self._prefix = ":".join((_GENERATION, *_identity(kernels), dtype.name, "exact" if exact else "any"))
        switched_off = os.environ.get(ENVIRONMENT_VARIABLE, "").lower() in ("off", "0", "no", "false")
        self._measures = tuning == "measured" and not switched_off

    def must_measure(self, calls: Sequence[ConvolutionCall], *, any_batch: bool = False) -> bool:
        """Whether :meth:`choose` would run kernels on the arrays of ``calls``."""
        return bool(self._unknown(calls, any_batch))

    def choose(self, calls: Sequence[ConvolutionCall], *, any_batch: bool = False) -> list[str]:
        """An algorithm for each convolution call, given as (kernel, arrays, options).

        With ``any_batch`` it is the same for every batch size, so that a sample's prediction does not depend on it.
        """
        if self._kernels.name == "reference":
            return ["direct"] * len(calls)
        if not self._measures:
            return [heuristic(Geometry(*call, any_batch=any_batch), exact=self._exact) for call in calls]
        found = {key: self._fastest(call, any_batch) for key, call in self._unknown(calls, any_batch).items()}
        if found:
            unusable = {key: _memory[key] for key in found if key in _memory}
            _memory.update(settle(cache_path(), found, unusable))
        return [_memory[self._key(call, any_batch)] for call in calls]

    def _unknown(self, calls: Sequence[ConvolutionCall], any_batch: bool) -> dict[str, ConvolutionCall]:
        """Calls without a usable entry in memory or in the file, by key."""
        if self._kernels.name == "reference" or not self._measures:
            return {}
        by_key = {self._key(call, any_batch): call for call in calls}
        if not _memory.keys() >= by_key.keys():
            _memory.update(_read(cache_path()) | _memory)
        return {
            key: call
            for key, call in by_key.items()
            if _memory.get(key) not in applicable(Geometry(*call), exact=self._exact)
        }

    def _key(self, call: ConvolutionCall, any_batch: bool) -> str:
        return f"{self._prefix}:{Geometry(*call, any_batch=any_batch).key}"

    def _fastest(self, call: ConvolutionCall, any_batch: bool) -> str:
        """Candidates take turns, so that a busy moment of the machine does not decide between them."""
        kernel, arrays, options = call
        geometry = Geometry(*call, any_batch=any_batch)
        candidates, likely = applicable(geometry, exact=self._exact), heuristic(geometry, exact=self._exact)
        if len(candidates) == 1:
            return likely
        function = getattr(self._kernels, kernel)
        times = dict.fromkeys(sorted(candidates, key=lambda name: name != likely), float("inf"))
        for run in range(_MOST_RUNS):
            best = min(times.values())
            rivals = [name for name in times if times[name] <= best * _HOPELESS]
            if len(rivals) == 1:
                break
            for algorithm in rivals:
                attempt = partial(function, *arrays, **(options | {"algorithm": algorithm}))
                first = _time(attempt)
                again = run == 0 and first < _SHORT_RUN
                times[algorithm] = min(times[algorithm], first, _time(attempt) if again else first)
            if run > 0 and min(times.values()) * (run + 1) > _STEADY:
                break
        fastest = min(times, key=times.__getitem__)
        return fastest if times[fastest] < _CLEAR * times[likely] else likely


class Geometry:
    """The shapes of a convolution call, whichever of the three passes it is; with ``any_batch`` those of one vector."""

    def __init__(self, kernel: str, arrays: Sequence[Any], options: dict[str, Any], *, any_batch: bool = False) -> None:
        self.kernel = kernel
        roles = _roles(kernel, arrays)
        image, weight, pixels = (array.shape for array in roles)
        if any_batch:
            image, pixels = (*image[:3], _VECTOR), (*pixels[:3], _VECTOR)
        self.image: tuple[int, ...] = image
        self.weight: tuple[int, ...] = weight
        self.output: tuple[int, ...] = pixels
        self.padding: tuple[int, int] = options["padding"]
        self.stride, self.dilation, self.groups = options["stride"], options["dilation"], options["groups"]
        single_pixels = weight[2:] == (1, 1) and self.stride == (1, 1) and self.padding == (0, 0)
        lanes = math.prod(image[1:]) if single_pixels else image[-1]
        unit = 2 if kernel == "conv2d_backward_weight" else _LANES_OF_PAIRS
        self.in_pairs = roles[0].dtype == BFLOAT16 and self.groups == 1 and lanes % unit == 0
        """Whether products are products of pairs; other convolutions in bfloat16 are computed as floats."""
        names = ("stride", "padding", "dilation", "groups")  # relu and accumulate do not change which is fastest
        rest = ",".join(f"{name}={options[name]}" for name in names)
        batch = ":any batch" if any_batch else ""
        self.key = f"{kernel}:{image}:{weight}:{pixels}:{rest}{batch}".replace(" ", "")

    def taps_inside(self) -> float:
        """How many taps of an output pixel lie in the image and not in its padding, on average."""
        mean = 1.0
        for axis in (0, 1):
            starts = np.arange(self.output[1 + axis]) * self.stride[axis] - self.padding[axis]
            taps = starts[:, None] + np.arange(self.weight[2 + axis]) * self.dilation[axis]
            mean *= np.count_nonzero((taps >= 0) & (taps < self.image[1 + axis])) / starts.size
        return mean


def applicable(geometry: Geometry, *, exact: bool) -> tuple[str, ...]:
    """The algorithms of ``CONV_ALGORITHMS`` that can compute a convolution, without those that never win there."""
    plain = geometry.stride == (1, 1) and geometry.dilation == (1, 1) and geometry.groups == 1
    winograd = plain and geometry.weight[2:] == (3, 3) and not exact
    few_channels = min(geometry.weight[:2]) < _MANY_CHANNELS
    products = geometry.groups == 1 and (geometry.in_pairs or geometry.kernel == "conv2d_backward_weight")
    allowed = {"direct": True, "gemm": products, "winograd_rows": winograd and few_channels}
    return tuple(name for name in CONV_ALGORITHMS if allowed.get(name, winograd))


def heuristic(geometry: Geometry, *, exact: bool) -> str:
    """A choice by shape: Winograd where it saves enough multiplications, along rows for few channels, else direct.

    Weight gradients between many channels are matrix products instead. The limits come from measurements; near them the
    algorithms take about the same time.
    """
    candidates = applicable(geometry, exact=exact)
    by_pairs = geometry.in_pairs and min(geometry.weight[:2]) >= 16
    if "winograd_rows" in candidates and _suits_rows(geometry) and not by_pairs:
        return "winograd_rows"
    if "winograd4" in candidates and _enough_channels_for_winograd(geometry):
        name, multiplications = _winograd(geometry)
        is_weight = geometry.kernel == "conv2d_backward_weight"  # which alone can leave out what lies in the padding
        if multiplications <= (geometry.taps_inside() if is_weight else 0.75 * math.prod(geometry.weight[2:])):
            return name
    if geometry.in_pairs and max(geometry.weight[:2]) >= 16:
        return "gemm"
    return "gemm" if "gemm" in candidates and min(geometry.weight[:2]) >= 16 else "direct"


def _enough_channels_for_winograd(geometry: Geometry) -> bool:
    """Its transforms pay if each transformed value is used for several channels."""
    filters, channels = geometry.weight[:2]
    if geometry.kernel == "conv2d_backward_weight":
        return min(filters, channels) >= 16
    summed, produced = (channels, filters) if geometry.kernel == "conv2d_forward" else (filters, channels)
    return summed >= 16 and produced >= 8


def _suits_rows(geometry: Geometry) -> bool:
    """Winograd along rows is for few channels, but more than one or two, and rows of several tiles.

    Samples that do not fill vectors must be put in order for it, which takes some more channels to pay.
    """
    filters, channels = geometry.weight[:2]
    least = 3 if geometry.output[3] % _VECTOR == 0 else 12
    tiles = -(-geometry.output[2] // 4) * geometry.output[3]
    return (
        min(filters, channels) >= least and filters * channels <= 1024 and geometry.output[2] >= 8 and tiles >= _VECTOR
    )


def _winograd(geometry: Geometry) -> tuple[str, float]:
    """The better of the two algorithms and its multiplications per pixel, sample, filter and channel.

    The larger tiles need fewer of them if they fit the image, and enough tiles to fill vectors.
    """
    _, height, width, lanes = geometry.output
    costs = {}
    for name, size, points in (("winograd2", 2, 16), ("winograd4", 4, 36)):
        elements = -(-(-(-height // size) * -(-width // size) * lanes) // _VECTOR) * _VECTOR
        costs[name] = points * max(elements, _LEAST_ELEMENTS) / (height * width * lanes)
    name = min(costs, key=lambda name: costs[name])
    return name, costs[name]


def cache_path() -> Path:
    """The file that remembers choices: ``tuning.json`` in RINGLET_CACHE, else under XDG_CACHE_HOME or ``~/.cache``."""
    own = os.environ.get("RINGLET_CACHE")
    if own:
        return Path(own) / "tuning.json"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "ringlet" / "tuning.json"


def settle(path: Path, found: dict[str, str], unusable: Mapping[str, str] | None = None) -> dict[str, str]:
    """Add measurements to the file; entries that are already there win, except ``unusable`` ones. Returns all entries.

    A directory that cannot be written costs the memory of the choices, nothing else.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path.with_suffix(".lock")):
            bad = (unusable or {}).items()
            entries = found | {key: value for key, value in _read(path).items() if (key, value) not in bad}
            _write(path, entries)
            return entries
    except OSError:
        return found


def remembered() -> dict[str, str]:
    """All choices in the cache file, by kernel, machine and shape (for ``ringlet doctor``)."""
    return _read(cache_path())


def forget() -> None:
    """Empty the memory of this process (not the file)."""
    _memory.clear()


def _time(call: Callable[[], Any]) -> float:
    start = perf_counter()
    call()
    return perf_counter() - start


def _roles(kernel: str, arrays: Sequence[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """(image, weight, output pixels) of a call."""
    if kernel == "conv2d_forward":
        return arrays[0], arrays[1], arrays[3]
    if kernel == "conv2d_backward_data":
        return arrays[2], arrays[1], arrays[0]
    return arrays[0], arrays[2], arrays[1]


def _identity(kernels: Kernels) -> tuple[str, ...]:
    """Name, version, instruction set and threads, as far as the kernels tell."""
    names = ("version", "instruction_set", "num_threads")
    found = [getattr(kernels, name, "") for name in names]
    return (kernels.name, _package_version(), *(str(value() if callable(value) else value) for value in found))


def _package_version() -> str:
    try:
        return version("ringlet")
    except PackageNotFoundError:
        return ""


def _read(path: Path) -> dict[str, str]:
    """The entries of the file; none if it is missing or damaged."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(data, dict):
        return {}
    return {key: value for key, value in data.items() if value in CONV_ALGORITHMS}


def _write(path: Path, entries: dict[str, str]) -> None:
    with replacing(path, durable=False) as draft:
        draft.write_text(json.dumps(dict(sorted(entries.items())), indent=0), encoding="utf-8")


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
