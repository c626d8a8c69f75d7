"""When checkpoints are written, what goes into them, and how a run resumes from one.

Every rank has a checkpointer: copying the state is a collective, writing it is the business of rank 0, in the
background.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

from ringlet.checkpoint import BackgroundWriter, Checkpoint, CheckpointStore
from ringlet.comm.contract import Op
from ringlet.config import Interval
from ringlet.engines.contract import FlatTensors, Floats
from ringlet.errors import CheckpointError
from ringlet.guards import faults
from ringlet.io.disk import Saving, Say
from ringlet.io.storage import Place
from ringlet.machine import software_versions
from ringlet.optim import Optimizer
from ringlet.strategies.finite import first_not_finite
from ringlet.training.divergence import check_finite
from ringlet.training.modules import restored_values, saved_tensors, share_kept
from ringlet.training.observers import RankObserver
from ringlet.training.progress import Progress

if TYPE_CHECKING:
    from ringlet.training.session import Session

AUTO_SECONDS = 10.0
"""Epochs may be shorter than writing a checkpoint: without an interval given there is so much time between two, …"""
AUTO_SHARE = 0.03
"""… and more, if they would cost a larger share of the time than this."""
SECONDS_TO_FINISH = 5.0
"""How long a run that fails waits for the checkpoint that is being written."""


@final
class Checkpointer(RankObserver):
    """Writes checkpoints of a session into ``directory`` by the configuration's rules.

    ``events_position`` tells how long the event log is (rank 0 only): a run that resumes from here cuts it there. A
    last checkpoint that cannot be written is an error at the end, or that of the caller who has given ``saving``.
    """

    def __init__(
        self,
        session: Session,
        directory: Place,
        say: Say,
        events_position: Callable[[], int] = lambda: 0,
        saving: Saving | None = None,
    ) -> None:
        self._session, self._events_position = session, events_position
        self._saving, self._must_check = saving or Saving(say), saving is None
        self._interval = Interval.parse(session.config.checkpoint.every)
        self._rank = session.strategy.comm.rank
        self._writer: BackgroundWriter | None = None
        self._store: CheckpointStore | None = None
        if self._rank == 0:
            self._store = CheckpointStore(directory, say=say)
            self._writer = BackgroundWriter(self._store)
        self._saved_step, self._saved_at, self._blocked = -1, monotonic(), 0.0
        # the run directory has a file with the best weights, which serves early_stopping; without one a checkpoint has
        self._saves_best = session.schedule.keeps_checkpoints or saving is None

    def after_step(self) -> None:
        """Save if the interval of steps is over; a step that ends an epoch is saved with what validation gives."""
        session = self._session
        if self._is_due_by_steps() and session.progress.step_in_epoch < session.num_steps_per_epoch:
            self.save()

    def _is_due_by_steps(self) -> bool:
        interval = self._interval
        return interval.unit == "steps" and self._session.progress.num_steps % interval.count == 0

    def take_outputs(self, indices: NDArray[np.int64], outputs: NDArray[Any]) -> None:
        """A checkpoint has none of them."""

    def after_validation(self, epoch: int) -> None:
        """What validation gave is saved with the epoch."""

    def after_epoch(self, *, is_best: bool) -> None:
        """Save if the interval of epochs is over, or if it is the best one so far."""
        due = self._is_due_by_steps() or (is_best and self._saves_best)
        if self._interval.unit == "epochs":
            due = due or self._session.progress.num_epochs % self._interval.count == 0
        if due or (self._interval.unit == "auto" and self._is_time()):
            self.save()

    def _is_time(self) -> bool:
        """Whether the last checkpoint is long enough ago for what it has cost; rank 0 has the clock."""
        is_time = np.zeros(1, bool)
        if self._writer is not None and not self._writer.busy:
            cost = self._blocked + self._writer.processor_seconds
            is_time[0] = monotonic() - self._saved_at >= max(AUTO_SECONDS, cost / AUTO_SHARE)
        return bool(self._session.strategy.comm.broadcast(is_time)[0])

    def finish(self) -> None:
        """Save the last state, if that was not done, and wait until it is on disk."""
        if self._session.progress.num_steps > 0:
            self.save()
        self._settle()
        if self._must_check:
            self._saving.check()
        self._session.strategy.comm.barrier()

    def abandon(self) -> None:
        """Training ends with an error: a checkpoint that is being written is worth a moment."""
        if self._writer is not None:
            self._writer.finish_within(SECONDS_TO_FINISH)

    def save(self) -> None:
        """Copy the state (all ranks) and write it (rank 0, in the background); each step once.

        A step that ends an epoch may be saved before its validation, if that is interrupted: a run that resumes from
        there validates.
        What is not finite is not written: DivergedError is raised on all ranks.
        """
        progress, comm = self._session.progress, self._session.strategy.comm
        if progress.num_steps == self._saved_step:
            return
        self._saved_step, self._saved_at = progress.num_steps, monotonic()
        self._settle()
        self._session.strategy.settle()
        comm.barrier()
        faults.reach("save", self._rank, progress.num_steps)
        values, optimizer = self._session.strategy.save()
        self._check_finite(values, optimizer)
        progress = progress_of_all_ranks(self._session)
        if self._writer is not None:
            self._writer.submit(self._checkpoint(values, optimizer, progress))
        self._blocked = monotonic() - self._saved_at

    def _check_finite(self, values: Floats, optimizer: Mapping[str, Any]) -> None:
        session = self._session
        saved = FlatTensors.allocate((*session.spec.parameters, *session.spec.state), values.dtype, values)
        consequence = "No checkpoint is written, older ones are kept"
        check_finite(session.strategy.comm, session.progress, saved, optimizer=optimizer, consequence=consequence)

    def _settle(self) -> None:
        """Wait for the last write; a failure is told and does not end the run."""
        if self._writer is None or self._store is None:
            return
        self._saving.attempt("checkpoint", self._writer.wait, is_needed=True, is_refusal=_is_unwritten)
        if self._session.config.checkpoint.keep:
            best = self._session.best.step
            self._store.prune(self._session.config.checkpoint.keep, () if best is None else (best,))

    def _checkpoint(self, values: Any, optimizer: Mapping[str, Any], progress: Progress) -> Checkpoint:
        session, comm = self._session, self._session.strategy.comm
        training = {
            "progress": progress.to_dict(),
            "optimizer": _described(session.given_optimizer),
            "schedule": session.schedule.state_dict(),
            "best_step": session.best.step,
            "events_bytes": self._events_position(),
            "global_batch_size": session.global_batch_size,
            "num_shards": session.strategy.num_shards,
            "num_workers": comm.size,
            "num_machines": len(comm.local_sizes),
            "stratified": session.dataset.is_stratified,
            "data": session.data_facts,
        }
        return Checkpoint(
            step=session.progress.num_steps,
            spec=session.spec,
            tensors=saved_tensors(session.replica, values),
            metadata=session.metadata,
            optimizer=optimizer if session.config.checkpoint.optimizer else {},
            training=training,
            history=tuple(progress.epochs),
            config=session.config.to_dict(),
            versions=software_versions(),
        )


def _is_unwritten(error: Exception) -> bool:
    return isinstance(error, CheckpointError)


def progress_of_all_ranks(session: Session) -> Progress:
    """How far the run has come, where each rank has counted for itself too; every rank must call."""
    strategy, progress = session.strategy, session.progress
    if strategy.lockstep:
        return progress
    own = np.array([progress.num_skipped, *progress.totals])
    row = np.zeros(int(strategy.comm.allreduce(np.array([own.size]), Op.MAX)[0]))
    row[: own.size] = own  # a rank that has only skipped steps has no totals yet
    num_skipped, *totals = strategy.comm.allreduce(row).tolist()
    return replace(progress, num_skipped=int(num_skipped), totals=totals)


def restore(session: Session, checkpoint: Checkpoint | None, say: Say) -> None:
    """Take over what rank 0 passes (the others: None). Every rank must call."""
    comm = session.strategy.comm
    faults.reach("load", comm.rank, 0)
    told = None if checkpoint is None else json.dumps([checkpoint.training, list(checkpoint.history)]).encode()
    training, history = json.loads(comm.broadcast_bytes(told))
    progress = training.get("progress", {})
    _check_optimizer(session.given_optimizer, training.get("optimizer"))
    values = optimizer = None
    if checkpoint is not None:
        values, optimizer = _flat(session, checkpoint), checkpoint.optimizer
        if not optimizer and session.strategy.state_names:
            say("the checkpoint holds the model only: the optimizer starts from scratch")
            optimizer = {
                name: np.zeros(session.spec.num_parameters, values.dtype) for name in session.strategy.state_names
            }
    share_kept(session.replica, comm)
    session.strategy.load(values, optimizer)
    session.progress.load(progress, history or progress.get("epochs", ()))  # format 1 had the history in the progress
    if comm.rank != 0 and not session.strategy.lockstep:
        session.progress.totals, session.progress.num_skipped = [], 0  # rank 0 counts on for all
    session.schedule.load_state_dict(training.get("schedule", {}))


def _described(optimizer: Optimizer) -> dict[str, Any]:
    """An optimizer's name and hyper-parameters."""
    return {"name": optimizer.name, **optimizer.values()}


def _check_optimizer(optimizer: Optimizer, stored: Any) -> None:
    """Refuse to resume with other hyper-parameters; older checkpoints do not have them."""
    own = _described(optimizer)
    if not isinstance(stored, dict) or stored == own:
        return
    differences = [
        f"{name}: {stored.get(name, 'not set')} before, {own.get(name, 'not set')} now"
        for name in (*own, *(name for name in stored if name not in own))
        if stored.get(name) != own.get(name)
    ]
    raise CheckpointError(
        f"the checkpoint was written with another optimizer ({'; '.join(differences)}): continue with the one of the "
        "saved run, or choose another run_dir"
    )


def _flat(session: Session, checkpoint: Checkpoint) -> Any:
    if checkpoint.spec != session.spec:
        raise CheckpointError(
            f"the checkpoint holds network '{checkpoint.spec.name}', which is not this run's '{session.spec.name}': "
            "continue with the network of the saved run"
        )
    bad = first_not_finite(checkpoint.tensors) or first_not_finite(checkpoint.optimizer)
    if bad:
        raise CheckpointError(
            f"the checkpoint of step {checkpoint.step} holds '{bad}', which is not finite: training cannot be "
            "resumed from it. Choose an earlier one: ringlet resume RUN --at STEP"
        )
    return flat_values(session, checkpoint.tensors)


def flat_values(session: Session, tensors: Mapping[str, NDArray[Any]]) -> Floats:
    """Parameters, then running statistics of a session's network as one array."""
    return restored_values(session.replica, tensors).flat
