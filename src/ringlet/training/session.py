"""A session: one run on this rank, from its configuration to its results.

The constructor builds the parts of a run in the order in which they need each other, each by its function of
``components``. :meth:`Session.train` is the one way through training. ``ringlet train`` opens a session and lets it
:meth:`~Session.run` in a run directory (``run``); :class:`ringlet.Trainer` is the face of a session for Python.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self, final

from numpy.typing import ArrayLike, NDArray

from ringlet import __version__
from ringlet.comm.contract import Communicator
from ringlet.config import RunConfig
from ringlet.data import BatchLoader, Dataset, Source
from ringlet.engines.modules import ModuleReplica, OwnLoss
from ringlet.engines.threads import AdaptiveThreads
from ringlet.errors import CheckpointError, ConfigError, DataError, DivergedError, UsageError
from ringlet.evaluation.report import Report, make_report, make_tally
from ringlet.evaluation.tally import NUM_EXAMPLES
from ringlet.evaluation.views import views_of
from ringlet.guards import faults
from ringlet.guards.agreement import ReplicaGuard
from ringlet.guards.stall import StallDetector
from ringlet.io.disk import Saving, Say
from ringlet.io.storage import Place
from ringlet.kernels import load as load_kernels
from ringlet.losses import Loss
from ringlet.metrics import Metric
from ringlet.models.files import save_model
from ringlet.models.module_spec import ModuleSpec
from ringlet.models.spec import ModelSpec
from ringlet.optim import Schedule
from ringlet.strategies.finite import first_not_finite
from ringlet.timeline import NO_TIMELINE, PhaseTotals, RecordedTimeline, Timeline
from ringlet.training import components, modules
from ringlet.training.best_weights import BestWeights
from ringlet.training.checkpointing import Checkpointer, flat_values, restore
from ringlet.training.class_weights import make_class_weights
from ringlet.training.data_identity import check_same_data, data_facts
from ringlet.training.devices import blas_threads, choose_device, chosen_threads, join_workers
from ringlet.training.divergence import ADVICE
from ringlet.training.events import (
    EventLog,
    TrainingFinished,
)
from ringlet.training.learning import make_learning
from ringlet.training.loaded_model import predict_images, with_layout_of_data
from ringlet.training.loop import Loop, evaluate
from ringlet.training.memory import check_memory, clear_memory_errors
from ringlet.training.modules import GivenModule
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
from ringlet.training.statistics import StatisticsWatch


@final
class Session:
    """The parts of a run, ready to train. Every rank must make the same session and call the same methods of it.

    ``spec``, which may be a module, ``dataset``, ``loss`` and ``metrics`` take the place of what the configuration
    names. ``say`` gets texts about what happens beside the events; :attr:`remarks` is what there was to say while the
    session was made. ``scaling_shards`` is the number of shards that ``learning_rate_scaling`` multiplies by, if not
    those of this run. ``stratified`` is that of :func:`ringlet.data.load_dataset`. A session that ``is_continued`` gets
    its weights, and the ``momentum`` of its batch norms, from a checkpoint.
    """

    def __init__(
        self,
        config: RunConfig,
        *,
        spec: ModelSpec | GivenModule | None = None,
        dataset: Dataset | None = None,
        loss: Loss | None = None,
        metrics: Sequence[Metric] | None = None,
        communicator: Communicator | None = None,
        timeline: Timeline = NO_TIMELINE,
        scaling_shards: int | None = None,
        stratified: bool = True,
        is_continued: bool = False,
        momentum: float | None = None,
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
        num_train = len(self.dataset.train)
        num_steps = components.steps_per_epoch(config, num_train, self.global_batch_size, self.num_shards)
        self.spec, own_loss = self._network(spec, num_steps, momentum)
        chosen_loss, self.measures = components.make_metrics(config, self.dataset, loss, metrics)
        self.loss, self.metrics = chosen_loss.text, [measure.name for measure in self.measures]
        """Their names; that of the loss with its options."""
        self.class_weights = make_class_weights(config, self.dataset, self.spec.output_shape[0], comm)
        self.augmentation = components.make_augmentation(config, self.dataset, self.spec.output_shape[0])
        minimised = components.loss_of_replica(chosen_loss, self.augmentation, self.dataset)
        # which parts learn; optimizer and schedule
        self.learning = make_learning(config, self.spec, num_steps)
        self.remarks += self.learning.remarks(self.spec)
        self.given_optimizer = config.optimizer
        """Its learning rate is that of one worker."""
        self._rate_factor = (scaling_shards or self.num_shards) if config.training.learning_rate_scaling else 1
        self.optimizer, more = components.scaled(self.given_optimizer, self._rate_factor)
        self.remarks += more
        schedule = self._make_schedule(config.training.num_epochs)
        # what computes, and whether there is memory for it
        self.threads = chosen_threads(config, comm.local_size)
        self.kernels = load_kernels(config.engine.kernels)
        # Compiled kernels leave nothing to BLAS but short products, whose threads would wait for each other.
        self._blas_threads = (
            1 if config.engine.adapts_threads and hasattr(self.kernels, "num_threads") else self.threads
        )
        self.device = choose_device(config, comm)
        self.local_batch_size = components.samples_per_shard(
            config, len(self.dataset.train), self.global_batch_size, self.num_shards
        )
        num_passes = -(-self.num_shards // comm.size)
        demand = components.memory_demand(config, self.spec, minimised, self.optimizer, num_passes, self.device)
        check_memory(demand, self.local_batch_size, comm, self.num_shards)
        # strategy and replica
        with clear_memory_errors("making the network"):
            self.strategy = components.make_strategy(
                config, comm, self.spec, self.learning, self.optimizer, self.kernels, self.num_shards, self.timeline
            )
            frozen = self.learning.frozen_in(1)
            passes = self.local_batch_size, self.threads, self.device
            about = minimised, self.class_weights, *passes, frozen, own_loss
            self.replica = components.make_replica(
                config,
                self.spec,
                self.strategy,
                self.kernels,
                *about,
                is_continued=is_continued,
                say=self.remarks.append,
            )
        components.check_same_on_ranks(config, comm, self.dataset, self.kernels)
        faults.reach("start", comm.rank, 0)
        # the loop, and where it is
        self.progress = Progress()
        self._loop = self._make_loop(schedule)
        self.best = BestWeights(self)
        """The weights of the best epoch, if the schedule wants them kept."""
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
                is_continued=continuation is not None,
                momentum=None if continuation is None else continuation.momentum,
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
    def _network(
        self, given: ModelSpec | GivenModule | None, num_steps: int, momentum: float | None
    ) -> tuple[ModelSpec | ModuleSpec, OwnLoss | None]:
        """The network of the run, checked against its data, and a loss that a program brings with it."""
        config, dataset = self.config, self.dataset
        if not isinstance(given, GivenModule):
            spec = components.make_spec(config, dataset) if given is None else given
            if given is None:
                spec, more = components.settle_statistics(config, spec, num_steps, momentum)
                self.remarks += more
            components.check_fit(spec, dataset)
            return spec, None
        modules.check_options(given, config)
        description = modules.describe(given, config, dataset)
        modules.check_same_network(self.comm, description)
        if given.loss is None:
            components.check_fit(description, dataset)
        self.remarks += modules.remarks(description)
        return description, given.loss

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
                augmentation=self.augmentation,
                partition=config.workers.partition,
                max_steps=config.training.steps_per_epoch,
            ),
            None if dataset.validation is None else self.loader(dataset.validation),
            self.measures,
            config.training.seed,
            self.progress,
            self.timeline,
            skip_bad=config.guards.on_nan == "skip",
            check=lambda step: guard.after_update(step, strategy.parameters, replica.state.flat),
            begin=self._begin_epoch,
            statistics=StatisticsWatch(self.spec, replica.state) if isinstance(self.spec, ModelSpec) else None,
            threads=AdaptiveThreads(self.kernels if engine.adapts_threads and engine.threads is None else None),
        )

    def _begin_epoch(self, epoch: int) -> None:
        """Let learn what learns from this epoch on; every rank calls."""
        frozen = self.learning.frozen_in(epoch)
        if frozen != self.replica.frozen:
            self.replica.freeze(frozen)
            components.prepare_together(self.config, self.comm, self.replica)

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

    @cached_property
    def data_facts(self) -> dict[str, Any]:
        """What checkpoints keep of the data, so that a resumed run notices if they change; reads a few samples."""
        return data_facts(self.dataset)

    @property
    def metadata(self) -> dict[str, str]:
        """What a model file says of itself besides its network; its weights are those in use."""
        table, weights = self.dataset.table, self.class_weights
        about = {} if table is None else {"table": json.dumps(table.to_dict())}
        about |= {} if weights is None else {"class_weights": json.dumps(weights.tolist())}
        return about | {
            "version": __version__,
            "task": self.dataset.task,
            "dataset": self.dataset.name,
            "labels": json.dumps(self.dataset.class_names),
            "normalization": json.dumps(self.dataset.normalization.to_dict()),
            "loss": self.loss,
            "metrics": json.dumps([measure.text for measure in self.measures if measure.text]),
            **self._about_weights(),
        }

    def _about_weights(self) -> dict[str, str]:
        """After which epoch and step the weights in use came, and by which metric they are the best, if they are."""
        progress, best, restored = self.progress, self.schedule.best, self.best.in_use == "best"
        step = self.best.step if restored else progress.num_steps
        epoch = best.epoch if restored and best is not None else progress.num_epochs
        about = {"epoch": str(epoch), "step": str(step)}
        if best is not None and best.epoch == epoch and (restored or progress.step_in_epoch == 0):
            about["best"] = json.dumps({"metric": best.metric, "value": best.value})
        return about

    # -- what can be done with them -----------------------------------------------------------------------------------
    @property
    def schedule(self) -> Schedule:
        """The learning rate over time and reasons to stop."""
        return self._loop.schedule

    @property
    def num_steps_per_epoch(self) -> int:
        """How many steps an epoch has."""
        return self._loop.train.num_steps

    def plan_epochs(self, num_epochs: int) -> None:
        """Let the schedule be that of ``num_epochs``, if no step was taken yet."""
        if self.progress.num_steps == 0 and num_epochs != self.config.training.num_epochs:
            self._loop = replace(self._loop, schedule=self._make_schedule(num_epochs))

    def train(self, last_epoch: int, observers: Observers) -> tuple[Stop | None, TrainingFinished]:
        """Train until ``last_epoch`` epochs are done in all, or the control of any rank says stop; gives why, then.

        Training begins and ends with the last weights: see :attr:`best` for the others.
        """
        self.best.use("last")
        observers.of_ranks.insert(0, self.best)
        with clear_memory_errors("preparing"):
            self.replica.prepare()  # it may measure for a while, which is no stall
        with blas_threads(self._blas_threads), StallDetector(self.comm, self.config.guards.stall_seconds) as stall:
            loop = replace(self._loop, report=stall.progress)
            try:
                with clear_memory_errors("training"):
                    found = loop.run(last_epoch, observers)
                if isinstance(self.replica, ModuleReplica):
                    self.replica.publish()
                return found
            except BaseException:
                for own in observers.of_ranks:
                    own.abandon()
                raise

    def evaluate(self, split: str = "test") -> dict[str, float]:
        """Loss and metrics over the ``test``, ``validation`` or ``train`` data, each worker computing its share."""
        loader = self.loader(self.source(split))
        with blas_threads(self._blas_threads), clear_memory_errors("evaluating"):
            meter = evaluate(self.replica, loader, self.measures, self.comm, self.num_shards)
        assert meter is not None, "no one can interrupt it"
        return meter.means()

    def report(self, split: str = "test", *, tta: str | None = None, num_examples: int = NUM_EXAMPLES) -> Report:
        """The same with all that can be said of it: see :class:`~ringlet.evaluation.Report`. Every rank must call."""
        source, dataset, spec = self.source(split), self.dataset, self.spec
        views = views_of(tta, spec.input_shape) if tta is not None else ()
        tally = make_tally(source.task, dataset.class_names, spec.output_shape[0], num_examples)
        loader = self.loader(source)
        with blas_threads(self._blas_threads), clear_memory_errors("evaluating"):
            meter = evaluate(self.replica, loader, self.measures, self.comm, self.num_shards, tally=tally, views=views)
        assert meter is not None, "no one can interrupt it"
        return make_report(tally, source, meter.means(), self.comm, split=split, tta=tta, dataset=dataset.name)

    def predict(self, images: ArrayLike) -> NDArray[Any]:
        """Outputs for raw images ``(n, C, H, W)``, or in the layout of training data that a program has given.

        They are normalised as the training data were. Any rank may call.
        """
        if self.dataset.channels == "last":
            images = with_layout_of_data(images, self.spec.input_shape)
        with blas_threads(self._blas_threads), clear_memory_errors("predicting"):
            return predict_images(self.replica, self.dataset.normalization, images)

    def save(self, path: Path) -> None:
        """Write a self-describing model file, unless it holds numbers that are not finite. Any rank may call."""
        tensors = {**self.replica.parameters.views, **self.replica.state.views}
        if bad := first_not_finite(tensors):
            raise DivergedError(f"'{bad}' is not finite: the model is not saved to {path}. {ADVICE}")
        if isinstance(self.replica, ModuleReplica):
            modules.save_module(path, self.replica, self.metadata)
        elif isinstance(self.spec, ModelSpec):
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
        if continuation.checkpoint is not None:
            stored, allow = continuation.checkpoint.training.get("data"), self.config.checkpoint.allow_changed_data
            for remark in check_same_data(stored, self.data_facts, allow=allow):
                say(remark)
        restore(self, continuation.checkpoint, say)
        best = None if continuation.best is None else flat_values(self, continuation.best)
        self.best.take(continuation.best_step, best)
        if self.progress.step_in_epoch > self._loop.train.num_steps:
            raise CheckpointError(
                f"the checkpoint was written after {self.progress.step_in_epoch} steps of an epoch, which now has "
                f"{self._loop.train.num_steps}: resume from the end of an epoch: --at epoch:{self.progress.num_epochs}"
            )
        self.continuation = continuation

    def checkpointers(
        self, directory: Place, say: Say, log: EventLog | None = None, saving: Saving | None = None
    ) -> list[Checkpointer]:
        """The observer that writes checkpoints into ``directory``, if the configuration wants any."""
        if self.config.checkpoint.every == "never":
            return []
        position = int if log is None else log.position
        return [Checkpointer(self, directory, say, position, saving)]

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
