"""Weights of torchvision, timm and Keras: networks of the zoo give the outputs of theirs, which are drawn at random."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringlet.engines.native import NativeReplica
from ringlet.errors import ModelFileError
from ringlet.models import zoo
from ringlet.models.files import save_model
from ringlet.models.foreign.fitting import Loaded, load_weights
from ringlet.models.initializers import initialize
from ringlet.models.spec import ModelSpec


def _load_networks() -> Any:
    path = Path(__file__).with_name("foreign_networks.py")
    description = importlib.util.spec_from_file_location("foreign_networks", path)
    assert description is not None
    assert description.loader is not None
    module = importlib.util.module_from_spec(description)
    description.loader.exec_module(module)
    return module


foreign_networks = _load_networks()
NUM_CLASSES = foreign_networks.NUM_CLASSES


def outputs(spec: ModelSpec, loaded: Loaded, images: Any) -> Any:
    replica = NativeReplica(spec, local_batch_size=len(images), tuning="rule")
    views = {**replica.parameters.views, **replica.state.views}
    for name, values in loaded.tensors.items():
        views[name][...] = values
    return replica.predict(images)


def network(name: str, size: int, **options: Any) -> ModelSpec:
    return zoo.create(name, input_shape=(3, size, size), num_classes=NUM_CLASSES, **options)


# -- PyTorch -----------------------------------------------------------------------------------------------------------
OPTIONS = {
    "vgg11_bn": {"form": "imagenet", "hidden": (16, 16)},
    "googlenet": {},
    "mobilenetv1": {"activation": "relu6"},
}
OWN_NAMES = {"inception_v3": "inceptionv3", "mobilenetv1_100": "mobilenetv1"}


@pytest.fixture(scope="session")
def states(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """State files of networks of other packages, and their outputs."""
    if not foreign_networks.NETWORKS.is_dir():
        pytest.skip("torchvision and timm are not in the folder that `make prepare` installs them into")
    folder = tmp_path_factory.mktemp("states")
    subprocess.run([sys.executable, foreign_networks.__file__, str(folder)], check=True, timeout=240)
    return folder


@pytest.mark.parametrize("case", foreign_networks.CASES)
def test_weights_of_pytorch_give_the_same_outputs(case: str, states: Path) -> None:
    name, size = OWN_NAMES.get(case, case), foreign_networks.CASES[case]
    spec = network(name, size, **OPTIONS.get(name, {"form": "imagenet"}))
    loaded = load_weights(states / f"{case}.pth", spec)
    assert loaded.tensors.keys() == {info.name for info in (*spec.parameters, *spec.state)}
    assert loaded.new == ()
    assert all(layer.lower().startswith("aux") for layer in loaded.left)
    assert bool(loaded.remarks) == (case == "inception_v3"), "whose average pools count padding"
    expected = np.load(states / f"{case}.npy")
    np.testing.assert_allclose(outputs(spec, loaded, foreign_networks.some_images(size)), expected, atol=2e-5)


# -- Keras -------------------------------------------------------------------------------------------------------------
def keras_vgg(keras: Any) -> Any:
    base = keras.applications.VGG16(include_top=False, weights=None, input_shape=(32, 32, 3))
    x = keras.layers.Flatten()(base.output)
    for name in ("fc1", "fc2"):
        x = keras.layers.Dense(16, activation="relu", name=name)(x)
    return keras.Model(base.input, keras.layers.Dense(NUM_CLASSES, activation="softmax", name="predictions")(x))


def application(name: str, size: int) -> Callable[[Any], Any]:
    def make(keras: Any) -> Any:
        options = {"weights": None, "classes": NUM_CLASSES, "input_shape": (size, size, 3)}
        return getattr(keras.applications, name)(**options)

    return make


KERAS = {
    "resnet50": (application("ResNet50", 64), "resnet50", 64, {"form": "imagenet", "version": "v1"}, "model.keras"),
    "densenet121": (application("DenseNet121", 64), "densenet121", 64, {"form": "imagenet"}, "old.h5"),
    "vgg16": (keras_vgg, "vgg16", 32, {"form": "imagenet", "hidden": (16, 16)}, "model.keras"),
    "inceptionv3": (application("InceptionV3", 96), "inceptionv3", 96, {"form": "imagenet"}, "some.weights.h5"),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Keras saves and computes by NumPy's older rules
@pytest.mark.parametrize("case", KERAS)
def test_weights_of_keras_give_the_same_outputs(case: str, tmp_path: Path) -> None:
    keras = pytest.importorskip("keras")
    make, name, size, options, file = KERAS[case]
    made, generator = make(keras), np.random.default_rng(2)
    for layer in made.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            for variable in layer.weights:
                low = -0.3 if variable.name in ("beta", "moving_mean") else 0.5
                variable.assign(generator.uniform(low, low + 0.6, variable.shape))
    (made.save_weights if file.endswith("weights.h5") else made.save)(tmp_path / file)
    images, spec = foreign_networks.some_images(size), network(name, size, **options)
    loaded = load_weights(tmp_path / file, spec)
    assert (loaded.new, loaded.left) == ((), ())
    expected = keras.ops.convert_to_numpy(made(np.moveaxis(images, 1, 3), training=False))
    np.testing.assert_allclose(outputs(spec, loaded, images), expected, atol=1e-4)


# -- what does not fit -------------------------------------------------------------------------------------------------
@pytest.fixture
def saved_resnet(states: Path) -> Path:
    return states / "resnet18.pth"


def test_a_head_of_another_size_is_new_and_said_so(saved_resnet: Path) -> None:
    spec = zoo.create("resnet18", input_shape=(3, 64, 64), num_classes=7, form="imagenet")
    loaded = load_weights(saved_resnet, spec)
    assert loaded.new == ("dense1",)
    assert loaded.describe(saved_resnet) == [
        f"weights of {saved_resnet}: {len(loaded.tensors)} tensors loaded; new: dense1; left in the file: fc"
    ]


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("resnet34", {"form": "imagenet"}, "'conv6' needs shape"),
        ("resnet18", {"form": "cifar"}, r"'conv1' needs shape \(64, 3, 3, 3\), the file has shape \(64, 3, 7, 7\)"),
        ("simplecnn", {}, "weights of torchvision or timm are known for densenet, googlenet"),
        ("resnet20", {}, "no other package has 'resnet20'"),
        ("mobilenetv1", {}, "give activation=relu6"),
        ("resnet50", {"form": "imagenet", "version": "v1"}, "leave version=v1 out"),
    ],
)
def test_weights_of_another_network_are_refused(
    name: str, options: dict[str, Any], words: str, saved_resnet: Path
) -> None:
    with pytest.raises(ModelFileError, match=words):
        load_weights(saved_resnet, network(name, 64, **options))


def test_a_program_in_the_place_of_weights_is_not_run(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save(torch.nn.Linear(2, 2), tmp_path / "module.pth")
    with pytest.raises(ModelFileError, match="Expected a state dict"):
        load_weights(tmp_path / "module.pth", network("resnet18", 64))


def test_a_model_of_ringlet_gives_all_but_its_head(tmp_path: Path) -> None:
    before, after = (zoo.create("vgg1bn", input_shape=(1, 8, 8), num_classes=count) for count in (10, 3))
    tensors = initialize(before, seed=5)
    save_model(tmp_path / "model.safetensors", before, tensors)
    loaded = load_weights(tmp_path / "model.safetensors", after)
    assert loaded.new == ("dense2",)
    for name, values in loaded.tensors.items():
        np.testing.assert_array_equal(values, tensors[name])
    with pytest.raises(ModelFileError, match="does not fit network 'simplecnn'"):
        load_weights(tmp_path / "model.safetensors", zoo.create("simplecnn"))
