"""A trained model from its file: predict and evaluate without its trainer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ringlet.comm.single import SingleCommunicator
from ringlet.data import BatchLoader, Dataset, Normalization, Source, load_dataset
from ringlet.engines.contract import Replica
from ringlet.errors import ConfigError, DataError, ModelFileError
from ringlet.io import jsontext
from ringlet.kernels import load as load_kernels
from ringlet.models.files import ModelFile, load_model_file
from ringlet.models.spec import ModelSpec
from ringlet.optim.metric_names import LOSS_NAMES
from ringlet.training.components import check_fit
from ringlet.training.loop import evaluate
from ringlet.training.memory import Demand, check_memory, clear_memory_errors
from ringlet.training.metrics import names as metric_names
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

    def predict(self, images: ArrayLike) -> NDArray[Any]:
        """Outputs for raw images ``(n, C, H, W)``: they are normalised as the training data were."""
        with clear_memory_errors("predicting"):
            return predict_images(self.replica, self.normalization, images)

    def classify(self, images: ArrayLike) -> list[str]:
        """The most likely label of each image."""
        return most_likely(self.predict(images), self.labels)

    def evaluate(self, dataset: str | Dataset | Source | None = None) -> dict[str, float]:
        """Loss and metrics over the test data of ``dataset`` (default: the one it was trained on), or over a source."""
        loader = BatchLoader(
            _test_source(self, dataset if dataset is not None else self.dataset_name),
            global_batch_size=self.replica.local_batch_size,
            normalization=self.normalization,
            dtype=str(self.replica.dtype),
            shuffle=False,
        )
        with clear_memory_errors("evaluating"):
            meter = evaluate(self.replica, loader, self.metrics, SingleCommunicator())
        assert meter is not None, "no one can interrupt it"
        return meter.means()


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
    labels, normalization, metrics = _details(file, location)
    loss = file.metadata.get("loss", "categorical_cross_entropy")
    if loss not in LOSS_NAMES:
        raise ModelFileError(f"model file {location}: loss {loss[:60]!r} is not known")
    dtype = str(next((tensor.dtype for tensor in file.tensors.values()), np.dtype("float32")))
    demand = Demand(file.spec, Native(), loss, dtype, training=False)
    check_memory(demand, batch_size, SingleCommunicator(), 1)
    with clear_memory_errors("making the network"):
        replica = NativeReplica(
            file.spec,
            loss=loss,
            local_batch_size=batch_size,
            dtype=dtype,
            kernels=load_kernels(kernels),
            threads=threads,
        )
    for name, view in {**replica.parameters.views, **replica.state.views}.items():
        np.copyto(view, file.tensors[name])
    return LoadedModel(file.spec, labels, normalization, file.metadata.get("dataset", ""), loss, metrics, replica)


def _details(file: ModelFile, path: Path) -> tuple[tuple[str, ...], Normalization, tuple[str, ...]]:
    """Labels, normalisation and metrics: JSON texts of the file, not trusted."""
    try:
        labels, metrics = (_texts(file.metadata.get(key, "[]"), key) for key in ("labels", "metrics"))
        stored = file.metadata.get("normalization")
        normalization = Normalization() if stored is None else Normalization.from_dict(jsontext.parse(stored))
    except (ValueError, TypeError, ConfigError) as error:
        raise ModelFileError(f"model file {path}: {error}") from None
    if unknown := [name for name in metrics if name not in metric_names()]:
        raise ModelFileError(f"model file {path}: metric {unknown[0][:60]!r} is not known")
    return labels, normalization, metrics


def _texts(text: str, key: str) -> tuple[str, ...]:
    values = jsontext.parse(text)
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError(f"its {key} are not a list of texts")
    return tuple(values)


def matching_dataset(spec: ModelSpec, name: str, *, path: str | None = None, test_path: str | None = None) -> Dataset:
    """A data set by name in the form that a network takes: images of its size, masks of its classes."""
    made = name in ("synthetic", "shapes")
    masks = len(spec.output_shape) == 3
    options: dict[str, Any] = {
        "path": path,
        "test_path": test_path,
        "input_shape": spec.input_shape if made else None,
        "num_classes": spec.output_shape[0] if masks or name == "synthetic" else None,
    }
    dataset = load_dataset(name, **options)
    sizes = [shape[1:] for shape in (dataset.input_shape, spec.input_shape) if len(shape) == 3]
    if len(sizes) == 2 and sizes[0] != sizes[1]:
        dataset = load_dataset(name, **options, image_size=sizes[1])
    return dataset


def _test_source(model: LoadedModel, dataset: str | Dataset | Source) -> Source:
    if isinstance(dataset, str):
        if not dataset:
            raise DataError("the model file names no data set: say which one to evaluate on")
        dataset = matching_dataset(model.spec, dataset)
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


def most_likely(outputs: NDArray[Any], labels: Sequence[str]) -> list[str]:
    """The label of the largest output of each row; without labels the class number."""
    if outputs.ndim != 2:
        raise DataError(f"outputs have shape {outputs.shape}: only a classifier gives labels")
    classes = outputs.argmax(axis=1).tolist()
    return [labels[index] if index < len(labels) else str(index) for index in classes]
