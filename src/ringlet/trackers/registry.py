"""Trackers by name, with their options: those of Ringlet, then those of plugins."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ringlet.component import Component, Registry
from ringlet.libraries import check_installed

if TYPE_CHECKING:
    from ringlet.training.observers import Callback

TRACKERS: Registry[type[TrackerConfig]] = Registry("tracker", package="ringlet.trackers", group="trackers")


class TrackerConfig(Component, ABC):
    """A tracker by its name and options."""

    registry: ClassVar[Registry[Any] | None] = TRACKERS
    library: ClassVar[str | None] = None
    """The package that it needs."""

    def check_library(self) -> None:
        """Say how to get the package, if it is not installed."""
        if self.library is not None:
            check_installed(self.library)

    @abstractmethod
    def build(self, run_directory: Path) -> Callback:
        """The tracker of a run; nothing is opened before the first event."""
