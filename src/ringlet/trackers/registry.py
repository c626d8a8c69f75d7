"""Trackers by name: those of Ringlet, then those of plugins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TypeAlias

from ringlet import plugins
from ringlet.errors import UsageError
from ringlet.libraries import check_installed
from ringlet.training.observers import Callback

BUILT_IN = {"tensorboard": "tensorboard", "mlflow": "mlflow", "prometheus": "prometheus_client"}
"""The trackers of Ringlet, and the library that each needs."""
Factory: TypeAlias = Callable[[str, Path], Callback]
"""Makes a tracker from what stands behind the colon of its name (may be empty) and the run directory."""


def find_trackers(texts: Sequence[str]) -> Callable[[Path], list[Callback]]:
    """What makes the trackers ``NAME`` or ``NAME:ARGUMENT`` for a run directory; unknown names are errors at once."""
    parts = [text.strip().partition(":") for text in texts]
    named = [(_find(name.strip().lower()), argument) for name, _, argument in parts]
    heads = [name for name, _, _ in parts]
    if len(set(heads)) < len(heads):
        raise UsageError(f"log = {','.join(texts)} names a tracker twice: give each once")
    return lambda run_directory: [factory(argument, run_directory) for factory, argument in named]


def _find(name: str) -> Factory:
    if name in BUILT_IN:
        check_installed(BUILT_IN[name])
        factory: Factory = import_module(f"ringlet.trackers.{name}").create
        return factory
    plugin = plugins.find("trackers", name)
    if plugin is None:
        raise plugins.unknown("tracker", name, BUILT_IN, "trackers")
    if not callable(plugin):
        raise plugins.not_a("trackers", name, "a function of an argument and the run directory")
    made: Factory = plugin
    return made
