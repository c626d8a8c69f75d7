"""Weights & Biases: options, metrics and the outcome of a run, through its own client.

Without a key of the service, and without WANDB_MODE, the run is kept offline in its own folder: ``wandb sync`` sends it
whenever that is wanted.
"""

from __future__ import annotations

import json
import os
import time
from netrc import NetrcParseError, netrc
from pathlib import Path
from typing import Any, ClassVar, Literal, final
from urllib.parse import urlsplit

from ringlet.component import option
from ringlet.errors import UsageError
from ringlet.io.disk import write_whole
from ringlet.libraries import require
from ringlet.trackers.base import Tracker, Values
from ringlet.trackers.registry import TrackerConfig
from ringlet.training.events import RunStarted

PROJECT = "ringlet"
MEMORY_FILE = "wandb-run.json"
MODE_VARIABLE = "WANDB_MODE"
SERVICE = "https://api.wandb.ai"
_MEMORY_SECONDS = 2.0
Mode = Literal["online", "offline", "disabled"]


@final
class WandB(Tracker):
    """Logs as a run called ``name`` of ``project``; what W&B keeps locally goes into ``folder``.

    ``mode`` is online, offline or disabled; without one WANDB_MODE counts, else a key of the service: online with one,
    offline without. ``memory`` is a file that keeps the id of the W&B run and its last step, so that a resumed run
    continues it. W&B cannot take back what it has: points that it holds already are not sent again.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        project: str = PROJECT,
        entity: str | None = None,
        name: str = "",
        mode: Mode | None = None,
        memory: Path | None = None,
    ) -> None:
        super().__init__()
        self._folder, self._project, self._entity, self._name = Path(folder), project, entity, name
        self._mode, self._memory = mode, memory
        self._known = self._last = -1
        self._kept = 0.0
        self._run: Any = None

    def open(self) -> None:
        """Begin a W&B run, or take up the one that was begun before."""
        wandb = require("wandb")
        before = self._remembered()
        self.mode = self._mode or os.environ.get(MODE_VARIABLE) or ("online" if has_key() else "offline")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._run = wandb.init(
                project=self._project,
                entity=self._entity,
                name=self._name or None,
                dir=str(self._folder),
                id=before.get("id"),
                resume="allow",
                mode=self.mode,
                settings=wandb.Settings(silent=True, console="off"),
            )
        except (wandb.errors.Error, OSError) as error:
            raise UsageError(f"Weights & Biases cannot log to project '{self._project}': {error}") from error
        self._known = self._last = int(before.get("step", -1))
        self._remember()

    @property
    def run_id(self) -> str:
        """The id of the W&B run."""
        return str(self._run.id)

    def describe(self, event: RunStarted) -> None:
        """Options as the run's configuration."""
        values = {**event.config, "num_workers": event.num_workers, "num_parameters": event.num_parameters}
        self._run.config.update(values, allow_val_change=True)

    def resume(self, step: int) -> None:
        """What W&B holds of later steps stays: the same steps give the same points again."""

    def write(self, step: int, values: Values) -> None:
        """Metrics at a step; those that an earlier attempt has sent are left out."""
        if step <= self._known:
            return
        self._run.log(values, step=step)
        self._last = max(self._last, step)
        if time.monotonic() - self._kept >= _MEMORY_SECONDS:
            self._remember()

    def end(self, outcome: str) -> None:
        """Send the rest and say how the run ended."""
        self._remember()
        self._run.finish(exit_code=0 if outcome == "finished" else 1)

    def _remembered(self) -> dict[str, Any]:
        if self._memory is None or not self._memory.is_file():
            return {}
        try:
            stored = json.loads(self._memory.read_text(encoding="utf-8"))
            return {"id": str(stored["id"]), "step": int(stored["step"])}
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"'{self._memory}' does not say which run of Weights & Biases to continue ({error}): delete it to "
                "begin another"
            ) from None

    def _remember(self) -> None:
        self._kept, memory = time.monotonic(), self._memory
        if memory is not None:
            text = json.dumps({"id": self.run_id, "step": self._last})
            self.save(lambda: write_whole(memory, f"{text}\n".encode(), durable=False))


def has_key() -> bool:
    """Whether there is a key of the service, where `wandb login` and its manual put it."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = urlsplit(os.environ.get("WANDB_BASE_URL") or SERVICE).hostname or ""
    try:
        return netrc(os.environ.get("NETRC")).authenticators(host) is not None
    except (OSError, NetrcParseError):
        return False


@final
class WandBConfig(TrackerConfig):
    """Weights & Biases: metrics and options, online with a key of the service, else offline."""

    name: ClassVar[str] = "wandb"
    argument: ClassVar[str] = "project"
    library: ClassVar[str | None] = "wandb"
    project: str = option(PROJECT, "project of the run", min_length=1)
    entity: str | None = option(None, "user or team; default: that of the key")
    mode: Mode | None = option(None, "online, offline or disabled; default: WANDB_MODE, else online if there is a key")

    def build(self, run_directory: Path) -> WandB:
        """The tracker of a run."""
        folder = run_directory.resolve()
        memory = folder / MEMORY_FILE
        return WandB(folder, project=self.project, entity=self.entity, name=folder.name, mode=self.mode, memory=memory)
