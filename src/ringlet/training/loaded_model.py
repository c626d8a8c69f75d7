"""A trained model from its file: predict and evaluate without its trainer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ringlet.comm.contract import Communicator
from ringlet.comm.single import SingleCommunicator
from ringlet.data import Dataset, Normalization, Source, load_dataset
from ringlet.data.formats import DATASETS
from ringlet.data.source import TASKS, Task
from ringlet.data.table_schema import Schema
from ringlet.engines.contract import Replica
from ringlet.engines.heads import check_class_weights
from ringlet.errors import ConfigError, DataError, ModelFileError, RingletError
from ringlet.evaluation.report import Report, make_report, make_tally
from ringlet.evaluation.tally import NUM_EXAMPLES
from ringlet.evaluation.views import views_of
from ringlet.io import jsontext
from ringlet.kernels import load as load_kernels
from ringlet.losses import LOSSES, FunctionLoss, Loss
from ringlet.losses.automatic import Automatic
from ringlet.metrics import METRICS
from ringlet.metrics.base import measures
from ringlet.models.files import ModelFile, load_model_file
from ringlet.models.spec import ModelSpec
from ringlet.training.best_weights import BestEpoch
from ringlet.training.components import check_fit
from ringlet.training.loop import evaluate
from ringlet.training.memory import Demand, check_memory, clear_memory_errors
from ringlet.training.reporting import UnitBatches
from ringlet.training.run_directory import MODEL

if TYPE_CHECKING:
    from ringlet.engines.native import NativeReplica

BATCH_SIZE = 64


@dataclass(frozen=True)
class LoadedModel:
    """A network with its weights, labels and normalisation; made by :func:`load_model`."""

    spec: ModelSpec
    labels: tuple[str, ...]
    normalization: Normalization
    dataset_name: str
    loss: str
    metrics: tuple[str, ...]
    replica: NativeReplica
    task: Task = "classification"
    table: Schema | None = None
    """How rows of a table become inputs, if it has learned from one."""
    best: BestEpoch | None = None
    """The epoch that its weights come from, where early_stopping or model_checkpoint has chosen it."""

    def predict(self, images: ArrayLike) -> NDArray[Any]:
        """Outputs for raw images ``(n, C, H, W)``: they are normalised as the training data were."""
        with clear_memory_errors("predicting"):
            return predict_images(self.replica, self.normalization, images)

    def classify(self, images: ArrayLike) -> list[str]:
        """The most likely label of each image."""
        return most_likely(self.predict(images), self.labels)

    def evaluate(self, dataset: str | Dataset | Source | None = None) -> dict[str, float]:
        """Loss and metrics over the test data of ``dataset`` (default: the one it was trained on), or over a source."""
        return self.report(dataset).metrics

    def report(
        self,
        dataset: str | Dataset | Source | None = None,
        *,
        split: str = "test",
        name: str = "",
        tta: str | None = None,
        num_examples: int = NUM_EXAMPLES,
        communicator: Communicator | None = None,
        progress: Callable[[int], None] = lambda _: None,
    ) -> Report:
        """Evaluate on ``dataset``, as :meth:`evaluate` does, and say all there is to say: see ``Trainer.report``.

        ``split`` and, for a source, ``name`` are only what the report calls the data. Several workers, those of
        ``communicator``, take a share
        each and get the same report, bit by bit the one of a single worker. ``progress`` is told how many samples this
        worker has done.
        """
        comm = SingleCommunicator() if communicator is None else communicator
        source = _test_source(self, dataset if dataset is not None else self.dataset_name)
        views = views_of(tta, self.spec.input_shape) if tta is not None else ()
        tally = make_tally(source.task, self.labels, self.spec.output_shape[0], num_examples)
        units = UnitBatches(
            source,
            self.replica.local_batch_size,
            comm,
            normalization=self.normalization,
            dtype=str(self.replica.dtype),
        )
        with clear_memory_errors("evaluating"):
            meter = evaluate(
                self.replica,
                units,
                measures(self.metrics, self.task, self.spec.output_shape[0]),
                comm,
                units.num_units,
                report=lambda _: progress(tally.num_samples),
                tally=tally,
                views=views,
            )
        assert meter is not None, "no one can interrupt it"
        called = dataset.name if isinstance(dataset, Dataset) else dataset if isinstance(dataset, str) else name
        return make_report(tally, source, meter.means(), comm, split=split, tta=tta, dataset=called)


def load_model(
    path: Path | str, *, batch_size: int = BATCH_SIZE, kernels: str | None = None, threads: int | None = None
) -> LoadedModel:
    """Load a model file, or the final model of a run directory; anything wrong with it is a ModelFileError.

    Images are computed ``batch_size`` at a time; the size of its training gives the trainer's very bits.
    """
    from ringlet.engines.native import Native, NativeReplica

    location = Path(path)
    location = location / MODEL if location.is_dir() else location
    file = load_model_file(location)
    labels, normalization, metrics, table = _details(file, location)
    task = task_of_file(file, location)
    loss, class_weights = _loss(file, task, location)
    dtype = str(next((tensor.dtype for tensor in file.tensors.values()), np.dtype("float32")))
    demand = Demand(file.spec, Native(), loss, dtype, training=False)
    check_memory(demand, batch_size, SingleCommunicator(), 1)
    with clear_memory_errors("making the network"):
        replica = NativeReplica(
            file.spec,
            loss=loss,
            class_weights=class_weights,
            local_batch_size=batch_size,
            dtype=dtype,
            kernels=load_kernels(kernels),
            threads=threads,
        )
    for name, view in {**replica.parameters.views, **replica.state.views}.items():
        np.copyto(view, file.tensors[name])
    name, best = file.metadata.get("dataset", ""), _best(file, location)
    return LoadedModel(file.spec, labels, normalization, name, loss.text, metrics, replica, task, table, best)


def task_of_file(file: ModelFile, path: Path) -> Task:
    """What a network was trained for; older files do not say it, but then a map is a segmentation."""
    usual: Task = "segmentation" if len(file.spec.output_shape) == 3 else "classification"
    found = file.metadata.get("task", usual)
    for task in TASKS:
        if task == found:
            return task
    raise ModelFileError(f"model file {path}: task {found[:60]!r} is not known, expected one of {', '.join(TASKS)}")


def _loss(file: ModelFile, task: Task, path: Path) -> tuple[Loss, NDArray[np.float64] | None]:
    """The loss and the weights of classes: texts of the file, not trusted."""
    text = file.metadata.get("loss", "auto")
    try:
        loss: Loss = LOSSES.parse(text)
        num_outputs = file.spec.output_shape[0]
        if isinstance(loss, Automatic | FunctionLoss):
            loss = loss.for_task(task, num_outputs)
        stored = file.metadata.get("class_weights")
        weights = None if stored is None else check_class_weights(jsontext.parse(stored), (num_outputs,))
    except (RingletError, ValueError, TypeError) as error:
        raise ModelFileError(f"model file {path}: its loss {text[:60]!r} is not known ({error})") from None
    return loss, weights


def _best(file: ModelFile, path: Path) -> BestEpoch | None:
    """What a file says of the best epoch; not trusted."""
    stored = file.metadata.get("best")
    if stored is None:
        return None
    try:
        about = jsontext.parse(stored)
        epoch, step = (int(file.metadata[name]) for name in ("epoch", "step"))
        return BestEpoch(epoch, step, str(about["metric"])[:80], float(about["value"]))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ModelFileError(f"model file {path}: it does not say which epoch was the best: {error}") from None


def _details(file: ModelFile, path: Path) -> tuple[tuple[str, ...], Normalization, tuple[str, ...], Schema | None]:
    """Labels, normalisation, metrics and the schema of a table: JSON texts of the file, not trusted."""
    try:
        labels, metrics = (_texts(file.metadata.get(key, "[]"), key) for key in ("labels", "metrics"))
        stored = file.metadata.get("normalization")
        normalization = Normalization() if stored is None else Normalization.from_dict(jsontext.parse(stored))
        kept = file.metadata.get("table")
        table = None if kept is None else Schema.from_dict(jsontext.parse(kept))
    except (ValueError, TypeError, ConfigError) as error:
        raise ModelFileError(f"model file {path}: {error}") from None
    for text in metrics:
        try:
            METRICS.parse(text)
        except RingletError as error:
            raise ModelFileError(f"model file {path}: metric {text[:60]!r} is not known ({error})") from None
    return labels, normalization, metrics, table


def _texts(text: str, key: str) -> tuple[str, ...]:
    values = jsontext.parse(text)
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError(f"its {key} are not a list of texts")
    return tuple(values)


def matching_dataset(
    spec: ModelSpec,
    name: str,
    *,
    path: str | None = None,
    test_path: str | None = None,
    table: Schema | None = None,
    task: Task | None = None,
) -> Dataset:
    """A data set by name in the form that a network takes: images of its size, masks of its classes, its columns.

    ``task`` is what it was trained for, where the data could mean several.
    """
    made = name in ("synthetic", "shapes")
    masks = len(spec.output_shape) == 3
    options: dict[str, Any] = {
        "path": path,
        "test_path": test_path,
        "input_shape": spec.input_shape if made else None,
        "num_classes": spec.output_shape[0] if masks or name == "synthetic" else None,
        "table": table,
    }
    if task is not None and "targets" in DATASETS.find(DATASETS.split(name)[0]).model_fields:
        options["targets"] = task
    dataset = load_dataset(name, **options)
    sizes = [shape[1:] for shape in (dataset.input_shape, spec.input_shape) if len(shape) == 3]
    if len(sizes) == 2 and sizes[0] != sizes[1]:
        dataset = load_dataset(name, **options, image_size=sizes[1])
    return dataset


def _test_source(model: LoadedModel, dataset: str | Dataset | Source) -> Source:
    if isinstance(dataset, str):
        if not dataset:
            raise DataError("the model file names no data set: say which one to evaluate on")
        dataset = matching_dataset(model.spec, dataset, table=model.table, task=model.task)
    if isinstance(dataset, Dataset):
        check_fit(model.spec, dataset)
        if dataset.test is None:
            raise DataError(f"data set '{dataset.name}' has no test data: give a path for it")
        return dataset.test
    return dataset


def predict_images(replica: Replica, normalization: Normalization, images: ArrayLike) -> NDArray[Any]:
    """Outputs ``(n, *output_shape)`` for raw images ``(n, C, H, W)``; a single image also does."""
    batch = as_batch(images, replica.spec.input_shape)
    if not len(batch):
        return np.empty((0, *replica.spec.output_shape), replica.dtype)
    return replica.predict(normalization.apply(batch, str(replica.dtype)))


def as_batch(images: ArrayLike, input_shape: Sequence[int]) -> NDArray[Any]:
    """``images`` as ``(n, *input_shape)``; anything that does not fit is an error, never reshaped by guess."""
    array, shape = np.asarray(images), tuple(input_shape)
    if array.dtype.kind not in "uif" and array.dtype != bool:
        raise DataError(f"images have type {array.dtype}: expected numbers")
    plain = shape[1:] if len(shape) == 3 and shape[0] == 1 else None
    if array.shape == shape or array.shape == plain:
        return array.reshape(1, *shape)
    if array.ndim > 1 and array.shape[1:] in (shape, plain):
        return array.reshape(len(array), *shape)
    raise DataError(f"images have shape {array.shape}: expected (n, {', '.join(map(str, shape))}), channels first")


def with_layout_of_data(images: ArrayLike, input_shape: Sequence[int]) -> NDArray[Any]:
    """Images of a program whose arrays have their channels last, as ``(n, C, H, W)``; others stay as they are."""
    array, shape = np.asarray(images), tuple(input_shape)
    last = (*shape[1:], shape[0])
    is_last = len(shape) == 3 and array.shape[-3:] == last and array.ndim in (3, 4) and shape != last
    return np.moveaxis(array, -1, -3) if is_last else array


def most_likely(outputs: NDArray[Any], labels: Sequence[str]) -> list[str]:
    """The label of the largest output of each row; without labels the class number."""
    if outputs.ndim != 2:
        raise DataError(f"outputs have shape {outputs.shape}: only a classifier gives labels")
    classes = outputs.argmax(axis=1).tolist()
    return [labels[index] if index < len(labels) else str(index) for index in classes]
