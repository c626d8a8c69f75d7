"""The checkpoints of a run: written atomically, verified when read, the newest good one found."""

from __future__ import annotations

import logging
import os
import re
import secrets
import stat
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, final

from ringlet.checkpoint.atomic import (
    Content,
    make_directory,
    remove_directory,
    remove_partials,
    synchronise,
    write_directory,
)
from ringlet.checkpoint.contents import MODEL, OPTIMIZER, Checkpoint, Entry, check, check_optimizer
from ringlet.checkpoint.manifest import MANIFEST, Manifest, read_verified
from ringlet.checkpoint.tensors import read_tensors, write_tensors
from ringlet.errors import CheckpointError, ModelFileError
from ringlet.models.attributes import is_integer, show
from ringlet.models.files import load_model_file, write_model

_STEP = re.compile(r"step-([0-9]{8,15})")
_FACTS = frozenset({"step", "training", "config", "versions", "optimizer"})
_OWN_FILES = frozenset({MODEL, OPTIMIZER, MANIFEST})


@final
class CheckpointStore:
    """The directory ``<run>/checkpoints``; one process writes to it, any may read.

    ``say`` is called with one line for everything that a user should hear of: damage, what is used instead, what was
    left alone. Nothing in the directory that is not recognised is ever changed.
    """

    def __init__(self, path: str | os.PathLike[str], say: Callable[[str], object] | None = None) -> None:
        self.path = Path(path)
        self.say = logging.getLogger("ringlet").warning if say is None else say
        self._prepared = False
        self._good: set[int] = set()

    # -- looking ------------------------------------------------------------------------------------------------------
    def steps(self) -> list[int]:
        """The steps of all checkpoints, good or not, in order."""
        try:
            names = [path.name for path in self.path.iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []
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
            status = path.lstat()
            sizes = (
                [file.stat(follow_symlinks=False).st_size for file in os.scandir(path)]
                if stat.S_ISDIR(status.st_mode)
                else []
            )
        except FileNotFoundError:
            return None
        except OSError as error:
            return Entry(step, path, 0, 0.0, f"cannot be read: {error.strerror}")
        return Entry(step, path, sum(sizes), status.st_mtime)

    def _verified(self, entry: Entry) -> Entry:
        try:
            content = self._load(entry.step)
        except CheckpointError as error:
            return replace(entry, problem=str(error))
        return replace(entry, checkpoint=replace(content, tensors={}, optimizer={}))

    def directory(self, step: int) -> Path:
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
            raise CheckpointError(f"checkpoint {self.directory(step)} is damaged: {error}") from None

    def newest(self, at_most: int | None = None) -> Checkpoint | None:
        """The newest good checkpoint (of a step up to ``at_most``); None if there are none at all.

        Damaged ones are named with the reason and with what is used instead. If all are damaged, that is an error:
        whoever wants to begin anew has to say so.
        """
        damaged: list[str] = []
        for step in reversed(self.steps()):
            if at_most is not None and step > at_most:
                continue
            try:
                found = self._load(step)
            except CheckpointError as error:
                damaged.append(f"checkpoint {self.directory(step)} is damaged: {error}")
                continue
            for remark in damaged:
                self.say(f"{remark}. Step {step} is used instead")
            return found
        if damaged:
            raise CheckpointError("\n".join([*damaged, "no other checkpoint is left: delete them to begin anew"]))
        return None

    def _load(self, step: int) -> Checkpoint:
        self._good.discard(step)
        directory = self.directory(step)
        manifest = read_verified(directory)
        names = _check_facts(manifest, step)
        try:
            model = load_model_file(directory / MODEL)
        except ModelFileError as error:
            raise CheckpointError(str(error)) from None
        optimizer = read_tensors(directory / OPTIMIZER) if names else {}
        if sorted(optimizer) != names:
            raise CheckpointError(f"{OPTIMIZER} holds {sorted(optimizer)}, the manifest says {names}")
        check_optimizer(model.spec, optimizer)
        facts = {name: manifest.facts[name] for name in ("training", "config", "versions")}
        found = Checkpoint(step, model.spec, model.tensors, model.metadata, optimizer, **facts)
        check(found)
        self._good.add(step)
        return found

    # -- writing ------------------------------------------------------------------------------------------------------
    def prepare(self) -> None:
        """Make the directory and remove what dead writers left; the first :meth:`write` does it too."""
        make_directory(self.path)
        try:
            remarks = remove_partials(self.path, lambda name: _step_of(name) is not None, _OWN_FILES.__contains__)
        except OSError as error:
            raise CheckpointError(f"cannot write to {self.path}: {error.strerror}") from None
        for remark in remarks:
            self.say(remark)
        self._prepared = True

    def write(self, checkpoint: Checkpoint) -> Path:
        """Write a checkpoint durably and give its directory; a good one of the same step stays as it is."""
        check(checkpoint)
        if not self._prepared:
            self.prepare()
        target = self.directory(checkpoint.step)
        if os.path.lexists(target):
            try:
                self._load(checkpoint.step)
            except CheckpointError as error:
                self._set_aside(target, error)
            else:
                return target
        write_directory(target, _files(checkpoint), _facts(checkpoint), num_bytes=checkpoint.num_bytes)
        self._good.add(checkpoint.step)
        return target

    def _set_aside(self, path: Path, why: CheckpointError) -> None:
        """A damaged checkpoint in the way of a new one is renamed, never deleted: it may be mended by hand."""
        aside = path.with_name(f"{path.name}.damaged-{secrets.token_hex(3)}")
        try:
            path.rename(aside)
        except OSError as error:
            raise CheckpointError(f"cannot replace damaged checkpoint {path}: {error.strerror}") from None
        self.say(f"checkpoint {path} is damaged: {why}. It was renamed to {aside.name} and is written anew")

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

    def remove_after(self, step: int) -> list[int]:
        """Remove the checkpoints of later steps: for a run that goes on from an earlier one in another way."""
        return [later for later in reversed(self.steps()) if later > step and self.remove(later)]

    def remove(self, step: int) -> bool:
        """Remove one checkpoint; one that holds anything foreign is left alone, and that is said."""
        path = self.directory(step)
        self._good.discard(step)
        try:
            problem = remove_directory(path, _OWN_FILES.__contains__)
            synchronise(self.path)
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
                self.say(f"checkpoint {self.directory(step)} is damaged: {error}. Older ones are kept for now")
                return False
        return True


def _step_of(name: str) -> int | None:
    """The step of a directory's name, if it is a checkpoint's and written the one way it is written."""
    match = _STEP.fullmatch(name)
    return int(match[1]) if match and name == f"step-{int(match[1]):08d}" else None


def _files(checkpoint: Checkpoint) -> dict[str, Content]:
    model = partial(write_model, spec=checkpoint.spec, tensors=checkpoint.tensors, metadata=checkpoint.metadata)
    files: dict[str, Content] = {MODEL: model}
    if checkpoint.optimizer:
        files[OPTIMIZER] = partial(write_tensors, arrays=checkpoint.optimizer)
    return files


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
    if manifest.files.keys() != expected:
        raise CheckpointError(f"{MANIFEST} lists the files {sorted(manifest.files)}, expected {sorted(expected)}")
    return names
