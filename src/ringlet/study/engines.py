"""Engines as a study names them: ``native``, ``torch``, ``keras`` or ``keras:BACKEND``."""

from __future__ import annotations

import json
import os
from importlib.util import find_spec
from pathlib import Path

from ringlet.engines.keras import BACKENDS
from ringlet.engines.registry import ENGINES
from ringlet.errors import UnknownNameError, UsageError

BACKEND_VARIABLE = "KERAS_BACKEND"
NAMES = (*ENGINES, *(f"keras:{backend}" for backend in BACKENDS))


def resolve_engine(text: str) -> str:
    """The full name, with the backend that Keras is set to where none is given; an engine that is missing raises."""
    name = text.strip().lower()
    if name not in NAMES:
        raise UnknownNameError("engine", text, NAMES)
    engine, _, backend = name.partition(":")
    if engine == "keras":
        backend = backend or default_backend()
        _require(name, "keras", "keras")
        _require(name, backend, BACKENDS.get(backend, "keras"))
        return f"keras:{backend}"
    if engine == "torch":
        _require(name, "torch", "torch")
    return engine


def engine_and_backend(name: str) -> tuple[str, str | None]:
    """``keras:jax`` as (``keras``, ``jax``)."""
    engine, _, backend = name.partition(":")
    return engine, backend or None


def default_backend() -> str:
    """What Keras would run on: KERAS_BACKEND, its configuration file, or TensorFlow."""
    if os.environ.get(BACKEND_VARIABLE):
        return os.environ[BACKEND_VARIABLE]
    home = Path(os.environ.get("KERAS_HOME") or Path.home() / ".keras")
    try:
        stored = json.loads((home / "keras.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return "tensorflow"
    backend = stored.get("backend") if isinstance(stored, dict) else None
    return backend if isinstance(backend, str) and backend else "tensorflow"


def _require(name: str, module: str, extra: str) -> None:
    if find_spec(module) is None:
        raise UsageError(
            f"engine '{name}' needs {module}, which is not installed. Leave it out of the study, or install it with: "
            f'pip install "ringlet[{extra}]"'
        )
