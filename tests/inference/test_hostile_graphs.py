"""Graphs that would read other files as their weights are refused, in memory and in files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ringlet import Predictor
from ringlet.errors import ModelFileError
from ringlet.export import export_model
from ringlet.inference import Artifact
from ringlet.inference.runtimes.onnx import check_self_contained


@pytest.fixture(scope="module")
def onnx_content(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    place = tmp_path_factory.mktemp("onnx") / "classes.onnx"
    export_model(model_folder / "classes.safetensors", "onnx", place)
    return place.read_bytes()


def external(name: str, location: str = "secret"):
    """A tensor that is kept in another file."""
    import onnx

    tensor = onnx.TensorProto(name=name, data_type=onnx.TensorProto.FLOAT, dims=[4])
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    return tensor


@pytest.mark.parametrize("location", ["secret", "../secret", "/etc/passwd", "*/_ORT_MEM_ADDR_/*"])
@pytest.mark.parametrize("in_memory", [True, False])
def test_an_onnx_model_with_tensors_in_other_files_is_refused(onnx_content, location, in_memory):
    import onnx

    Path("secret").write_bytes(bytes(1 << 16))
    model = onnx.load_from_string(onnx_content)
    tensor = max(model.graph.initializer, key=lambda tensor: len(tensor.raw_data))
    size = len(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", "0"), ("length", str(size))):
        tensor.external_data.add(key=key, value=value)
    Path("m.onnx").write_bytes(model.SerializeToString())
    artifact = Artifact.find("m.onnx")
    with pytest.raises(ModelFileError, match=r"tensors in other files.*onnx\.save\(onnx\.load"):
        Predictor(artifact.loaded() if in_memory else artifact)


def _place_in_constant(model) -> None:
    import onnx

    model.graph.node.append(onnx.helper.make_node("Constant", [], ["c"], value=external("x")))


def _place_in_branch(model) -> None:
    import onnx

    branch = onnx.helper.make_graph([], "branch", [], [], [external("x")])
    model.graph.node.append(onnx.helper.make_node("If", ["c"], ["d"], then_branch=branch, else_branch=branch))


def _place_in_tensors(model) -> None:
    import onnx

    attribute = onnx.AttributeProto(name="many", type=onnx.AttributeProto.TENSORS, tensors=[external("x")])
    model.graph.node[0].attribute.append(attribute)


def _place_in_sparse(model) -> None:
    import onnx

    model.graph.sparse_initializer.append(onnx.SparseTensorProto(values=external("x"), dims=[4]))


def _place_in_sparse_attribute(model) -> None:
    import onnx

    sparse = onnx.SparseTensorProto(indices=external("x"), dims=[4])
    kind = onnx.AttributeProto.SPARSE_TENSOR
    model.graph.node[0].attribute.append(onnx.AttributeProto(name="s", type=kind, sparse_tensor=sparse))


def _place_in_function(model) -> None:
    import onnx

    node = onnx.helper.make_node("Constant", [], ["c"], value=external("x"))
    model.functions.append(onnx.helper.make_function("own", "f", [], ["c"], [node], []))


def _place_in_training(model) -> None:
    import onnx

    model.training_info.add(algorithm=onnx.helper.make_graph([], "t", [], [], [external("x")]))


@pytest.mark.parametrize(
    "place",
    [
        _place_in_constant,
        _place_in_branch,
        _place_in_tensors,
        _place_in_sparse,
        _place_in_sparse_attribute,
        _place_in_function,
        _place_in_training,
    ],
)
def test_wherever_an_onnx_model_has_tensors_they_are_looked_at(onnx_content, place):
    import onnx

    model = onnx.load_from_string(onnx_content)
    check_self_contained(model.SerializeToString(), "the model")
    place(model)
    with pytest.raises(ModelFileError, match=r"1 of its tensors in other files|2 of its tensors in other files"):
        check_self_contained(model.SerializeToString(), "the model")


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 400), values=st.binary(min_size=1, max_size=12), cut=st.booleans())
def test_damaged_onnx_models_raise_nothing_else(onnx_content, place, values, cut):
    changed = onnx_content[:place] + values + onnx_content[place + (0 if cut else len(values)) :]
    try:
        check_self_contained(changed, "the model")
    except ModelFileError as error:
        assert str(error).startswith("the model")  # noqa: PT017


def test_an_onnx_model_is_not_taken_as_an_openvino_model(onnx_content):
    pytest.importorskip("openvino")
    Path("m.xml").write_bytes(onnx_content)
    Path("m.bin").touch()
    artifact = Artifact.find("m.xml")
    for model in (artifact, artifact.loaded()):
        with pytest.raises(ModelFileError, match="does not begin like one"):
            Predictor(model)
