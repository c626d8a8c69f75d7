"""Metrics made of plain functions, for :class:`ringlet.Trainer` and, by :func:`metric`, under a name of their own.

A function takes arrays of NumPy on every engine: the outputs ``(n, *shape)`` as the network gives them and the targets
as the data have them. It gives one value per sample ``(n,)``, or their mean over these samples; reported is the mean
over all samples.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NoReturn, final

import numpy as np

from ringlet.component import Registry, required
from ringlet.errors import DataError, UsageError, show
from ringlet.metrics.base import METRICS, Array, Measure, Metric
from ringlet.metrics.formulas import sum_of

Function = Callable[[Any, Any], Any]


class FunctionMetric(Metric):
    """A metric that a function computes; :func:`metric` makes its subclasses."""

    function: ClassVar[Function]

    def measure(self, task: str, num_outputs: int) -> Measure:  # noqa: ARG002
        """The mean of its values."""
        name, function = self.name, type(self).function

        def sums(outputs: Array, targets: Array) -> tuple[float]:
            values = np.asarray(function(outputs, targets))
            if values.shape not in ((), (len(outputs),)) or values.dtype.kind not in "biuf":
                raise UsageError(
                    f"metric '{name}' gave {values.dtype} of shape {values.shape}: expected one number per sample, "
                    f"({len(outputs)},), or their mean"
                )
            total = float(values) * len(outputs) if values.ndim == 0 else sum_of(values)[0]
            if not np.isfinite(total) and np.isfinite(outputs).all():
                raise DataError(f"metric '{name}' gave {total} for outputs that are finite: expected finite numbers")
            return (total,)

        return Measure(name, 1, sums, lambda totals, count: totals[0] / count)


@final
class GivenMetrics(Metric):
    """Metrics that a program has handed over as functions; only that program can compute them."""

    name: ClassVar[str] = "given"
    is_listed: ClassVar[bool] = False
    titles: tuple[str, ...] = required("what the program calls them")

    def measure(self, task: str, num_outputs: int) -> NoReturn:  # noqa: ARG002
        """Not here."""
        raise UsageError(
            f"metrics {', '.join(self.titles)} were given to the run by a program, as functions: start or resume it "
            "there. Registered by ringlet.metric in a package, they are found by their names"
        )


def metric(function: Function | None = None, *, name: str = "", higher_is_better: bool = False) -> Any:
    """Enter a function as a metric: a decorator, with or without arguments. The result is the metric's class."""

    def enter(found: Function) -> type[FunctionMetric]:
        return metric_of(found, name, METRICS, higher_is_better=higher_is_better)

    return enter if function is None else enter(function)


def metric_of(
    function: Function, name: str = "", registry: Registry[Any] | None = None, *, higher_is_better: bool = False
) -> type[FunctionMetric]:
    """The class of a function's metric; without a ``registry`` no one else finds it."""
    if not callable(function):
        raise UsageError(f"a metric must be a name, a ringlet Metric or a function, got {show(function)}")
    about = {
        "__module__": getattr(function, "__module__", __name__),
        "__qualname__": getattr(function, "__qualname__", "function"),
        "__doc__": function.__doc__ or "A function.",
        "__annotations__": {"name": ClassVar[str], "registry": ClassVar[Any], "higher_is_better": ClassVar[bool]},
        "name": name or getattr(function, "__name__", "metric"),
        "registry": registry,
        "higher_is_better": higher_is_better,
        "function": staticmethod(function),
    }
    return type("FunctionMetric", (FunctionMetric,), about)
