"""A session: one run on this rank, from its configuration to its results.

The constructor builds the parts of a run in the order in which they need each other, each by its function of
``components``. :meth:`Session.train` is the one way through training. ``ringlet train`` opens a session and lets it
:meth:`~Session.run` in a run directory (``run``); :class:`ringlet.Trainer` is the face of a session for Python.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, final

from numpy.typing import ArrayLike, NDArray

from ringlet import __version__
from ringlet.comm.contract import Communicator
from ringlet.config import RunConfig
from ringlet.data import BatchLoader, Dataset, Source
from ringlet.errors import CheckpointError, ConfigError, DataError, DivergedError, UsageError
from ringlet.guards import faults
from ringlet.guards.agreement import ReplicaGuard
from ringlet.guards.stall import StallDetector
from ringlet.io.disk import Saving, Say
from ringlet.io.storage import Place
from ringlet.kernels import load as load_kernels
from ringlet.models.files import save_model
from ringlet.models.spec import ModelSpec
from ringlet.optim import Schedule
from ringlet.strategies.finite import first_not_finite
from ringlet.timeline import NO_TIMELINE, PhaseTotals, RecordedTimeline, Timeline
from ringlet.training import components
from ringlet.training.checkpointing import Checkpointer, restore
from ringlet.training.devices import StepThreads, blas_threads, choose_device, chosen_threads, join_workers
from ringlet.training.divergence import ADVICE
from ringlet.training.events import (
    EventLog,
    TrainingFinished,
)
from ringlet.training.loaded_model import predict_images
from ringlet.training.loop import Loop, evaluate
from ringlet.training.memory import check_memory, clear_memory_errors
from ringlet.training.observers import Observer, Observers, Stop
from ringlet.training.pictures import ValidationPictures
from ringlet.training.progress import Progress, RunResult
from ringlet.training.resuming import Continuation, find_continuation, lock_run, with_same_steps
from ringlet.training.run import Trackers, no_trackers, run
from ringlet.training.run_directory import (
    check_output_file,
    check_run_directory,
    is_continued,
)


@final
class Session:
    """The parts of a run, ready to train. Every rank must make the same session and call the same methods of it.

    ``spec`` and ``dataset`` take the place of what the configuration names. ``say`` is told in words
    what happens beside the events; :attr:`remarks` is what there was to say while the session was made.
    ``scaling_shards`` is the number of shards that ``learning_rate_scaling`` multiplies by, if not those of this run.
    ``stratified`` is that of :func:`ringlet.data.load_dataset`.
    """

    def __init__(
        self,
        config: RunConfig,
        *,
        spec: ModelSpec | None = None,
        dataset: Dataset | None = None,
        communicator: Communicator | None = None,
        timeline: Timeline = NO_TIMELINE,
        scaling_shards: int | None = None,
        stratified: bool = True,
        say: Say = warnings.warn,
    ) -> None:
        # who takes part
        self.config, self.say = config, say
        self.comm = comm = join_workers(config) if communicator is None else communicator
        self.is_leader = comm.rank == 0
        self.timeline, self.recorded = PhaseTotals(timeline), timeline
        self.num_shards = config.num_shards(comm.size)
        self.remarks = config.notes() + components.check_workers(config, comm)
        # data, network, loss and metrics
        self.dataset = components.make_dataset(config, stratified=stratified) if dataset is None else dataset
        self.remarks += self.dataset.remarks
        self.global_batch_size = components.samples_per_step(config, self.dataset, comm)
        self.remarks += components.oversized_batch(len(self.dataset.train), self.global_batch_size)
        self.spec = components.make_spec(config, self.dataset) if spec is None else spec
        components.check_fit(self.spec, self.dataset)
        self.loss, self.metrics = components.make_metrics(config, self.dataset, self.spec)
        # optimizer and schedule
        self.given_optimizer = config.optimizer
        """Its learning rate is that of one worker."""
        self._rate_factor = (scaling_shards or self.num_shards) if config.training.learning_rate_scaling else 1
        self.optimizer, more = components.scaled(self.given_optimizer, self._rate_factor)
        self.remarks += more
        schedule = self._make_schedule(config.training.num_epochs)
        # what computes, and whether there is memory for it
        self.threads = chosen_threads(config, comm.local_size)
        self.kernels = load_kernels(config.engine.kernels)
        self.device = choose_device(config, comm)
        self.local_batch_size = components.samples_per_shard(
            config, len(self.dataset.train), self.global_batch_size, self.num_shards
        )
        num_passes = -(-self.num_shards // comm.size)
        demand = components.memory_demand(config, self.spec, self.loss, self.optimizer, num_passes, self.device)
        check_memory(demand, self.local_batch_size, comm, self.num_shards)
        # strategy and replica
        with clear_memory_errors("making the network"):
            self.strategy = components.make_strategy(
                config, comm, self.spec, self.optimizer, self.kernels, self.num_shards, self.timeline
            )
            about = self.loss, self.local_batch_size, self.threads, self.device
            self.replica = components.make_replica(config, self.spec, self.strategy, self.kernels, *about)
        components.check_same_on_ranks(config, comm, self.dataset, self.kernels)
        faults.reach("start", comm.rank, 0)
        # the loop, and where it is
        self.progress = Progress()
        self._loop = self._make_loop(schedule)
        self._best_step: int | None = None
        self.continuation: Continuation | None = None
        """The checkpoint that the run was resumed from."""
        self.held = ExitStack()
        """What a run lets go of in the end: the lock of its directory."""

    @classmethod
    def open(cls, config: RunConfig, communicator: Communicator | None = None, *, say: Say = warnings.warn) -> Self:
        """The session of a whole run, whose directory it locks if the run resumes; :meth:`run` does it.

        Everything that can be wrong with its input has been found when this returns.
        """
        comm = join_workers(config) if communicator is None else communicator
        with ExitStack() as held:
            if comm.rank == 0:
                check_run_directory(config)
                check_output_file("history_file", config.output.history_file)
                check_output_file("timeline", config.output.timeline)
                if is_continued(config) and not config.training.evaluate_only:
                    held.callback(lock_run(config).release)
            remarks: list[str] = []
            continuation = find_continuation(comm, config, remarks.append)
            if continuation is not None:
                config, more = with_same_steps(config, continuation, comm.size)
                remarks += more
            session = cls(
                config,
                communicator=comm,
                timeline=RecordedTimeline() if config.output.profile or config.output.timeline else NO_TIMELINE,
                scaling_shards=None if continuation is None else continuation.num_shards,
                stratified=continuation is None or continuation.stratified,
                say=say,
            )
            session.remarks = remarks + session.remarks
            if (config.training.evaluate or config.training.evaluate_only) and session.dataset.test is None:
                raise UsageError(
                    f"data set '{config.dataset.label}' has no test data: leave --evaluate out or give a path for it"
                )
            if continuation is not None:
                session.restore(continuation, session.remarks.append)
            session.held = held.pop_all()
        return session

    # -- the parts ----------------------------------------------------------------------------------------------------
    def _make_schedule(self, num_epochs: int) -> Schedule:
        validates = self.dataset.validation is not None
        return components.make_schedule(
            self.config, self.optimizer, num_epochs, self._rate_factor, self.metrics, validates=validates
        )

    def _make_loop(self, schedule: Schedule) -> Loop:
        config, dataset, strategy, replica = self.config, self.dataset, self.strategy, self.replica
        engine = config.engine
        sizes = {info.name: info.size for info in self.spec.parameters}
        own_parameters = strategy.has_own_parameters
        guard = ReplicaGuard(self.comm, config.guards.digest_every, sizes=sizes, own_parameters=own_parameters)
        return Loop(
            replica,
            strategy,
            schedule,
            self.loader(
                dataset.train,
                shuffle=True,
                seed=config.training.seed,
                augmentation=components.make_augmentation(config, dataset),
                partition=config.workers.partition,
                max_steps=config.training.steps_per_epoch,
            ),
            None if dataset.validation is None else self.loader(dataset.validation),
            self.metrics,
            config.training.seed,
            self.progress,
            self.timeline,
            skip_bad=config.guards.on_nan == "skip",
            check=lambda step: guard.after_update(step, strategy.parameters, replica.state.flat),
            threads=StepThreads(self.kernels if engine.adapts_threads and engine.threads is None else None),
        )

    def loader(self, source: Source, *, shuffle: bool = False, **options: Any) -> BatchLoader:
        """Batches of this rank's shards of a source, by default in order."""
        return BatchLoader(
            source,
            global_batch_size=self.global_batch_size,
            normalization=self.dataset.normalization,
            dtype=self.config.training.parameter_dtype,
            num_shards=self.num_shards,
            shards=self.strategy.shards,
            shuffle=shuffle,
            **options,
        )

    def source(self, split: str) -> Source:
        """The ``train``, ``validation`` or ``test`` data."""
        if split not in ("train", "validation", "test"):
            raise ConfigError(f"split '{split}': expected train, validation or test")
        source: Source | None = getattr(self.dataset, split)
        if source is None:
            raise DataError(f"data set '{self.dataset.name}' has no {split} data: give a path for it, or a split")
        return source

    @property
    def metadata(self) -> dict[str, str]:
        """What a model file says of itself besides its network."""
        return {
            "version": __version__,
            "dataset": self.dataset.name,
            "labels": json.dumps(self.dataset.class_names),
            "normalization": json.dumps(self.dataset.normalization.to_dict()),
            "loss": self.loss,
            "metrics": json.dumps(self.metrics),
        }

    # -- what can be done with them -----------------------------------------------------------------------------------
    @property
    def schedule(self) -> Schedule:
        """The learning rate over time and reasons to stop."""
        return self._loop.schedule

    def plan_epochs(self, num_epochs: int) -> None:
        """Let the schedule be that of ``num_epochs``, if no step was taken yet."""
        if self.progress.num_steps == 0 and num_epochs != self.config.training.num_epochs:
            self._loop = replace(self._loop, schedule=self._make_schedule(num_epochs))

    def train(self, last_epoch: int, observers: Observers) -> tuple[Stop | None, TrainingFinished]:
        """Train until ``last_epoch`` epochs are done in all, or the control of any rank says stop; gives why, then."""
        with clear_memory_errors("preparing"):
            self.replica.prepare()  # it may measure for a while, which is no stall
        with blas_threads(self.threads), StallDetector(self.comm, self.config.guards.stall_seconds) as stall:
            loop = replace(self._loop, report=stall.progress)
            try:
                with clear_memory_errors("training"):
                    return loop.run(last_epoch, observers)
            except BaseException:
                for own in observers.of_ranks:
                    own.abandon()
                raise

    def evaluate(self, split: str = "test") -> dict[str, float]:
        """Loss and metrics over the ``test``, ``validation`` or ``train`` data, each worker computing its share."""
        loader = self.loader(self.source(split))
        with blas_threads(self.threads), clear_memory_errors("evaluating"):
            meter = evaluate(self.replica, loader, self.metrics, self.comm, self.num_shards)
        assert meter is not None, "no one can interrupt it"
        return meter.means()

    def predict(self, images: ArrayLike) -> NDArray[Any]:
        """Outputs for raw images ``(n, C, H, W)``: they are normalised as the training data were. Any rank may call."""
        with blas_threads(self.threads), clear_memory_errors("predicting"):
            return predict_images(self.replica, self.dataset.normalization, images)

    def save(self, path: Path) -> None:
        """Write a self-describing model file, unless it holds numbers that are not finite. Any rank may call."""
        tensors = {**self.replica.parameters.views, **self.replica.state.views}
        if bad := first_not_finite(tensors):
            raise DivergedError(f"'{bad}' is not finite: the model is not saved to {path}. {ADVICE}")
        save_model(path, self.spec, tensors, self.metadata)

    def restore(self, continuation: Continuation, say: Say) -> None:
        """Take over the state of a checkpoint."""
        if continuation.global_batch_size != self.global_batch_size:
            raise CheckpointError(
                f"the checkpoint was written with a global batch of {continuation.global_batch_size} samples, this run "
                f"has {self.global_batch_size}: give global_batch_size={continuation.global_batch_size}"
            )
        if self.dataset.is_stratified and not continuation.stratified:
            raise CheckpointError(
                "the checkpoint was written by a version whose validation data were not chosen class by class, so "
                "training and validation data would mix: resume it with 'ringlet resume', which keeps its data apart"
            )
        self._best_step = restore(self, continuation.checkpoint, say)
        self.continuation = continuation

    def checkpointers(
        self, directory: Place, say: Say, log: EventLog | None = None, saving: Saving | None = None
    ) -> list[Checkpointer]:
        """The observer that writes checkpoints into ``directory``, if the configuration wants any."""
        if self.config.checkpoint.every == "never":
            return []
        position = int if log is None else log.position
        return [Checkpointer(self, directory, say, position, saving, self._best_step)]

    def pictures(self, folder: Path, say: Say) -> list[ValidationPictures]:
        """The observer that draws validation samples into ``folder``, if there are masks and pictures are wanted."""
        source, number = self.dataset.validation, self.config.output.num_pictures
        if self.dataset.task != "segmentation" or source is None or number == 0:
            return []
        return [ValidationPictures(source, number, self.comm, folder, say)]

    def run(self, observers: Iterable[Observer] = (), trackers: Trackers = no_trackers) -> RunResult:
        """Do the run that was opened: train, evaluate and keep the run directory.

        A divergence raises DivergedError, an interruption InterruptedRunError after saving. Only rank 0 writes files
        and tells ``observers``, and those that ``trackers`` makes for the run directory.
        """
        return run(self, observers, trackers)
