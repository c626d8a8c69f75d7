"""Trainer: training from Python.

>>> trainer = Trainer(model="vgg1dobn", dataset="digits", global_batch_size=32)  # doctest: +SKIP
>>> history = trainer.fit(5)  # doctest: +SKIP
>>> trainer.evaluate()["accuracy"]  # doctest: +SKIP
0.97
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, final

from numpy.typing import ArrayLike, NDArray

from ringlet.checkpoint import CheckpointStore
from ringlet.checkpoint.atomic import make_directory
from ringlet.comm.contract import Communicator
from ringlet.config import RunConfig
from ringlet.data import Dataset
from ringlet.data.formats import GivenDataset
from ringlet.errors import CheckpointError, ConfigError
from ringlet.io.disk import Say
from ringlet.io.storage import Place, place_of
from ringlet.models.spec import ModelSpec
from ringlet.optim import Optimizer
from ringlet.timeline import NO_TIMELINE, Timeline
from ringlet.training.events import EventLog
from ringlet.training.observers import Callback, Control, Observer, Observers
from ringlet.training.progress import History
from ringlet.training.resuming import find_continuation, lock_run, set_aside
from ringlet.training.run_directory import RunDirectory
from ringlet.training.session import Session


@final
class Trainer:
    """A network, a data set and an optimizer, ready to train.

    ``model`` and ``dataset`` are names or objects; ``optimizer`` is a name or an :class:`~ringlet.optim.Optimizer`. All
    other options are those of :class:`~ringlet.config.RunConfig` (``ringlet train --help`` lists them). Nothing is
    printed and no file is written but by :meth:`save`.

    In a program that was started on several workers (``ringlet run -n 4 program.py``, mpiexec, srun) they train
    together: every worker must make the same trainer and call the same methods, except :meth:`save` and
    :meth:`predict`.
    ``communicator`` names other workers than all of them. ``scaling_shards`` is the number of shards that
    ``learning_rate_scaling`` multiplies by, if not those of this run: a run that resumes on other workers keeps its
    rates.
    """

    def __init__(
        self,
        model: str | ModelSpec | None = None,
        dataset: str | Dataset | None = None,
        *,
        optimizer: str | Optimizer | None = None,
        config: RunConfig | None = None,
        callbacks: Sequence[Callback] = (),
        communicator: Communicator | None = None,
        timeline: Timeline = NO_TIMELINE,
        scaling_shards: int | None = None,
        **options: Any,
    ) -> None:
        options |= _checked(model=(model, ModelSpec), dataset=(dataset, Dataset), optimizer=(optimizer, Optimizer))
        self.config = config.replace(**options) if config is not None else RunConfig(**options)
        self.callbacks = tuple(callbacks)
        self.session = session = Session(
            self.config,
            spec=model if isinstance(model, ModelSpec) else None,
            dataset=dataset if isinstance(dataset, Dataset) else None,
            communicator=communicator,
            timeline=timeline,
            scaling_shards=scaling_shards,
        )
        self.comm, self.dataset, self.spec = session.comm, session.dataset, session.spec
        self.loss, self.metrics, self.optimizer = session.loss, session.metrics, session.optimizer
        self.strategy, self.replica, self.progress = session.strategy, session.replica, session.progress
        self.kernels, self.device, self.timeline = session.kernels, session.device, session.timeline
        self.global_batch_size, self.local_batch_size = session.global_batch_size, session.local_batch_size
        self.num_shards, self.remarks = session.num_shards, session.remarks
        self._checkpoints: tuple[Place, Say] | None = None
        self._pictures: tuple[Path, Say] | None = None
        self._run: RunDirectory | None = None

    def fit(
        self, epochs: int | None = None, *, control: Control | None = None, resume: str | int | None = None
    ) -> History:
        """Train ``epochs`` (default: the configuration's) more epochs; a second call goes on where the first ended.

        ``resume`` resumes from a checkpoint in the configuration's ``run_dir``, if there is one, and keeps writing
        checkpoints there: ``"auto"`` takes the newest good one, a number that of this step, ``"epoch:3"`` that of the
        end of this epoch. ``epochs`` then counts from the start of the run. Options that would make another run of it
        are refused, and so is a directory that another process writes; later checkpoints are set aside. The log of
        ``ringlet train`` is continued, if the run has one. Every worker must call.
        """
        num_epochs = self.config.training.num_epochs if epochs is None else epochs
        if num_epochs < 0:
            raise ConfigError(f"epochs = {num_epochs}: expected 0 or more")
        session, progress = self.session, self.progress
        session.plan_epochs(num_epochs)
        first, log = len(progress.epochs), None
        with ExitStack() as stack:
            if resume is not None:
                log = self._resume(str(resume), stack)
                first, num_epochs = 0, max(num_epochs - progress.num_epochs, 0)
            elif self._run is not None:
                log = self._reopen(self._run, stack)
            observers: list[Observer] = [*self.callbacks, *([] if log is None else [log])]
            if self._checkpoints is not None:
                observers += session.checkpointers(*self._checkpoints, log)
            if self._pictures is not None:
                observers += session.pictures(*self._pictures)
            stop, _ = session.train(progress.num_epochs + num_epochs, Observers(observers, control))
        return History.of(progress, stop, first)

    def keep_checkpoints(self, directory: Place | str, say: Say = warnings.warn) -> None:
        """Write checkpoints into ``directory`` from the next :meth:`fit` on, as the configuration says.

        It may be an address of an object store, such as ``s3://bucket/run``.
        """
        self._checkpoints = place_of(directory), say

    def keep_pictures(self, folder: Path | str, say: Say = warnings.warn) -> None:
        """Draw ``num_pictures`` validation samples into ``folder`` after every epoch, from the next :meth:`fit` on.

        Only masks can be drawn: other data are left alone. Rank 0 writes; every worker must call.
        """
        self._pictures = Path(folder), say

    def evaluate(self, split: str = "test") -> dict[str, float]:
        """Loss and metrics over the ``test``, ``validation`` or ``train`` data, each worker computing its share."""
        return self.session.evaluate(split)

    def predict(self, images: ArrayLike) -> NDArray[Any]:
        """Outputs for raw images ``(n, C, H, W)``: they are normalised as the training data were."""
        return self.session.predict(images)

    def save(self, path: Path | str) -> None:
        """Write a self-describing model file; it appears completely or not at all.

        A network with numbers that are not finite is refused: what the file held before stays.
        """
        self.session.save(Path(path))

    def _resume(self, point: str, stack: ExitStack) -> EventLog | None:
        """Resume as ``ringlet resume`` does, in a directory that is ours until ``stack`` ends. Every worker calls."""
        if self.config.output.run_dir is None:
            raise ConfigError("resume needs run_dir, the folder with the checkpoints: give it to the Trainer")
        self._run = run = RunDirectory.of(self.config)
        self._lock(run, stack)
        say = self.session.say
        continuation = find_continuation(self.comm, self.config.replace(resume=point), say)
        if continuation is not None:
            self.session.restore(continuation, say)
            if self.comm.rank == 0:
                set_aside(run, continuation, say)
        return self._open_log(run, 0 if continuation is None else continuation.events_bytes, stack)

    def _reopen(self, run: RunDirectory, stack: ExitStack) -> EventLog | None:
        """Lock the directory of the run for another :meth:`fit`, unless another process has trained it since."""
        self._lock(run, stack)
        if self.comm.rank == 0:
            later = [step for step in CheckpointStore(run.checkpoints).steps() if step > self.progress.num_steps]
            if later:
                raise CheckpointError(
                    f"the run in '{run.path}' has a checkpoint of step {later[-1]}, this trainer is at step "
                    f'{self.progress.num_steps}: another one has trained it meanwhile. Give resume="auto" to fit'
                )
        return self._open_log(run, None, stack)

    def _lock(self, run: RunDirectory, stack: ExitStack) -> None:
        if self.comm.rank == 0:
            make_directory(run.path)
            stack.callback(lock_run(self.config).release)

    def _open_log(self, run: RunDirectory, cut_at: int | None, stack: ExitStack) -> EventLog | None:
        """Write checkpoints into the run's directory, and events into its log if it has one."""
        self.keep_checkpoints(run.checkpoints)
        if self.comm.rank != 0 or not run.events.is_file():
            return None
        return stack.enter_context(closing(EventLog(run.events, cut_at=cut_at, say=self.session.say)))


def _checked(**given: tuple[object, type]) -> dict[str, Any]:
    """Parts that were given by name or as objects of Ringlet, for the configuration; anything else is a TypeError."""
    found: dict[str, Any] = {}
    for option, (value, kind) in given.items():
        if value is None:
            continue
        if not isinstance(value, str | kind):
            raise TypeError(
                f"Trainer({option}=…): expected a name or a ringlet {kind.__name__}, received {type(value).__module__}."
                f"{type(value).__qualname__}"
            )
        if isinstance(value, ModelSpec):
            value = value.name
        elif isinstance(value, Dataset):
            value = GivenDataset(title_given=value.name)
        found[option] = value
    return found
