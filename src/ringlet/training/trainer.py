"""Trainer: training from Python.

>>> trainer = Trainer(model="vgg1dobn", dataset="digits", global_batch_size=32)  # doctest: +SKIP
>>> history = trainer.fit(5)  # doctest: +SKIP
>>> trainer.evaluate()["accuracy"]  # doctest: +SKIP
0.97
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ringlet import __version__
from ringlet.config import RunConfig
from ringlet.data import BatchLoader, Dataset, Source
from ringlet.engines.native import NativeReplica
from ringlet.errors import ConfigError, DataError, ModelFileError
from ringlet.kernels import load as load_kernels
from ringlet.models.files import load_model_file, save_model
from ringlet.models.spec import ModelSpec
from ringlet.optim import Optimizer, Schedule, segments_of
from ringlet.training import assemble
from ringlet.training.callbacks import Announcer, Callback
from ringlet.training.history import History
from ringlet.training.inference import predict_images
from ringlet.training.interrupts import Control
from ringlet.training.loop import Loop, Progress, evaluate
from ringlet.training.step import Updater
from ringlet.training.threads import blas_threads


@final
class Trainer:
    """A network, a data set and an optimizer, ready to train.

    ``model`` and ``dataset`` are names or objects; ``optimizer`` is a name or an :class:`~ringlet.optim.Optimizer`. All
    other options are those of :class:`~ringlet.config.RunConfig` (``ringlet train --help`` lists them). Nothing is
    printed and no file is written but by :meth:`save`.
    """

    def __init__(
        self,
        model: str | ModelSpec | None = None,
        dataset: str | Dataset | None = None,
        *,
        optimizer: str | Optimizer | None = None,
        config: RunConfig | None = None,
        callbacks: Sequence[Callback] = (),
        **options: Any,
    ) -> None:
        given = {"model": model, "dataset": dataset, "optimizer": optimizer}
        names = {key: value if isinstance(value, str) else getattr(value, "name", None) for key, value in given.items()}
        options |= {key: value for key, value in names.items() if value is not None}
        self.config = config.replace(**options) if config is not None else RunConfig(**options)
        self.callbacks = tuple(callbacks)
        self.remarks: list[str] = []
        self.dataset = dataset if isinstance(dataset, Dataset) else assemble.make_dataset(self.config)
        self.spec = model if isinstance(model, ModelSpec) else assemble.make_spec(self.config, self.dataset)
        assemble.check_fit(self.spec, self.dataset)
        self.loss, self.metrics = assemble.make_figures(self.config, self.dataset, self.spec)
        self.optimizer = optimizer if isinstance(optimizer, Optimizer) else self._make_optimizer()
        self.progress = Progress()
        schedule = self._make_schedule(self.config.num_epochs)
        self.replica = self._make_replica()
        self._updater = self._make_updater()
        self._loop = self._make_loop(schedule)

    def fit(self, epochs: int | None = None, *, control: Control | None = None) -> History:
        """Train ``epochs`` (default: the configuration's) more epochs; a second call goes on where the first ended."""
        num_epochs = self.config.num_epochs if epochs is None else epochs
        if num_epochs < 0:
            raise ConfigError(f"epochs = {num_epochs}: expected 0 or more")
        if self.progress.num_steps == 0 and num_epochs != self.config.num_epochs:
            self._loop = self._make_loop(self._make_schedule(num_epochs))
        control = control or Control()
        with blas_threads(self.config.threads):
            return self._loop.run(num_epochs, Announcer(self.callbacks, control), control)

    def evaluate(self, split: str = "test") -> dict[str, float]:
        """Loss and metrics over the ``test``, ``validation`` or ``train`` data."""
        loader = self._plain_loader(self._source(split))
        with blas_threads(self.config.threads):
            return evaluate(self.replica, loader, self.metrics).means()

    def predict(self, images: ArrayLike) -> NDArray[Any]:
        """Outputs for raw images ``(n, C, H, W)``: they are normalised as the training data were."""
        with blas_threads(self.config.threads):
            return predict_images(self.replica, self.dataset.normalization, images)

    def save(self, path: Path | str) -> None:
        """Write a self-describing model file; it appears completely or not at all."""
        tensors = {**self.replica.parameters.views, **self.replica.state.views}
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

    def _make_schedule(self, num_epochs: int) -> Schedule:
        schedule = assemble.make_schedule(self.config, self.optimizer, num_epochs)
        assemble.check_schedule(schedule, self.metrics, self.dataset)
        return schedule

    def _make_loop(self, schedule: Schedule) -> Loop:
        config, dataset = self.config, self.dataset
        train = BatchLoader(
            dataset.train,
            global_batch_size=config.samples_per_step,
            seed=config.seed,
            normalization=dataset.normalization,
            augmentation=assemble.make_augmentation(config, dataset),
            dtype=config.dtype,
            max_steps=config.steps_per_epoch,
        )
        validation = self._plain_loader(dataset.validation) if dataset.validation is not None else None
        return Loop(self.replica, self._updater, schedule, train, validation, self.metrics, config.seed, self.progress)

    def _make_replica(self) -> NativeReplica:
        config = self.config
        replica = NativeReplica(
            self.spec,
            loss=self.loss,
            local_batch_size=config.samples_per_step,
            dtype=config.dtype,
            seed=config.seed,
            kernels=load_kernels(config.kernels),
            threads=config.threads,
            exact=config.exact,
        )
        if config.weights_and_bias_filename is not None:
            load_weights(replica, Path(config.weights_and_bias_filename))
        return replica

    def _make_updater(self) -> Updater:
        parameters = self.replica.parameters.flat
        return Updater(
            self.optimizer,
            self.optimizer.init_state(parameters.size, parameters.dtype),
            segments_of(self.spec.parameters),
            self.replica.kernels,
            self.config.clip_value,
            self.config.clip_norm,
        )

    def _plain_loader(self, source: Source) -> BatchLoader:
        return BatchLoader(
            source,
            global_batch_size=self.config.samples_per_step,
            normalization=self.dataset.normalization,
            dtype=self.config.dtype,
            shuffle=False,
        )

    def _source(self, split: str) -> Source:
        if split not in ("train", "validation", "test"):
            raise ConfigError(f"split '{split}': expected train, validation or test")
        source: Source | None = getattr(self.dataset, split)
        if source is None:
            raise DataError(f"data set '{self.dataset.name}' has no {split} data: give a path for it, or a split")
        return source


def load_weights(replica: NativeReplica, path: Path) -> None:
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
