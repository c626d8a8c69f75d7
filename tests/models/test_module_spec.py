"""The description of a module: as JSON and back, and what is no such description."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringlet.errors import ModelFileError, SpecError
from ringlet.models import zoo
from ringlet.models.files import load_model_file, load_network_file, write_model
from ringlet.models.module_spec import ModuleSpec, TensorInfo, network_from_json

SPEC = ModuleSpec(
    "Net",
    "torch",
    (3, 8, 8),
    (10,),
    "softmax",
    (
        TensorInfo("conv.weight", (4, 3, 3, 3), "float32", "parameter"),
        TensorInfo("conv.bias", (4,), "float32", "parameter"),
        TensorInfo("norm.num_batches_tracked", (), "int64", "count"),
        TensorInfo("norm.running_mean", (4,), "float32", "state"),
        TensorInfo("mask", (2,), "bool", "constant"),
    ),
    num_activations=7,
    module=object(),
)


def arrays() -> dict[str, Any]:
    return {tensor.name: np.ones(tensor.shape, tensor.dtype) for tensor in SPEC.tensors}


def write(path: Path, tensors: dict[str, Any]) -> Path:
    stream = BytesIO()
    write_model(stream, SPEC, tensors, {"labels": "[]"})
    path.write_bytes(stream.getvalue())
    return path


def test_it_comes_back_from_its_text_without_the_module() -> None:
    found = network_from_json(SPEC.to_json())
    assert found == SPEC
    assert isinstance(found, ModuleSpec)
    assert found.module is None
    assert found.fingerprint() == SPEC.fingerprint()


def test_a_graph_comes_back_from_its_text_too() -> None:
    spec = zoo.create("simplemlp", input_shape=(1, 8, 8), num_classes=10)
    assert network_from_json(spec.to_json()) == spec


def test_tensors_are_sorted_by_what_happens_to_them() -> None:
    assert [(info.name, info.node, info.role) for info in SPEC.parameters] == [
        ("conv.weight", "conv", "weight"),
        ("conv.bias", "conv", "bias"),
    ]
    assert [info.name for info in SPEC.state] == ["norm.running_mean", "norm.num_batches_tracked"]
    assert [tensor.name for tensor in SPEC.kept] == ["norm.num_batches_tracked", "mask"]
    assert SPEC.num_parameters == 112


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"framework": "mxnet"},
        {"activation": "relu"},
        {"name": 3},
        {"input_shape": [-1]},
        {"output_shape": "10"},
        {"tensors": [["w", [2], "complex64", "parameter"]]},
        {"tensors": [["w", [2], "float32", "code"]]},
        {"tensors": [["w", [2], "float32"]]},
        {"tensors": [["w", [2], "float32", "state"], ["w", [2], "float32", "state"]]},
        {"more": 1},
    ],
    ids=json.dumps,
)
def test_a_text_that_describes_no_module_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(SpecError):
        network_from_json(json.dumps(json.loads(SPEC.to_json()) | change))


def test_a_file_holds_tensors_of_all_types(tmp_path: Path) -> None:
    found = load_network_file(write(tmp_path / "model.safetensors", arrays()))
    assert found.spec == SPEC
    assert {name: array.dtype for name, array in found.tensors.items()} == {
        name: array.dtype for name, array in arrays().items()
    }
    with pytest.raises(ModelFileError, match="weights of 'Net', a module of torch"):
        load_model_file(tmp_path / "model.safetensors")


def test_a_file_with_a_tensor_of_another_type_is_refused(tmp_path: Path) -> None:
    tensors = arrays() | {"mask": np.ones(2, np.uint8)}
    with pytest.raises(ModelFileError, match="'mask' has dtype 'uint8', the module needs 'bool'"):
        load_network_file(write(tmp_path / "model.safetensors", tensors))
