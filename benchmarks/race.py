"""One case of a comparison: contenders in processes of their own take turns, as many at a time as memory holds.

Ringlet runs in every group, so that each contender is compared with it in the same rounds. Contenders that need a
compiler come last, and by request only in the layout in which PyTorch eager was faster.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from time import monotonic
from typing import Any

from benchmarks.cases import Case
from benchmarks.contenders import COMPILED, COMPILED_BF16, EAGER, EAGER_BF16, JAX, LAYOUTS, OURS, Contender
from benchmarks.served import FailedError, Served, free_bytes
from ringlet.bench.timing import estimate, turns

ROUND_SECONDS = 0.5
SPARE_BYTES = 1 << 30
EAGER_OF = {COMPILED: EAGER, COMPILED_BF16: EAGER_BF16}


@dataclass(frozen=True)
class Limits:
    """How long a case may take."""

    num_rounds: int
    start_seconds: float
    """Until the first step of a contender is done, compilation included."""
    case_seconds: float
    """After which no further round begins; every group has at least one."""


@dataclass
class Entry:
    """A contender and what was found of it."""

    contender: Contender
    seconds: list[float] = field(default_factory=list)
    ours: list[float] = field(default_factory=list)
    """What Ringlet took in the same rounds."""
    loss: float | None = None
    num_bytes: int | None = None
    failed: str = ""

    @property
    def median(self) -> float:
        """Seconds of a step."""
        return median(self.seconds)

    @property
    def times(self) -> float:
        """How many times as long as Ringlet's it took, in the same rounds."""
        return median(self.seconds) / median(self.ours)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        if not self.seconds:
            return {"failed": self.failed}
        facts = {**estimate(self.seconds).to_dict(), "times": self.times, "loss": self.loss}
        return facts | ({"bytes": self.num_bytes} if self.num_bytes is not None else {})


class Race:
    """The contenders of one case."""

    def __init__(
        self, case: Case, contenders: Iterable[Contender], limits: Limits, *, num_threads: int, memory: bool = False
    ) -> None:
        self.case, self._limits, self._threads, self._memory = case, limits, num_threads, memory
        self.entries = {contender.name: Entry(contender) for contender in contenders}
        self._running: dict[str, Served] = {}
        self._largest = 0
        self._begin = monotonic()

    def run(self, *, best_layout_only: bool = False) -> dict[str, Entry]:
        """Measure all; entries that could not be measured say why."""
        try:
            if self._start(OURS):
                for group in self._stages(best_layout_only):
                    self._run_groups(group)
        finally:
            for served in self._running.values():
                served.close()
        self._check_losses()
        return self.entries

    def _stages(self, best_layout_only: bool) -> Iterator[list[str]]:
        names = [name for name in self.entries if name != OURS]
        late = [name for name in names if self.entries[name].contender.kind in EAGER_OF]
        early = [name for name in names if name not in late]
        if best_layout_only:
            dropped = [name for name in early if name == f"{JAX}, {LAYOUTS[0]}"]
            self._drop(dropped)
            early = [name for name in early if name not in dropped]
        yield early
        if best_layout_only:
            dropped = [name for name in late if not self._is_in_best_layout(name)]
            self._drop(dropped)
            late = [name for name in late if name not in dropped]
        yield late

    def _drop(self, names: Sequence[str]) -> None:
        for name in names:
            del self.entries[name]

    def _is_in_best_layout(self, name: str) -> bool:
        contender = self.entries[name].contender
        eager = self.of_kind(EAGER_OF[contender.kind]) or self.of_kind(EAGER)
        fastest = min(eager, key=lambda entry: entry.times, default=None)
        return fastest is None or fastest.contender.layout == contender.layout

    def of_kind(self, kind: str) -> list[Entry]:
        """Those that were measured."""
        return [entry for entry in self.entries.values() if entry.contender.kind == kind and entry.seconds]

    def _run_groups(self, names: Sequence[str]) -> None:
        """As many at a time as fit into memory."""
        waiting = list(names)
        while waiting or not self.entries[OURS].seconds:
            group = []
            while waiting and (not group or free_bytes() > 1.3 * self._largest + SPARE_BYTES):
                name = waiting.pop(0)
                group += [name] if self._start(name) else []
            self._take_turns(group)
            for name in group:
                self._running.pop(name).close()

    def _start(self, name: str) -> bool:
        entry, before = self.entries[name], free_bytes()
        request = {"contender": name, "model": self.case.name, "batch": self.case.batch_size, "threads": self._threads}
        memory = self._memory and not entry.contender.compiles
        served = Served(
            "benchmarks.training_speed",
            request | {"memory": memory},
            num_threads=self._threads,
            environment=entry.contender.environment,
        )
        try:
            facts = served.answer(self._limits.start_seconds)
        except FailedError as error:
            entry.failed = str(error)
            print(f"    {name}: left out, {error}", flush=True)
            return False
        self._running[name] = served
        self._largest = max(self._largest, before - free_bytes())
        entry.loss, entry.num_bytes = facts["loss"], facts["bytes"]
        return True

    def _take_turns(self, group: Sequence[str]) -> None:
        names = [OURS, *group]
        limit = self._limits.start_seconds
        first = {name: self._running[name].seconds(1, limit) for name in names}
        num_calls = {name: max(1, round(ROUND_SECONDS / seconds)) for name, seconds in first.items()}
        found: dict[str, list[float]] = {name: [] for name in names}
        for number, name in enumerate(turns(names, self._limits.num_rounds)):
            if number >= len(names) and number % len(names) == 0 and self._is_late():
                break
            found[name].append(self._running[name].seconds(num_calls[name], limit))
        for name in names:
            self.entries[name].seconds += found[name]
            self.entries[name].ours += found[OURS]
        for name in group:
            entry = self.entries[name]
            print(f"    {name}: {1000 * entry.median:.2f} ms, {entry.times:.2f} x", flush=True)

    def _is_late(self) -> bool:
        return monotonic() - self._begin > self._limits.case_seconds

    def _check_losses(self) -> None:
        """All that are exact must begin with the same loss; masks of dropout and bfloat16 change it a little."""
        measured = [entry for entry in self.entries.values() if entry.seconds]
        reference = next(
            (entry for entry in measured if entry.contender.kind == EAGER), measured[0] if measured else None
        )
        for entry in measured:
            assert reference is not None
            assert entry.loss is not None
            assert reference.loss is not None
            exact = entry.contender.exact and not self.case.has_dropout
            if abs(entry.loss - reference.loss) > (1e-3 if exact else 0.1) * abs(reference.loss):
                raise SystemExit(
                    f"{self.case.name}: first loss of {entry.contender.name} is {entry.loss:.6f}, that of "
                    f"{reference.contender.name} {reference.loss:.6f}: not the same network"
                )
