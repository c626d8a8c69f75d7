"""A chain of rules as one object: the only thing the training loop talks to."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast, final

from ringlet.component import key
from ringlet.errors import ConfigError
from ringlet.optim.metric_names import resolve
from ringlet.optim.schedules.base import SCHEDULES, Best, Decision, Rule, Span, Time
from ringlet.optim.schedules.monitors import (
    Keeper,
    Memory,
    ModelCheckpoint,
    Monitor,
    Reading,
    ReduceOnPlateau,
    fresh_memory,
)
from ringlet.optim.schedules.rates import Rate, WarmUp
from ringlet.option_text import nearest, parse_text

_FORMAT = 1


@final
class Schedule:
    """The learning rate at every moment of a run, and when to stop it.

    The rules apply in order, each to the rate that the ones before it gave: ``warm_up`` then ``cosine``, or ``warm_up``
    with ``reduce_lr_on_plateau``. Only the monitors' memories change; :meth:`state_dict` holds them, for an exact
    resume.
    Every rank must feed the same metrics (summed over ranks), so that all ranks decide alike.
    """

    def __init__(
        self, learning_rate: float, rules: Sequence[Rule] = (), *, num_epochs: float | None = None, size: int = 1
    ) -> None:
        """``learning_rate`` is the full rate, after any scaling by the number of workers ``size``."""
        if not (math.isfinite(learning_rate) and learning_rate > 0):
            raise ConfigError(f"learning_rate={learning_rate!r} is not allowed; expected a finite number > 0")
        self.base_learning_rate = float(learning_rate)
        self.rules = tuple(rules)
        warm_up = sum(rule.epochs for rule in self.rules if isinstance(rule, WarmUp) and rule.steps is None)
        self._span = Span(self.base_learning_rate, num_epochs, size, warm_up)
        for rule in self.rules:
            for problem in rule.misfits(self._span):
                raise ConfigError(f"scheduler '{rule.name}': {problem}")
        self._memories: list[Memory] = [fresh_memory() for _ in self.rules]
        self._keeper = _keeper(self.rules)
        self._kept_by: str | None = None
        """The metric that the keeper watches, once it is known."""

    @property
    def keeps_best(self) -> bool:
        """Whether a rule says which epoch's weights are the best."""
        return self._keeper is not None

    @property
    def keeps_checkpoints(self) -> bool:
        """Whether the best epochs are to be kept as checkpoints too."""
        return self._keeper is not None and isinstance(self.rules[self._keeper], ModelCheckpoint)

    @property
    def best(self) -> Best | None:
        """The epoch whose weights are to be kept; None before the first, and if no rule asks for it."""
        if self._keeper is None or self._kept_by is None:
            return None
        epoch, value = self._memories[self._keeper]["best_epoch"], self._memories[self._keeper]["best"]
        return None if epoch is None or value is None else Best(epoch + 1, self._kept_by, value)

    def learning_rate(self, epoch: float, step: int = 0) -> float:
        """The rate for the update that begins after ``epoch`` epochs (with a fraction) and ``step`` updates."""
        rate, time = self.base_learning_rate, Time(epoch, step, self._span)
        for rule, memory in zip(self.rules, self._memories, strict=True):
            if isinstance(rule, Rate):
                rate = rule.adjust(rate, time)
            elif isinstance(rule, ReduceOnPlateau):
                rate = rule.adjust(rate, memory)
        return rate

    def check_metrics(self, available: Collection[str]) -> None:
        """Raise :class:`ConfigError` now, before training, if a rule watches a metric that will not be reported."""
        for rule in self.rules:
            if isinstance(rule, Monitor):
                self._resolve(rule, available)
        self._watch(available)

    def on_epoch_end(self, epoch: int, metrics: Mapping[str, float]) -> Decision:
        """Let all monitors look at the metrics of ``epoch`` (counted from 0); call it once per epoch, on every rank."""
        readings = {
            index: Reading(epoch, key := self._resolve(rule, metrics), metrics[key])
            for index, rule in enumerate(self.rules)
            if isinstance(rule, Monitor)
        }
        decisions = []
        for index, reading in readings.items():
            rule = cast(Monitor, self.rules[index])
            self._memories[index], decision = rule.observe(reading, self._memories[index])
            decisions.append(decision if index == self._keeper else replace(decision, save=False))
        self._watch(metrics)
        return _joined(decisions)

    def state_dict(self) -> dict[str, Any]:
        """All that changes during a run, as plain values for JSON."""
        rules = [{"name": rule.name, **memory} for rule, memory in zip(self.rules, self._memories, strict=True)]
        return {"format": _FORMAT, "rules": rules}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where :meth:`state_dict` was taken; the schedule must consist of the same rules."""
        entries = state.get("rules")
        if state.get("format") != _FORMAT or not isinstance(entries, list):
            raise ConfigError(
                f"not the state of a schedule (expected format {_FORMAT} with rules): {dict(state)!r:.200}"
            )
        saved = [entry.get("name") if isinstance(entry, Mapping) else None for entry in entries]
        own = [rule.name for rule in self.rules]
        if saved != own:
            raise ConfigError(
                f"the saved schedule has the rules {saved}, this run has {own}; resume with the same ones"
            )
        self._memories = [_checked_memory(entry) for entry in entries]

    def _watch(self, available: Collection[str]) -> None:
        if self._keeper is not None:
            self._kept_by = self._resolve(cast(Monitor, self.rules[self._keeper]), available)

    @staticmethod
    def _resolve(rule: Monitor, available: Collection[str]) -> str:
        try:
            return resolve(rule.metric, available)
        except ConfigError as error:
            raise ConfigError(f"scheduler '{rule.name}': {error}") from None


def _keeper(rules: Sequence[Rule]) -> int | None:
    """The place of the rule that says what is best: ``model_checkpoint`` is there for that, so it comes first."""
    places = [index for index, rule in enumerate(rules) if isinstance(rule, Keeper)]
    return min(places, key=lambda index: (not isinstance(rules[index], ModelCheckpoint), index), default=None)


def _joined(decisions: Sequence[Decision]) -> Decision:
    reasons = [decision.stop_reason for decision in decisions if decision.stop_reason is not None]
    return Decision(
        factor=math.prod(decision.factor for decision in decisions),
        stop_reason="; ".join(reasons) if reasons else None,
        save=any(decision.save for decision in decisions),
        messages=tuple(message for decision in decisions for message in decision.messages),
    )


def _checked_memory(entry: Mapping[str, Any]) -> Memory:
    best, best_epoch = entry.get("best"), entry.get("best_epoch")
    counts = entry.get("num_bad_epochs"), entry.get("num_reductions")
    numbers_fit = all(isinstance(value, int) and not isinstance(value, bool) and value >= 0 for value in counts)
    best_fits = best is None or (isinstance(best, int | float) and not isinstance(best, bool))
    if not numbers_fit or not best_fits or not (best_epoch is None or isinstance(best_epoch, int)):
        raise ConfigError(f"damaged state of scheduler '{entry.get('name')}': {dict(entry)!r:.200}")
    return Memory(
        best=None if best is None else float(best),
        best_epoch=best_epoch,
        num_bad_epochs=cast(int, counts[0]),
        num_reductions=cast(int, counts[1]),
    )


def parse_schedulers(
    schedulers: str | Sequence[str],
    options: Mapping[str, Any] | None = None,
    *,
    learning_rate: float,
    num_epochs: float | None = None,
    size: int = 1,
) -> Schedule:
    """The schedule that names (a comma list, or a sequence) and options such as ``warm_up_epochs`` describe.

    A value of None stands for the default. Options of schedulers that are not used have no effect. ``cosine`` begins
    where ``warm_up`` ends, when both are there.
    """
    names = [name for name in (schedulers.split(",") if isinstance(schedulers, str) else schedulers) if name.strip()]
    found = [SCHEDULES.find(name.strip()) for name in names]
    if len(set(found)) < len(found):
        raise ConfigError(f"schedulers '{','.join(names)}': one is named twice; give each once")
    known = {
        key(f"{rule.name}_{option}"): (rule, option) for rule in SCHEDULES.entries() for option in rule.model_fields
    }
    values: dict[type[Rule], dict[str, Any]] = {rule: {} for rule in SCHEDULES.entries()}
    for name, value in (options or {}).items():
        if key(name) not in known:
            near = nearest(name, [f"{rule.name}_{option}" for rule, option in known.values()])
            hint = f" Did you mean '{near}'?" if near else ""
            raise ConfigError(f"no scheduler has an option '{name}'.{hint}")
        rule, option = known[key(name)]
        if value is not None:
            kind = rule.model_fields[option].annotation
            values[rule][option] = parse_text(kind, value) if isinstance(value, str) else value
    return Schedule(learning_rate, [rule(**values[rule]) for rule in found], num_epochs=num_epochs, size=size)
