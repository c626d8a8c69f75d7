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
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from numpy.typing import ArrayLike, NDArray

from ringlet.checkpoint import CheckpointStore
from ringlet.checkpoint.atomic import make_directory
from ringlet.comm.contract import Communicator
from ringlet.config import RunConfig
from ringlet.data.source import Task
from ringlet.data.values import Channels
from ringlet.errors import CheckpointError, ConfigError
from ringlet.evaluation.report import Report
from ringlet.evaluation.tally import NUM_EXAMPLES
from ringlet.io.disk import Say
from ringlet.io.storage import Place, place_of
from ringlet.models.spec import ModelSpec
from ringlet.optim import Optimizer
from ringlet.timeline import NO_TIMELINE, Timeline
from ringlet.training.best_weights import Which
from ringlet.training.events import EventLog
from ringlet.training.given_data import GivenData
from ringlet.training.given_functions import GivenAsLoss, GivenAsMetrics, function_of, given_loss, given_metrics
from ringlet.training.modules import GivenModule, Outputs, framework_of
from ringlet.training.observers import Callback, Control, Observer, Observers
from ringlet.training.progress import History
from ringlet.training.resuming import find_continuation, lock_run, set_aside
from ringlet.training.run_directory import RunDirectory
from ringlet.training.session import Session

if TYPE_CHECKING:
    from ringlet.export import Export


@final
class Trainer:
    """A network, a data set and an optimizer, ready to train.

    ``model`` is a name, a spec, a ``torch.nn.Module`` or a ``keras.Model``; ``optimizer`` is a name or an
    :class:`~ringlet.optim.Optimizer`. ``dataset`` is the name of a data set, or the training data: ``(x, y)`` of arrays
    of any library, a data set of PyTorch, a DataLoader, tf.data, a table, a generator, …, with ``validation`` and
    ``test`` of any of these kinds. ``task``, ``channels``, ``batched``, ``target`` and ``class_names`` say what such
    data mean: see :func:`ringlet.data.as_dataset`. All other options are those of :class:`~ringlet.config.RunConfig`
    (``ringlet train --help`` lists them). No file is written but by :meth:`save` and :meth:`export`.

    ``loss`` is a name, a :class:`~ringlet.losses.Loss` or a function of outputs and targets, ``metrics`` are a list of
    names, of :class:`~ringlet.metrics.Metric` and of functions: see :mod:`ringlet.losses.functions` and
    :mod:`ringlet.metrics.functions` for what functions take and give.

    A module or Keras model trains on the engine of its framework. ``outputs`` says whether it gives ``"logits"`` or
    ``"probabilities"``; by default what it computes last tells. A function as its ``loss`` gets what it gives: outputs
    and targets for PyTorch, targets and outputs for Keras, as their own losses do.

    In a program that was started on several workers (``ringlet run -n 4 program.py``, mpiexec, srun) they train
    together: every worker must make the same trainer and call the same methods, except :meth:`save` and
    :meth:`predict`.
    ``communicator`` names other workers than all of them. ``scaling_shards`` is the number of shards that
    ``learning_rate_scaling`` multiplies by, if not those of this run: a run that resumes on other workers keeps its
    rates.
    """

    def __init__(
        self,
        model: Any = None,
        dataset: Any = None,
        validation: Any = None,
        test: Any = None,
        *,
        task: Task | None = None,
        channels: Channels | None = None,
        batched: bool | None = None,
        target: str | Sequence[str] | None = None,
        class_names: Sequence[str] = (),
        optimizer: str | Optimizer | None = None,
        loss: GivenAsLoss = None,
        metrics: GivenAsMetrics = None,
        config: RunConfig | None = None,
        callbacks: Sequence[Callback] = (),
        communicator: Communicator | None = None,
        timeline: Timeline = NO_TIMELINE,
        scaling_shards: int | None = None,
        outputs: Outputs | None = None,
        **options: Any,
    ) -> None:
        given = _given_module(model, outputs, loss)
        own_loss, named_loss = given_loss(loss if given is None or given.loss is None else given.stand_in)
        own_metrics, named_metrics = given_metrics(metrics)
        options |= named_loss | named_metrics
        data = GivenData(dataset, validation, test, task, channels, batched, target, tuple(class_names))
        options |= data.options(options, config)
        options |= _checked(model=(given.name if given else model, ModelSpec), optimizer=(optimizer, Optimizer))
        self.config = config.replace(**options) if config is not None else RunConfig(**options)
        if given is not None and self.config.place("engine.name") is None:
            self.config = self.config.replace(engine=given.framework)
        self.callbacks = tuple(callbacks)
        self.session = session = Session(
            self.config,
            spec=given or (model if isinstance(model, ModelSpec) else None),
            dataset=data.load(self.config),
            loss=own_loss,
            metrics=own_metrics,
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
        self,
        epochs: int | None = None,
        *,
        control: Control | None = None,
        resume: str | int | None = None,
        verbose: bool | int | str = "auto",
    ) -> History:
        """Train ``epochs`` (default: the configuration's) more epochs; a second call goes on where the first ended.

        ``resume`` resumes from a checkpoint in the configuration's ``run_dir``, if there is one, and keeps writing
        checkpoints there: ``"auto"`` takes the newest good one, a number that of this step, ``"epoch:3"`` that of the
        end of this epoch. ``epochs`` then counts from the start of the run. Options that would make another run of it
        are refused, and so is a directory that another process writes; later checkpoints are set aside. The log of
        ``ringlet train`` is continued, if the run has one. ``verbose`` is what rank 0 shows of it: "auto" a bar on a
        terminal (on stderr) and in a notebook, elsewhere nothing; True lines where there can be no bar; 2 one line per
        epoch; False nothing. Every worker must call.

        With ``early_stopping`` or ``model_checkpoint`` as schedule the weights of the best epoch are in use when this
        returns: ``history.best`` names it, and :meth:`evaluate`, :meth:`predict` and :meth:`save` use them. Another
        ``fit`` continues from the last weights; :meth:`restore` switches between the two.
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
            observers += self._display(verbose, stack)
            stop, _ = session.train(progress.num_epochs + num_epochs, Observers(observers, control))
        history = History.of(progress, stop, first)
        if not history.interrupted:
            history.best = session.best.use_best()
        return history

    def restore(self, which: Which) -> None:
        """Use the weights of the ``"best"`` epoch or of the ``"last"`` one; every worker must call.

        There are best ones after :meth:`fit` with ``early_stopping`` or ``model_checkpoint`` as schedule.
        """
        self.session.best.use(which)

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

    def report(self, split: str = "test", *, tta: str | None = None, num_examples: int = NUM_EXAMPLES) -> Report:
        """Evaluate, and say all there is to say: scores of every class, confusion, calibration, the worst samples.

        ``tta`` averages the outputs over views of each image (``flip``, ``flips``, ``shift``); the loss is then the
        mean over views. ``num_examples`` samples of each kind are kept. Every worker must call, and all get the same
        report; :meth:`Report.write <ringlet.evaluation.Report.write>` makes files of it.
        """
        return self.session.report(split, tta=tta, num_examples=num_examples)

    def predict(self, images: ArrayLike) -> NDArray[Any]:
        """Outputs for raw images ``(n, C, H, W)``, or ``(n, H, W, C)`` if such arrays were given as training data.

        They are normalised as the training data were.
        """
        return self.session.predict(images)

    def save(self, path: Path | str) -> None:
        """Write a self-describing model file; it appears completely or not at all.

        A network with numbers that are not finite is refused: what the file held before stays. Of a PyTorch module the
        file (``.safetensors``) is its state dict, for ``load_state_dict``; a Keras model also writes ``.weights.h5``
        and ``.keras`` files.
        """
        self.session.save(Path(path))

    def export(self, path: Path | str) -> Export:
        """Write an artifact that needs neither this program nor Ringlet; the ending of ``path`` says which.

        ``.xml`` is OpenVINO, ``.onnx`` ONNX, ``.keras`` Keras, ``.pt2`` PyTorch's archive of a module and ``.py`` a
        program of PyTorch for a network of Ringlet's own. The artifact takes stored values, normalises them itself, and
        is kept only if it computes what :meth:`predict` computes. One worker may call.
        """
        # exports are made of trained networks, so their package is above this one
        exported: Export = import_module("ringlet.export.modules").export_session(self.session, path)
        return exported

    def _display(self, verbose: bool | int | str, stack: ExitStack) -> list[Observer]:
        """What shows the training, closed with ``stack``."""
        from ringlet.training.display import display_for

        shown = display_for(verbose) if self.comm.rank == 0 else None
        return [] if shown is None else [stack.enter_context(closing(shown))]

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


def _given_module(model: object, outputs: Outputs | None, loss: GivenAsLoss) -> GivenModule | None:
    """The module that was given as a network, with the loss if that is a function; None for other networks."""
    framework = framework_of(model)
    if framework is not None:
        return GivenModule(model, framework, outputs, function_of(loss))
    if outputs is not None:
        raise TypeError(
            f"Trainer(outputs={outputs!r}): that is for a torch.nn.Module or a keras.Model, received {model!r:.80}"
        )
    return None


def _checked(**given: tuple[object, type]) -> dict[str, Any]:
    """Parts that were given by name or as objects of Ringlet, for the configuration; anything else is a TypeError."""
    found: dict[str, Any] = {}
    for option, (value, kind) in given.items():
        if value is None:
            continue
        if not isinstance(value, str | kind):
            others = ", a torch.nn.Module or a keras.Model" if kind is ModelSpec else ""
            raise TypeError(
                f"Trainer({option}=…): expected a name or a ringlet {kind.__name__}{others}, received "
                f"{type(value).__module__}.{type(value).__qualname__}"
            )
        if isinstance(value, ModelSpec):
            value = value.name
        found[option] = value
    return found
