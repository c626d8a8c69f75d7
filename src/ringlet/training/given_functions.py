"""Losses and metrics as programs give them to a trainer: names, components, or functions that only they know.

The configuration names what it can; for a function it has a stand-in with the function's name, so that a run that is
resumed without its program says what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ringlet.losses import GivenLoss, Loss
from ringlet.losses.functions import loss_of
from ringlet.metrics import METRICS, GivenMetrics, Metric
from ringlet.metrics.functions import metric_of

Function = Callable[[Any, Any], Any]
GivenAsLoss = str | Mapping[str, Any] | Loss | type[Loss] | Function | None
GivenAsMetric = str | Metric | type[Metric] | Function
GivenAsMetrics = str | Mapping[str, Any] | GivenAsMetric | Sequence[GivenAsMetric] | None


def given_loss(given: GivenAsLoss) -> tuple[Loss | None, dict[str, Any]]:
    """The loss of a function, or None; and what the configuration is told."""
    if given is None:
        return None, {}
    if isinstance(given, type) and issubclass(given, Loss):
        return None, {"loss": given()}
    if isinstance(given, str | Mapping | Loss):
        return None, {"loss": given}
    if not callable(given):
        raise _wrong("loss", "a name, a ringlet Loss or a function", given)
    own = loss_of(given)()
    return own, {"loss": GivenLoss(title_given=own.name)}


def function_of(given: GivenAsLoss) -> Function | None:
    """A loss that is a function of the program, or an object that is called like one; None for any other."""
    if isinstance(given, Loss) or (isinstance(given, type) and issubclass(given, Loss)):
        return None
    return given if callable(given) else None


def given_metrics(given: GivenAsMetrics) -> tuple[list[Metric] | None, dict[str, Any]]:
    """All metrics, if functions are among them, or None; and what the configuration is told."""
    if given is None:
        return None, {}
    if isinstance(given, str | Mapping):
        return None, {"metrics": given}
    items = list(given) if isinstance(given, Sequence) else [given]
    if all(isinstance(item, str | Metric) for item in items):
        return None, {"metrics": items}
    parts = [_metric(item) for item in items]
    functions = [part for part in parts if part.registry is None]
    if not functions:
        return None, {"metrics": parts}
    stand_in = GivenMetrics(titles=tuple(part.name for part in functions))
    return parts, {"metrics": [*(part for part in parts if part.registry is not None), stand_in]}


def _metric(given: Any) -> Metric:
    if isinstance(given, type) and issubclass(given, Metric):
        return given()
    if isinstance(given, str | Metric):
        made: Metric = METRICS.made(given)
        return made
    if not callable(given):
        raise _wrong("metrics", "names, ringlet Metrics or functions", given)
    return metric_of(given)()


def _wrong(option: str, expected: str, given: object) -> TypeError:
    kind = f"{type(given).__module__}.{type(given).__qualname__}"
    return TypeError(f"Trainer({option}=…): expected {expected}, received {kind}")
