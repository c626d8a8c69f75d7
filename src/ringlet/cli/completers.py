"""Values that can be completed: networks, data sets, optimizers, run directories. Nothing heavy is imported for them.

Each function takes the text typed so far and gives (value, meaning) pairs; it is the ``autocompletion`` of a parameter.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator

Pairs = list[tuple[str, str]]
Completer = Callable[[str], Pairs]

RUNS, CONFIG = "runs", "config.toml"
MODEL_ENDINGS = (".safetensors", ".xml", ".onnx", ".py", ".keras")
MAX_ENTRIES = 2000


def models(incomplete: str) -> Pairs:
    """The networks of the zoo."""
    from ringlet.models import zoo

    return [(name, zoo.describe(name).summary) for name in zoo.names() if name.startswith(incomplete)]


def datasets(incomplete: str) -> Pairs:
    """The data sets; behind ``folder:`` and the like, paths."""
    from ringlet.data.formats import DATASETS

    kind, colon, path = incomplete.partition(":")
    own = [entry.name for entry in DATASETS.entries() if entry.origin == "your files"]
    if colon and kind in own:
        return [(f"{kind}:{found}", "") for found in _paths(path)]
    return [(f"{entry.name}:" if entry.name in own else entry.name, entry.summary()) for entry in DATASETS.entries()]


def fetched(incomplete: str) -> Pairs:  # noqa: ARG001
    """The data sets that can be downloaded."""
    from ringlet.data.formats import DATASETS

    return [(entry.name, entry.summary()) for entry in DATASETS.entries() if entry.origin == "downloadable"]


def runs(incomplete: str) -> Pairs:
    """Run directories: those of the usual folder, newest first, and whatever the path typed so far leads to."""
    usual = [(path, "run") for path in _run_directories(RUNS)] if RUNS.startswith(incomplete.split("/")[0]) else []
    own = [(path, "run" if _is_run(path) else "") for path in _paths(incomplete) if path.endswith("/")]
    return list(dict(usual + [(path.rstrip("/") if kind else path, kind) for path, kind in own]).items())


def trained(incomplete: str) -> Pairs:
    """Run directories and files of trained models."""
    files = [(path, "model") for path in _paths(incomplete) if path.endswith(MODEL_ENDINGS)]
    return [*runs(incomplete), *files]


def of_run_option(name: str) -> Completer:
    """What completes an option of a run: by what it names, else by the values that the configuration knows."""

    def complete(incomplete: str) -> Pairs:
        if name in OWN_COMPLETERS:
            return OWN_COMPLETERS[name](incomplete)
        from ringlet.config.describe import metavar, option_values
        from ringlet.config.names import annotation_of, locate

        alias, values = locate(name), option_values(name)
        takes_several = alias is not None and metavar(annotation_of(alias.path)) == "NAME,…"
        return _some_of(values)(incomplete) if takes_several else [(value, "") for value in values]

    return complete


def _losses(incomplete: str) -> Pairs:
    from ringlet.losses import LOSSES
    from ringlet.metrics import METRICS

    return _some_of(dict.fromkeys(LOSSES.names() + METRICS.names()))(incomplete)


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


OWN_COMPLETERS: dict[str, Completer] = {
    **dict.fromkeys(("model", "model.name"), models),
    **dict.fromkeys(("dataset", "dataset.name"), datasets),
    **dict.fromkeys(("loss_func", "training.loss"), _losses),
    **dict.fromkeys(("checkpoint_every", "checkpoint.every"), lambda _: [("auto", ""), ("never", "")]),
    **dict.fromkeys(("resume", "checkpoint.resume"), lambda _: [("auto", ""), ("epoch:", "")]),
}
"""Options of a run whose values are known by more than their type."""
