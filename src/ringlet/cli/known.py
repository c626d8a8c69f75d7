"""Values that can be completed: networks, data sets, optimizers, run directories. Nothing heavy is imported for them.

Each function takes the text typed so far and gives (value, meaning) pairs; it is the ``autocompletion`` of a parameter.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

Pairs = list[tuple[str, str]]
Completer = Callable[[str], Pairs]

BUILT_IN = ("digits", "shapes", "synthetic")
FETCHED = ("mnist", "fashion-mnist", "cifar10", "cifar100")
OWN_FILES = ("folder", "idx", "imagenet", "masks", "npz")
OPTIMIZERS = ("sgd", "rmsprop", "adam", "adamw", "nadam", "adadelta", "lars")
LOSSES = ("categorical_cross_entropy", "binary_cross_entropy", "dice", "bce_dice", "mse", "mae")
METRICS = ("accuracy", "top5_accuracy", "hinge", "mse", "mae", "dice", "iou")
STRATEGIES = ("sync", "average:", "bmuf:", "async", "softsync:")
COMPRESSIONS = ("none", "fp16", "bf16", "topk:")
INTERVALS = ("auto", "never")
"""These lists are those of the packages that know them, which load NumPy; a test compares them."""

RUNS, CONFIG = "runs", "config.toml"
MODEL_ENDINGS = (".safetensors", ".xml", ".onnx", ".py", ".keras")
MAX_ENTRIES = 2000


def models(incomplete: str) -> Pairs:
    """The networks of the zoo."""
    from ringlet.models import zoo

    return [(name, zoo.describe(name).summary) for name in zoo.names() if name.startswith(incomplete)]


def datasets(incomplete: str) -> Pairs:
    """The data sets; behind ``folder:`` and the like, paths."""
    kind, colon, path = incomplete.partition(":")
    if colon and kind in OWN_FILES:
        return [(f"{kind}:{found}", "") for found in _paths(path)]
    built_in = [(name, "built in") for name in BUILT_IN]
    return [*built_in, *((name, "can be fetched") for name in FETCHED), *((f"{k}:", "your files") for k in OWN_FILES)]


def fetched(incomplete: str) -> Pairs:  # noqa: ARG001
    """The data sets that can be downloaded."""
    return [(name, "") for name in FETCHED]


def runs(incomplete: str) -> Pairs:
    """Run directories: those of the usual folder, newest first, and whatever the path typed so far leads to."""
    usual = [(path, "run") for path in _run_directories(RUNS)] if RUNS.startswith(incomplete.split("/")[0]) else []
    own = [(path, "run" if _is_run(path) else "") for path in _paths(incomplete) if path.endswith("/")]
    return list(dict(usual + [(path.rstrip("/") if kind else path, kind) for path, kind in own]).items())


def trained(incomplete: str) -> Pairs:
    """Run directories and files of trained models."""
    files = [(path, "model") for path in _paths(incomplete) if path.endswith(MODEL_ENDINGS)]
    return [*runs(incomplete), *files]


def of_run_option(name: str, annotation: Any) -> Completer | None:
    """What completes an option of a run; None: nothing is known of its values."""
    from ringlet.config.forms import choices

    values = choices(annotation)
    if name in RUN_OPTIONS or not values:
        return RUN_OPTIONS.get(name)
    return _some_of(values) if "tuple" in str(annotation) else _one_of(values)


def _one_of(values: Iterable[str]) -> Completer:
    def complete(incomplete: str) -> Pairs:  # noqa: ARG001
        return [(value, "") for value in values]

    return complete


def _some_of(values: Iterable[str]) -> Completer:
    """Values of a comma list, each once."""

    def complete(incomplete: str) -> Pairs:
        before, comma, _ = incomplete.rpartition(",")
        return [(f"{before}{comma}{value}", "") for value in values if value not in before.split(",")]

    return complete


def _paths(incomplete: str) -> Iterator[str]:
    """Folders (with a slash) and files that begin so, by name; hidden ones only if asked for."""
    folder, start = os.path.split(incomplete)
    for name, is_folder in _entries(folder or "."):
        if name.startswith(start) and (start or not name.startswith(".")):
            yield os.path.join(folder, name) + ("/" if is_folder else "")  # noqa: PTH118


def _run_directories(folder: str) -> list[str]:
    found = [f"{folder}/{name}" for name, is_folder in _entries(folder) if is_folder]
    return sorted((path for path in found if _is_run(path)), key=os.path.getmtime, reverse=True)


def _is_run(path: str) -> bool:
    return os.path.isfile(os.path.join(path, CONFIG))  # noqa: PTH113, PTH118


def _entries(folder: str) -> list[tuple[str, bool]]:
    try:
        with os.scandir(os.path.expanduser(folder)) as entries:  # noqa: PTH111
            found = [(entry.name, entry.is_dir()) for entry, _ in zip(entries, range(MAX_ENTRIES), strict=False)]
    except OSError:
        return []
    return sorted(found)


RUN_OPTIONS: dict[str, Completer] = {
    "model": models,
    "dataset": datasets,
    "optimizer": _one_of(OPTIMIZERS),
    "strategy": _one_of(STRATEGIES),
    "compression": _one_of(COMPRESSIONS),
    "loss_func": _some_of(LOSSES + METRICS),
    "metrics": _some_of(METRICS),
    "checkpoint_every": _one_of(INTERVALS),
    "resume": _one_of(("auto", "epoch:")),
}
"""Options of a run whose values are known by more than their type."""
