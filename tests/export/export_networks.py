"""Networks to export, with weights that hide no mistake, and the training engine's opinion of them."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from ringlet.data.normalization import BYTES, Normalization
from ringlet.engines.native import NativeReplica
from ringlet.export.network import Network, fold
from ringlet.inference.artifact import Artifact
from ringlet.inference.description import Description, describe
from ringlet.models import zoo
from ringlet.models.spec import ModelSpec

COLOURS = Normalization(1 / 255, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
GREY = Normalization(1 / 255, (0.1307,), (0.3081,))

FAMILIES = [
    ("simplemlp", 28, {"hidden": (32, 16)}),
    ("simplecnn", 28, {}),
    ("mnistcnn", 10, {}),
    ("alexnet", 67, {"form": "imagenet", "hidden": (64, 32)}),
    ("vgg1bn", 8, {}),
    ("vgg3dobn", 8, {}),
    ("vgg11_bn", 32, {"form": "imagenet", "hidden": (32,)}),
    ("resnet20", 8, {"width": 4}),
    ("resnet18", 33, {"width": 4, "form": "imagenet"}),
    ("resnet50", 33, {"width": 4, "form": "imagenet", "version": "v1"}),
    ("mobilenetv1", 32, {"width": 0.125}),
    ("unet", 16, {"levels": 3, "width": 4}),
    ("unet", 19, {"levels": 2, "width": 4}),
    ("googlenet", 33, {}),
    ("inceptionv3", 75, {"form": "imagenet"}),
    ("densenet121", 33, {"growth": 8, "form": "imagenet"}),
]
"""Every family of the zoo, as small as it can be; some in both forms."""


SUFFIXES = {"openvino": "xml", "onnx": "onnx", "torch": "py", "keras": "keras"}
TARGETS = tuple(SUFFIXES)
LIBRARIES = {"onnx": ("onnxruntime", "onnx")}


@dataclass(frozen=True)
class Case:
    """A network with its weights, samples, and what the training engine makes of them."""

    spec: ModelSpec
    network: Network
    description: Description
    values: np.ndarray
    """Stored values, channels last."""
    expected: np.ndarray

    def check(self, path: Path, tolerance: float = 1e-4) -> None:
        """The artifact computes what the engine computes, for all samples and for one alone."""
        runtime = Artifact.find(path).open(threads=1, batch_size=4)
        assert runtime.description == self.description
        found = runtime.run(self.values)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, self.expected, rtol=0, atol=tolerance)
        np.testing.assert_allclose(runtime.run(self.values[:1]), self.expected[:1], rtol=0, atol=tolerance)
        runtime.close()


def write(case: Case, target: str) -> Path:
    """The case's artifact in the working folder; without the target's library the test is skipped."""
    if target == "keras":
        choose_keras_backend()
    for library in LIBRARIES.get(target, (target,)):
        pytest.importorskip(library, reason=f"needs {library}, which runs the export")
    module, path = import_module(f"ringlet.export.{target}"), Path(f"m.{SUFFIXES[target]}")
    module.save(module.build_model(case.network, case.description), path, case.description)
    return path


def choose_keras_backend() -> None:
    """PyTorch's starts fastest; a backend that somebody has chosen before stays."""
    if "keras" not in sys.modules:
        os.environ.setdefault("KERAS_BACKEND", "torch")


@lru_cache(maxsize=1)
def zoo_case(index: int) -> Case:
    """The network of ``FAMILIES[index]``."""
    name, size, options = FAMILIES[index]
    channels = zoo.describe(name).input_shape[0]
    shape = (channels, size, size + 2 if name == "unet" and size % 2 else size)
    spec = zoo.create(name, input_shape=shape, num_classes=None if name == "unet" else 10, **options)
    return make_case(spec, GREY if channels == 1 else COLOURS)


def make_case(spec: ModelSpec, normalization: Normalization = BYTES, count: int = 3) -> Case:
    """Weights are drawn, and those of the last layer scaled until the outputs say something about the inputs."""
    loss = "binary_cross_entropy" if spec.nodes[-1].op == "sigmoid" else "mse"
    loss = "categorical_cross_entropy" if spec.nodes[-1].op == "softmax" else loss
    replica = NativeReplica(spec, loss=loss, local_batch_size=count, tuning="rule")
    rng = np.random.default_rng(7)
    for name, view in (*replica.parameters.views.items(), *replica.state.views.items()):
        if name.endswith((".bias", ".shift", ".running_mean")):
            view[...] = rng.uniform(-0.2, 0.2, view.shape)
        elif name.endswith((".scale", ".running_var")):
            view[...] = rng.uniform(0.7, 1.4, view.shape)
    description = describe(spec, normalization, ("cat", "dög"), dataset="made up")
    preprocessing = description.preprocessing
    if preprocessing.dtype == np.uint8:
        values = rng.integers(0, 256, (count, *preprocessing.graph_shape)).astype(np.uint8)
    else:
        values = rng.normal(size=(count, *preprocessing.graph_shape)).astype(np.float32)
    inputs = normalization.apply(np.moveaxis(values, -1, 1) if values.ndim == 4 else values)
    last = next((info for info in reversed(spec.parameters) if info.role == "weight"), None)
    for _ in range(12):
        expected = replica.predict(inputs)
        if last is None or expected.std(axis=0).max() > 3e-3:
            break
        replica.parameters.views[last.name][...] *= 0.25
    assert expected.std(axis=0).max() > 1e-3, "outputs that do not depend on the inputs prove nothing"
    tensors = {**replica.parameters.views, **replica.state.views}
    return Case(spec, fold(spec, tensors), description, values, expected)
