"""Trainer: training from Python.

>>> trainer = Trainer(model="vgg1dobn", dataset="digits", global_batch_size=32)  # doctest: +SKIP
>>> history = trainer.fit(5)  # doctest: +SKIP
>>> trainer.evaluate()["accuracy"]  # doctest: +SKIP
0.97
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ringlet import __version__
from ringlet.checkpoint import CheckpointStore
from ringlet.checkpoint.atomic import make_directory
from ringlet.comm.compression import parse_compression
from ringlet.comm.contract import Communicator
from ringlet.config import RunConfig, StrategyChoice
from ringlet.data import BatchLoader, Dataset, Source
from ringlet.engines.contract import Replica
from ringlet.engines.registry import create_replica
from ringlet.errors import CheckpointError, ConfigError, DataError, DivergedError, ModelFileError
from ringlet.guards import faults
from ringlet.guards.digest import ReplicaGuard
from ringlet.guards.stall import StallDetector
from ringlet.io.disk import Saving
from ringlet.kernels import load as load_kernels
from ringlet.models.files import load_model_file, save_model
from ringlet.models.spec import ModelSpec
from ringlet.optim import Optimizer, Schedule, segments_of
from ringlet.strategies.choose import make_strategy
from ringlet.strategies.contract import Layout, Strategy
from ringlet.strategies.finite import first_not_finite
from ringlet.strategies.synchronous import Options
from ringlet.timeline import NO_TIMELINE, PhaseTotals, Timeline
from ringlet.training import assemble
from ringlet.training.callbacks import Announcer, Callback
from ringlet.training.checkpointing import CheckpointKeeper, Keeper, NoKeeper, Parts, restore
from ringlet.training.devices import choose_device, join_workers
from ringlet.training.events import EventLog
from ringlet.training.finite import ADVICE
from ringlet.training.history import History
from ringlet.training.inference import predict_images
from ringlet.training.interrupts import Control
from ringlet.training.loop import Loop, evaluate
from ringlet.training.memory import Demand, check_memory, clear_memory_errors
from ringlet.training.pictures import NoPictures, Pictures, ValidationPictures
from ringlet.training.progress import Progress
from ringlet.training.resuming import Continuation, find_continuation, lock_run
from ringlet.training.run_directory import RunDirectory
from ringlet.training.step_threads import StepThreads
from ringlet.training.superseding import supersede
from ringlet.training.threads import blas_threads, chosen_threads


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
        options |= _names(
            ("model", model, ModelSpec), ("dataset", dataset, Dataset), ("optimizer", optimizer, Optimizer)
        )
        self.config = config.replace(**options) if config is not None else RunConfig(**options)
        self.callbacks = tuple(callbacks)
        self.comm = join_workers(self.config) if communicator is None else communicator
        self.timeline = PhaseTotals(timeline)
        self.num_shards = self.config.num_shards(self.comm.size)
        self._rate_factor = (scaling_shards or self.num_shards) if self.config.learning_rate_scaling else 1
        self.remarks = assemble.check_workers(self.config, self.comm)
        self.dataset = dataset if isinstance(dataset, Dataset) else assemble.make_dataset(self.config)
        self.global_batch_size = assemble.samples_per_step(self.config, self.dataset, self.comm)
        self.remarks += assemble.oversized_batch(len(self.dataset.train), self.global_batch_size)
        self.spec = model if isinstance(model, ModelSpec) else assemble.make_spec(self.config, self.dataset)
        assemble.check_fit(self.spec, self.dataset)
        self.loss, self.metrics = assemble.make_figures(self.config, self.dataset, self.spec)
        self._own_optimizer = optimizer if isinstance(optimizer, Optimizer) else self._make_optimizer()
        self.optimizer = self._scaled(self._own_optimizer)
        self.progress = Progress()
        schedule = self._make_schedule(self.config.num_epochs)
        self._threads = chosen_threads(self.config, self.comm.local_size)
        self.kernels = load_kernels(self.config.kernels)
        self.device = choose_device(self.config, self.comm)
        self.local_batch_size = assemble.samples_per_shard(
            self.config, len(self.dataset.train), self.global_batch_size, self.num_shards
        )
        check_memory(self._demand(), self.local_batch_size, self.comm, self.num_shards)
        with clear_memory_errors("making the network"):
            self.strategy = self._make_strategy()
            self.replica = self._make_replica()
            self.strategy.attach(self.replica)
        assemble.check_same_run(self.config, self.comm, self.dataset, self.kernels)
        faults.reach("start", self.comm.rank, 0)
        self._place: tuple[Path, Callable[[str], None], Callable[[], int], Saving | None] | None = None
        self._run: RunDirectory | None = None
        self._best_step: int | None = None
        self._pictures: Pictures = NoPictures()
        self._loop = self._make_loop(schedule)

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
        num_epochs = self.config.num_epochs if epochs is None else epochs
        if num_epochs < 0:
            raise ConfigError(f"epochs = {num_epochs}: expected 0 or more")
        if self.progress.num_steps == 0 and num_epochs != self.config.num_epochs:
            self._loop = self._make_loop(self._make_schedule(num_epochs))
        first = len(self.progress.epochs)
        with ExitStack() as stack:
            if resume is not None:
                self._resume(str(resume), stack)
                first, num_epochs = 0, max(num_epochs - self.progress.num_epochs, 0)
            elif self._run is not None:
                self._reopen(self._run, stack)
            return self._fit(first, self.progress.num_epochs + num_epochs, control or Control())

    def _fit(self, first: int, last_epoch: int, control: Control) -> History:
        keeper: Keeper = NoKeeper() if self._place is None else CheckpointKeeper(self._parts(), *self._place)
        if isinstance(keeper, CheckpointKeeper):
            keeper.best_step = self._best_step
        with clear_memory_errors("preparing"):
            self.replica.prepare()  # it may measure for a while, which is no stall
        with blas_threads(self._threads), StallDetector(self.comm, self.config.stall_seconds) as stall:
            loop = replace(self._loop, keeper=keeper, pictures=self._pictures, report=stall.progress)
            try:
                with clear_memory_errors("training"):
                    stop = loop.run(last_epoch, Announcer(self.callbacks, control), control)
            except BaseException:
                keeper.abandon()
                raise
        interrupted = stop is not None and stop.interrupted
        return History(self.progress.epochs[first:], None if stop is None else stop.reason, interrupted)

    def keep_checkpoints(
        self,
        directory: Path,
        say: Callable[[str], None] = warnings.warn,
        events_position: Callable[[], int] = int,
        saving: Saving | None = None,
    ) -> None:
        """Write checkpoints into ``directory`` from the next :meth:`fit` on, as the configuration says.

        A caller who gives ``saving`` checks at the end whether the last one is on disk; otherwise :meth:`fit` does.
        """
        self._place = None if self.config.checkpoint_every == "never" else (directory, say, events_position, saving)

    def keep_pictures(self, folder: Path | str, say: Callable[[str], None] = warnings.warn) -> None:
        """Draw ``num_pictures`` validation samples into ``folder`` after every epoch, from the next :meth:`fit` on.

        Only masks can be drawn: other data are left alone. Rank 0 writes; every worker must call.
        """
        source, num_pictures = self.dataset.validation, self.config.num_pictures
        if self.dataset.task == "segmentation" and source is not None and num_pictures > 0:
            self._pictures = ValidationPictures(source, num_pictures, self.comm, Path(folder), say)

    def go_on(self, continuation: Continuation, say: Callable[[str], None] = warnings.warn) -> None:
        """Take over the state of a checkpoint. Every worker must call."""
        if continuation.global_batch_size != self.global_batch_size:
            raise CheckpointError(
                f"the checkpoint was written with a global batch of {continuation.global_batch_size} samples, this run "
                f"has {self.global_batch_size}: give global_batch_size={continuation.global_batch_size}"
            )
        self._best_step = restore(self._parts(), continuation.checkpoint, say)

    def _resume(self, point: str, stack: ExitStack) -> None:
        """Resume as ``ringlet resume`` does, in a directory that is ours until ``stack`` ends. Every worker calls."""
        if self.config.run_dir is None:
            raise ConfigError("resume needs run_dir, the folder with the checkpoints: give it to the Trainer")
        config = self.config.replace(resume=point)
        self._run = RunDirectory(Path(self.config.run_dir))
        self._lock(self._run, stack)
        continuation = find_continuation(self.comm, config, warnings.warn)
        if continuation is not None:
            self.go_on(continuation)
            if self.comm.rank == 0:
                supersede(self._run, continuation, warnings.warn)
        self._open_log(self._run, 0 if continuation is None else continuation.events_bytes, stack)

    def _reopen(self, run: RunDirectory, stack: ExitStack) -> None:
        """Lock the directory of the run for another :meth:`fit`, unless another process has trained it since."""
        self._lock(run, stack)
        if self.comm.rank == 0:
            later = [step for step in CheckpointStore(run.checkpoints).steps() if step > self.progress.num_steps]
            if later:
                raise CheckpointError(
                    f"the run in '{run.path}' has a checkpoint of step {later[-1]}, this trainer is at step "
                    f'{self.progress.num_steps}: another one has trained it meanwhile. Give resume="auto" to fit'
                )
        self._open_log(run, None, stack)

    def _lock(self, run: RunDirectory, stack: ExitStack) -> None:
        if self.comm.rank == 0:
            make_directory(run.path)
            stack.callback(lock_run(self.config).release)

    def _open_log(self, run: RunDirectory, cut_at: int | None, stack: ExitStack) -> None:
        """Write checkpoints into the run's directory, and events into its log if it has one."""
        position: Callable[[], int] = int
        if self.comm.rank == 0 and run.events.is_file():
            log = EventLog(run.events, cut_at=cut_at)
            stack.callback(log.close)
            stack.callback(setattr, self, "callbacks", self.callbacks)
            self.callbacks, position = (*self.callbacks, log), log.position
        self.keep_checkpoints(run.checkpoints, events_position=position)

    def _parts(self) -> Parts:
        return Parts(
            self.spec,
            self.strategy,
            self._own_optimizer,
            self._loop.schedule,
            self.progress,
            self.config,
            self._metadata(),
            self.global_batch_size,
        )

    def evaluate(self, split: str = "test") -> dict[str, float]:
        """Loss and metrics over the ``test``, ``validation`` or ``train`` data, each worker computing its share."""
        loader = self._plain_loader(self._source(split))
        with blas_threads(self._threads), clear_memory_errors("evaluating"):
            meter = evaluate(self.replica, loader, self.metrics, self.comm, self.num_shards)
        assert meter is not None, "nobody can interrupt it"
        return meter.means()

    def predict(self, images: ArrayLike) -> NDArray[Any]:
        """Outputs for raw images ``(n, C, H, W)``: they are normalised as the training data were."""
        with blas_threads(self._threads), clear_memory_errors("predicting"):
            return predict_images(self.replica, self.dataset.normalization, images)

    def save(self, path: Path | str) -> None:
        """Write a self-describing model file; it appears completely or not at all.

        A network with numbers that are not finite is refused: what the file held before stays.
        """
        tensors = {**self.replica.parameters.views, **self.replica.state.views}
        if bad := first_not_finite(tensors):
            raise DivergedError(f"'{bad}' is not finite: the model is not saved to {path}. {ADVICE}")
        save_model(Path(path), self.spec, tensors, self._metadata())

    def _metadata(self) -> dict[str, str]:
        return {
            "version": __version__,
            "dataset": self.dataset.name,
            "labels": json.dumps(self.dataset.class_names),
            "normalization": json.dumps(self.dataset.normalization.to_dict()),
            "loss": self.loss,
            "metrics": json.dumps(self.metrics),
        }

    def _make_optimizer(self) -> Optimizer:
        optimizer, remarks = assemble.make_optimizer(self.config)
        self.remarks += remarks
        return optimizer

    def _scaled(self, optimizer: Optimizer) -> Optimizer:
        if self._rate_factor == 1:
            return optimizer
        rate = optimizer.learning_rate * self._rate_factor
        self.remarks.append(
            f"learning_rate: {rate:g}, that of one worker ({optimizer.learning_rate:g}) times {self._rate_factor}"
        )
        return replace(optimizer, learning_rate=rate)  # type: ignore[type-var]

    def _make_schedule(self, num_epochs: int) -> Schedule:
        schedule = assemble.make_schedule(self.config, self.optimizer, num_epochs, self._rate_factor)
        assemble.check_schedule(schedule, self.metrics, self.dataset)
        return schedule

    def _make_loop(self, schedule: Schedule) -> Loop:
        config, dataset = self.config, self.dataset
        train = self._loader(
            dataset.train,
            seed=config.seed,
            augmentation=assemble.make_augmentation(config, dataset),
            partition=config.partition,
            max_steps=config.steps_per_epoch,
        )
        validation = self._plain_loader(dataset.validation) if dataset.validation is not None else None
        return Loop(
            self.replica,
            self.strategy,
            schedule,
            train,
            validation,
            self.metrics,
            config.seed,
            self.progress,
            self.timeline,
            skip_bad=config.on_nan == "skip",
            check=self._make_check(),
            threads=StepThreads(self.kernels if config.engine == "native" and config.threads is None else None),
        )

    def _make_check(self) -> Callable[[int], None]:
        sizes = {info.name: info.size for info in self.spec.parameters}
        guard = ReplicaGuard(
            self.comm, self.config.digest_every, sizes=sizes, own_parameters=not self.strategy.lockstep
        )
        strategy, replica = self.strategy, self.replica
        return lambda step: guard.after_update(step, strategy.parameters, replica.state.flat)

    def _demand(self) -> Demand:
        config = self.config
        return Demand(
            self.spec,
            config.engine,
            self.loss,
            np.dtype(config.dtype).itemsize,
            num_optimizer_arrays=len(self.optimizer.state_names),
            averaging=StrategyChoice.parse(config.strategy).name != "sync",
            num_passes=-(-self.num_shards // self.comm.size),
            on_gpu=self.device != "cpu",
        )

    def _make_strategy(self) -> Strategy:
        config, spec = self.config, self.spec
        num_state = sum(info.size for info in spec.state)
        layout = Layout(segments_of(spec.parameters), spec.num_parameters, num_state, config.dtype)
        options = Options(
            clip_value=config.clip_value,
            clip_norm=config.clip_norm,
            compression=parse_compression(config.compression),
            overlap=config.overlap,
            same_bits=config.shards is not None,
        )
        return make_strategy(
            StrategyChoice.parse(config.strategy),
            self.comm,
            layout,
            self.optimizer,
            self.kernels,
            num_shards=self.num_shards,
            options=options,
            timeline=self.timeline,
        )

    def _make_replica(self) -> Replica:
        """Rank 0 draws or loads the weights; the strategy gives them to all."""
        config = self.config
        replica = create_replica(
            config.engine,
            self.spec,
            loss=self.loss,
            local_batch_size=self.local_batch_size,
            dtype=config.dtype,
            seed=config.seed,
            kernels=self.kernels,
            parameters=self.strategy.parameters,
            gradients=self.strategy.gradients,
            threads=self._threads,
            exact=config.exact,
            device=self.device,
            tuning="measured" if config.shards is None else "rule",
        )
        if self.comm.rank == 0:
            replica.initialize(config.seed)
            if config.weights_and_bias_filename is not None:
                load_weights(replica, Path(config.weights_and_bias_filename))
        if self.comm.size > 1 and config.engine == "native":
            self._tune_in_turn(replica)
        return replica

    def _tune_in_turn(self, replica: Replica) -> None:
        """One rank of each machine measures convolution algorithms in peace; the others take what it has found."""
        if self.comm.local_rank == 0:
            replica.prepare()
        self.comm.local.barrier()
        replica.prepare()

    def _plain_loader(self, source: Source) -> BatchLoader:
        return self._loader(source, shuffle=False)

    def _loader(self, source: Source, **options: Any) -> BatchLoader:
        return BatchLoader(
            source,
            global_batch_size=self.global_batch_size,
            normalization=self.dataset.normalization,
            dtype=self.config.dtype,
            num_shards=self.num_shards,
            shards=self.strategy.shards,
            **options,
        )

    def _source(self, split: str) -> Source:
        if split not in ("train", "validation", "test"):
            raise ConfigError(f"split '{split}': expected train, validation or test")
        source: Source | None = getattr(self.dataset, split)
        if source is None:
            raise DataError(f"data set '{self.dataset.name}' has no {split} data: give a path for it, or a split")
        return source


def _names(*given: tuple[str, object, type]) -> dict[str, str]:
    """The names of parts that were given by name or as objects of Ringlet; anything else is a TypeError."""
    names = {}
    for option, value, kind in given:
        if value is None:
            continue
        if not isinstance(value, str | kind):
            raise TypeError(
                f"Trainer({option}=…): expected a name or a ringlet {kind.__name__}, received {type(value).__module__}."
                f"{type(value).__qualname__}"
            )
        names[option] = value if isinstance(value, str) else value.name  # type: ignore[attr-defined]
    return names


def load_weights(replica: Replica, path: Path) -> None:
    """Copy the tensors of a model file into a replica; they must be those of its network."""
    file = load_model_file(path / "model.safetensors" if path.is_dir() else path)
    views = {**replica.parameters.views, **replica.state.views}
    for name, view in views.items():
        tensor = file.tensors.get(name)
        if tensor is None or tensor.shape != view.shape:
            found = "has none" if tensor is None else f"has shape {tensor.shape}"
            raise ModelFileError(
                f"model file {path} does not fit network '{replica.spec.name}': '{name}' needs shape {view.shape}, "
                f"the file ('{file.spec.name}') {found}"
            )
    if extra := sorted(file.tensors.keys() - views.keys()):
        raise ModelFileError(f"model file {path} does not fit network '{replica.spec.name}': it also has '{extra[0]}'")
    for name, view in views.items():
        np.copyto(view, file.tensors[name], casting="same_kind")
