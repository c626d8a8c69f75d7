"""Names in a configuration that nothing goes by: found without loading data or computing anything."""

from __future__ import annotations

from collections.abc import Callable

from ringlet import optim
from ringlet.config import RunConfig
from ringlet.data.registry import check_name
from ringlet.errors import RingletError
from ringlet.models import zoo
from ringlet.training.metrics import canonical_name, split_losses


def unknown_names(config: RunConfig) -> dict[str, str]:
    """Options whose value nothing goes by, each with what is wrong."""
    checks: dict[str, Callable[[], object]] = {
        "model": lambda: zoo.describe(config.model),
        "model_options": lambda: _network(config),
        "dataset": lambda: check_name(config.dataset),
        "optimizer": lambda: optim.options(config.optimizer),
        "loss_func": lambda: split_losses(config.loss_func or ""),
        "metrics": lambda: [canonical_name(name) for name in config.metrics or ()],
    }
    problems: dict[str, str] = {}
    for option, check in checks.items():
        if option == "model_options" and "model" in problems:
            continue
        try:
            check()
        except RingletError as error:
            problems[option] = str(error)
    return problems


def _network(config: RunConfig) -> object:
    return zoo.create(
        config.model, input_shape=config.input_shape, num_classes=config.num_classes, **config.model_options
    )
