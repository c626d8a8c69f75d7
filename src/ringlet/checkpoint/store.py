"""The checkpoints of a run: written atomically, verified when read, the newest good one found."""

from __future__ import annotations

import logging
import os
import re
import secrets
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, final

from numpy.typing import NDArray

from ringlet.checkpoint.atomic import Content, LocalDirectories
from ringlet.checkpoint.contents import (
    HISTORY,
    MODEL,
    OPTIMIZER,
    Checkpoint,
    Entry,
    check,
    check_optimizer,
    read_history,
    read_tensors,
    write_history,
    write_tensors,
)
from ringlet.checkpoint.manifest import MANIFEST, Manifest, read_manifest, read_verified
from ringlet.checkpoint.remote import RemoteDirectories
from ringlet.errors import (
    CheckpointError,
    ModelFileError,
    NewerCheckpointError,
    NewerModelFileError,
    UnreadableCheckpointError,
    show,
)
from ringlet.io.storage import Address, Place, place_of
from ringlet.models.files import NetworkFile, load_network_file, write_model
from ringlet.operations.attributes import is_integer

_STEP = re.compile(r"step-([0-9]{8,15})")
_FACTS = frozenset({"step", "training", "config", "versions", "optimizer"})
_OWN_FILES = frozenset({MODEL, OPTIMIZER, HISTORY, MANIFEST})


@final
class CheckpointStore:
    """The directory ``<run>/checkpoints``, or an address such as ``s3://bucket/run``; one process writes, any may read.

    ``say`` is called with one line for everything that a user should hear of: damage, what is used instead, what was
    left alone. Nothing in the directory that is not recognised is ever changed.
    """

    def __init__(self, path: str | os.PathLike[str] | Address, say: Callable[[str], object] | None = None) -> None:
        self.path: Place = place_of(path)
        self._directories = _directories_at(self.path)
        self.say = logging.getLogger("ringlet").warning if say is None else say
        self._prepared = False
        self._good: set[int] = set()

    # -- looking ------------------------------------------------------------------------------------------------------
    def steps(self) -> list[int]:
        """The steps of all checkpoints, good or not, in order."""
        try:
            names = self._directories.names(_is_checkpoint)
        except OSError as error:
            raise CheckpointError(f"cannot read {self.path}: {error.strerror}") from None
        return sorted(step for step in map(_step_of, names) if step is not None)

    def entries(self, *, verify: bool = False) -> list[Entry]:
        """All checkpoints in order; with ``verify`` each is read completely, and ``problem`` says what is wrong."""
        found = (self._entry(step) for step in self.steps())
        return [self._verified(entry) if verify else entry for entry in found if entry is not None]

    def _entry(self, step: int) -> Entry | None:
        path = self.directory(step)
        try:
            return Entry(step, path, *self._directories.about(path.name))
        except FileNotFoundError:
            return None
        except OSError as error:
            return Entry(step, path, 0, 0.0, f"cannot be read: {error.strerror}", UnreadableCheckpointError.state)

    def _verified(self, entry: Entry) -> Entry:
        try:
            content = self._load(entry.step)
        except CheckpointError as error:
            return replace(entry, problem=str(error), state=error.state)
        return replace(entry, checkpoint=replace(content, tensors={}, optimizer={}, history=()))

    def directory(self, step: int) -> Place:
        """Where the checkpoint of a step is, if it exists."""
        return self.path / f"step-{step:08d}"

    # -- reading ------------------------------------------------------------------------------------------------------
    def load(self, step: int) -> Checkpoint:
        """The checkpoint of ``step`` after everything about it was verified; otherwise CheckpointError."""
        if step not in self.steps():
            there = ", ".join(map(str, self.steps()[-8:])) or "none"
            raise CheckpointError(f"there is no checkpoint of step {step} in {self.path}; the newest are: {there}")
        try:
            return self._load(step)
        except CheckpointError as error:
            raise type(error)(self._described(step, error)) from None

    def newest(self, at_most: int | None = None) -> Checkpoint | None:
        """The newest good checkpoint (of a step up to ``at_most``); None if there are none at all.

        Those that cannot be used are named with the reason and with what is used instead. If none can be used, that is
        an error: only the user can decide to start from scratch.
        """
        unusable: list[str] = []
        for step in reversed(self.steps()):
            if at_most is not None and step > at_most:
                continue
            try:
                found = self._load(step)
            except CheckpointError as error:
                unusable.append(self._described(step, error))
                continue
            for remark in unusable:
                self.say(f"{remark}. Step {step} is used instead")
            return found
        if unusable:
            advice = "no other checkpoint is left: repair the storage or take the version of Ringlet that wrote them, "
            raise CheckpointError("\n".join([*unusable, advice + "or choose another --run-dir to start from scratch"]))
        return None

    def last_training(self) -> dict[str, Any]:
        """What the newest readable manifest says about training, without a look at the other files; else nothing."""
        for step in reversed(self.steps()):
            try:
                with self._directories.opened(self.directory(step).name, manifest_only=True) as directory:
                    manifest = read_manifest(directory)
                _check_facts(manifest, step)
            except CheckpointError:
                continue
            training: dict[str, Any] = manifest.facts["training"]
            return training
        return {}

    def _described(self, step: int, error: CheckpointError) -> str:
        """Why a checkpoint cannot be used. Only one that is damaged is lost."""
        return f"checkpoint {self.directory(step)} is {error.state}: {error}"

    def _load(self, step: int) -> Checkpoint:
        self._good.discard(step)
        with self._directories.opened(self.directory(step).name) as directory:
            manifest = read_verified(directory)
            names = _check_facts(manifest, step)
            model = _load_model(directory / MODEL)
            history = read_history(directory / HISTORY) if HISTORY in manifest.files else []
            optimizer = read_tensors(directory / OPTIMIZER) if names else {}
        if sorted(optimizer) != names:
            raise CheckpointError(f"{OPTIMIZER} holds {sorted(optimizer)}, the manifest says {names}")
        check_optimizer(model.spec, optimizer)
        facts = {name: manifest.facts[name] for name in ("training", "config", "versions")}
        found = Checkpoint(step, model.spec, model.tensors, model.metadata, optimizer, history=history, **facts)
        check(found)
        self._good.add(step)
        return found

    # -- writing ------------------------------------------------------------------------------------------------------
    def prepare(self) -> None:
        """Make the directory and remove what dead writers left; the first :meth:`write` does it too."""
        try:
            remarks = self._directories.prepare(_is_checkpoint, _OWN_FILES.__contains__)
        except OSError as error:
            raise CheckpointError(f"cannot write to {self.path}: {error.strerror}") from None
        for remark in remarks:
            self.say(remark)
        self._prepared = True

    def write(self, checkpoint: Checkpoint) -> Place:
        """Write a checkpoint durably and give its directory.

        One of the same step that holds the same state stays as it is; any other is renamed first, and that is said.
        """
        check(checkpoint)
        if not self._prepared:
            self.prepare()
        target = self.directory(checkpoint.step)
        if checkpoint.step in self.steps():
            try:
                present = self._load(checkpoint.step)
            except CheckpointError as error:
                self._set_aside(target, error.state, self._described(checkpoint.step, error))
            else:
                if _same_state(present, checkpoint):
                    return target
                self._set_aside(target, "superseded", f"checkpoint {target} holds another state of step {present.step}")
        files, facts = _files(checkpoint), _facts(checkpoint)
        self._directories.write(target.name, files, facts, num_bytes=checkpoint.num_bytes)
        self._good.add(checkpoint.step)
        return target

    def _set_aside(self, path: Place, state: str, why: str) -> None:
        """A checkpoint in the way of a new one is renamed, never deleted: someone may want it back."""
        aside = f"{path.name}.{state.replace(' ', '-')}-{secrets.token_hex(3)}"
        try:
            self._directories.rename(path.name, aside)
        except OSError as error:
            raise CheckpointError(f"cannot replace checkpoint {path}: {error.strerror}") from None
        self.say(f"{why}. It was renamed to {aside} and is written again")

    # -- removing -----------------------------------------------------------------------------------------------------
    def prune(self, keep: int, protected_steps: Collection[int] = ()) -> list[int]:
        """Remove all but the newest ``keep`` and the protected ones; gives the removed steps.

        Nothing is removed before the newest one is known to be good.
        """
        if keep < 1:
            raise CheckpointError(f"keep = {keep}: expected at least 1 checkpoint to keep")
        steps = self.steps()
        doomed = [step for step in steps[:-keep] if step not in protected_steps]
        if not doomed or not self._is_good(steps[-1]):
            return []
        return [step for step in doomed if self.remove(step)]

    def move_after(self, step: int, target: Path) -> list[int]:
        """Move the checkpoints of later steps, whatever their state, into a folder; gives their steps in order.

        The latest goes first: after a crash in between, what is left here is an earlier state of the same run.
        """
        later = [other for other in self.steps() if other > step]
        self._good.difference_update(later)
        try:
            self._directories.move([self.directory(other).name for other in reversed(later)], target)
        except OSError as error:
            raise CheckpointError(f"cannot move checkpoints from {self.path} to {target}: {error.strerror}") from None
        return later

    def remove(self, step: int) -> bool:
        """Remove one checkpoint; one that holds anything foreign is left alone, and that is said."""
        path = self.directory(step)
        self._good.discard(step)
        try:
            problem = self._directories.remove(path.name, _OWN_FILES.__contains__)
        except OSError as error:
            problem = error.strerror or str(error)
        if problem is not None:
            self.say(f"checkpoint {path} was not removed: {problem}")
        return problem is None

    def _is_good(self, step: int) -> bool:
        if step not in self._good:
            try:
                self._load(step)
            except CheckpointError as error:
                self.say(f"{self._described(step, error)}. Older ones are kept for now")
                return False
        return True


def _step_of(name: str) -> int | None:
    """The step of a directory's name, if it is a checkpoint's and written the one way it is written."""
    match = _STEP.fullmatch(name)
    return int(match[1]) if match and name == f"step-{int(match[1]):08d}" else None


def _is_checkpoint(name: str) -> bool:
    return _step_of(name) is not None


def _directories_at(place: Place) -> LocalDirectories | RemoteDirectories:
    return LocalDirectories(place) if isinstance(place, Path) else RemoteDirectories(place)


def _files(checkpoint: Checkpoint) -> dict[str, Content]:
    model = partial(write_model, spec=checkpoint.spec, tensors=checkpoint.tensors, metadata=checkpoint.metadata)
    files: dict[str, Content] = {MODEL: model}
    if checkpoint.optimizer:
        files[OPTIMIZER] = partial(write_tensors, arrays=checkpoint.optimizer)
    if checkpoint.history:
        files[HISTORY] = partial(write_history, rows=checkpoint.history)
    return files


def _load_model(path: Path) -> NetworkFile:
    try:
        return load_network_file(path)
    except NewerModelFileError as error:
        raise NewerCheckpointError(str(error)) from None
    except ModelFileError as error:
        unreadable = isinstance(error.__cause__, OSError)
        raise (UnreadableCheckpointError if unreadable else CheckpointError)(str(error)) from None


def _same_state(one: Checkpoint, other: Checkpoint) -> bool:
    """Whether two checkpoints hold the same network, weights and optimizer state, to the bit."""
    if one.spec != other.spec:
        return False
    pairs = ((one.tensors, other.tensors), (one.optimizer, other.optimizer))
    return all(
        mine.keys() == theirs.keys() and all(_same_bits(mine[name], theirs[name]) for name in mine)
        for mine, theirs in pairs
    )


def _same_bits(one: NDArray[Any], other: NDArray[Any]) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


def _facts(checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        "step": int(checkpoint.step),
        "training": checkpoint.training,
        "config": checkpoint.config,
        "versions": dict(checkpoint.versions),
        "optimizer": sorted(checkpoint.optimizer),
    }


def _check_facts(manifest: Manifest, step: int) -> list[str]:
    """The names of the optimizer's arrays, after the manifest's facts were found to be a checkpoint's."""
    facts = manifest.facts
    if facts.keys() != _FACTS:
        raise CheckpointError(f"{MANIFEST} holds {sorted(facts)}, expected {sorted(_FACTS)}")
    if not is_integer(facts["step"]) or facts["step"] != step:
        raise CheckpointError(f"{MANIFEST} is of step {show(facts['step'])}, its directory of step {step}")
    for name in ("training", "config", "versions"):
        if not isinstance(facts[name], dict):
            raise CheckpointError(f"{MANIFEST}: {name} is {show(facts[name])}, expected a mapping")
    names = facts["optimizer"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise CheckpointError(f"{MANIFEST}: optimizer is {show(names)}, expected names")
    expected = {MODEL, OPTIMIZER} if names else {MODEL}
    if manifest.files.keys() - {HISTORY} != expected:
        raise CheckpointError(f"{MANIFEST} lists the files {sorted(manifest.files)}, expected {sorted(expected)}")
    return names
