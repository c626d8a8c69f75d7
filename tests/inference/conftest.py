"""What the inference tests share: folders of their own, small models as files and exports, and pictures."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from ringlet.data.normalization import BYTES, Normalization
from ringlet.libraries import switch_telemetry_off
from ringlet.models import builder as b
from ringlet.models.files import save_model
from ringlet.models.initializers import initial_values
from ringlet.models.spec import ModelSpec

switch_telemetry_off()


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder, with a cache of its own."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("RINGLET_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("RINGLET_TUNING", "off")
    return folder


def save(path: Path, spec: ModelSpec, labels: tuple[str, ...], normalization: Normalization = BYTES) -> Path:
    tensors = {info.name: initial_values(info, 1, "float32") for info in (*spec.parameters, *spec.state)}
    metadata = {"labels": json.dumps(labels), "normalization": json.dumps(normalization.to_dict())}
    return save_model(path, spec, tensors, metadata)


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``classes.safetensors`` (RGB 12x16, three classes), ``masks`` (RGB 16x16), ``kinds`` (masks of three classes)."""
    folder = tmp_path_factory.mktemp("models")
    x = b.relu(b.conv2d(b.image_input((3, 12, 16)), 4, kernel=3))
    x = b.softmax(b.dense(b.flatten(b.max_pool2d(x, 2)), 3))
    save(folder / "classes.safetensors", b.build("classes", x), ("cat", "dog", "cow"))
    x = b.relu(b.batch_norm(b.conv2d(b.image_input((3, 16, 16)), 4, kernel=3, padding="same")))
    save(folder / "masks.safetensors", b.build("masks", b.sigmoid(b.conv2d(x, 1, kernel=1))), ("object",))
    x = b.relu(b.conv2d(b.image_input((3, 16, 16)), 4, kernel=3, padding="same"))
    save(folder / "kinds.safetensors", b.build("kinds", b.softmax(b.conv2d(x, 3, kernel=1))), ("sky", "sea", "land"))
    return folder


@pytest.fixture
def classes(model_folder: Path) -> Path:
    return model_folder / "classes.safetensors"


@pytest.fixture
def masks(model_folder: Path) -> Path:
    return model_folder / "masks.safetensors"


@pytest.fixture
def kinds(model_folder: Path) -> Path:
    return model_folder / "kinds.safetensors"


@pytest.fixture(scope="session")
def exports(model_folder: Path) -> Path:
    """The classifier and the segmentation as OpenVINO models."""
    pytest.importorskip("openvino")
    from ringlet.export import export_model

    for name in ("classes", "masks"):
        export_model(model_folder / f"{name}.safetensors", "openvino")
    return model_folder


def picture(height: int, width: int, seed: int = 0, mode: str = "RGB") -> PIL.Image.Image:
    """Coarse coloured noise, so that it survives resizing."""
    values = np.random.default_rng(seed).integers(0, 256, (4, 5, 3)).astype(np.uint8)
    return PIL.Image.fromarray(values).resize((width, height), PIL.Image.Resampling.BICUBIC).convert(mode)


def encoded(image: PIL.Image.Image, kind: str = "PNG") -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind)
    return stream.getvalue()


@pytest.fixture
def pictures(own_folder: Path) -> list[Path]:
    """Ten PNG files of different sizes."""
    folder = own_folder / "shots"
    folder.mkdir()
    paths = [folder / f"shot{index}.png" for index in range(10)]
    for index, path in enumerate(paths):
        picture(20 + index, 30 - index, index).save(path)
    return paths


@pytest.fixture
def png():
    """Makes the content of a PNG file: ``png(height, width, seed)``."""
    return lambda height, width, seed=0, mode="RGB": encoded(picture(height, width, seed, mode))
