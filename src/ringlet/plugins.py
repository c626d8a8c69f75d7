"""What other packages add to Ringlet, found by their entry points.

A package that declares ``[project.entry-points."ringlet.models"]`` adds networks; the other groups are
``ringlet.datasets``, ``ringlet.losses``, ``ringlet.metrics``, ``ringlet.operations``, ``ringlet.strategies`` and
``ringlet.trackers``. Names of Ringlet itself
come first: plugins are looked for only when a name is not built in, or when somebody asks for a list, since a search
through all installed packages takes time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

from ringlet.errors import UnknownNameError, UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Kind = Literal[
    "augmentations",
    "compressions",
    "databases",
    "datasets",
    "engines",
    "exporters",
    "losses",
    "metrics",
    "models",
    "operations",
    "optimizers",
    "schedules",
    "searches",
    "strategies",
    "trackers",
]


def names(kind: Kind) -> list[str]:
    """The names that installed packages add; nothing is imported."""
    return sorted(_found(kind))


def find(kind: Kind, name: str) -> Any | None:
    """What a plugin offers under ``name``; None if none does. Case, ``-`` and ``_`` make no difference."""
    wanted = _key(name)
    return next((load(kind, known) for known in _found(kind) if _key(known) == wanted), None)


def load(kind: Kind, name: str) -> Any:
    """Import what an entry point names; a plugin that cannot be imported is an error that says whose it is."""
    point = _found(kind)[name]
    try:
        return point.load()
    except Exception as error:  # whatever somebody else's code raises
        raise UsageError(
            f"plugin '{name}' ({_origin(point)}) cannot be loaded: {type(error).__name__}: {error}. "
            "Update or uninstall that package"
        ) from error


def origin(kind: Kind, name: str) -> str:
    """Which package a plugin comes from, with its version."""
    return next((_origin(point) for known, point in _found(kind).items() if _key(known) == _key(name)), "a package")


def not_a(kind: Kind, name: str, expected: str) -> UsageError:
    """The error for a plugin that offers something else than its group is for."""
    return UsageError(f"plugin '{name}' ({origin(kind, name)}) does not fit: expected {expected}")


def unknown(what: str, name: str, built_in: Iterable[str], kind: Kind) -> UnknownNameError:
    """The error for a name that neither Ringlet nor a plugin has."""
    return UnknownNameError(what, name, [*built_in, *names(kind)])


def _found(kind: Kind) -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points  # takes longer than all else here

    return {point.name: point for point in entry_points(group=f"ringlet.{kind}")}


def _origin(point: EntryPoint) -> str:
    return "a package" if point.dist is None else f"{point.dist.name} {point.dist.version}"


def _key(name: str) -> str:
    return name.strip().lower().replace("-", "").replace("_", "")
