"""Learning masks: data in folders, losses and figures, networks of any size, several classes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ringlet import RunConfig, Trainer, load_model
from ringlet.data import Dataset, load_dataset
from ringlet.data.builtin import ShapesSource
from ringlet.errors import ConfigError, DataError, SpecError
from ringlet.optim.metric_names import split_losses
from ringlet.training.components import make_augmentation
from ringlet.training.session import Session

SMALL: dict[str, Any] = {
    "model": "unet",
    "model_options": {"levels": 2, "width": 4, "momentum": 0.9},
    "dataset": "shapes",
    "image_size": 16,
    "num_samples": 32,
    "num_epochs": 1,
}


@pytest.fixture
def shape_folder(tmp_path: Path) -> Callable[..., Path]:
    """A folder of shapes as files: ``train`` and ``val`` with images and masks."""

    def make(num_classes: int = 1, size: int = 24) -> Path:
        for part, count, first in (("train", 12, 0), ("val", 4, 100)):
            source = ShapesSource((3, size, size), count, num_classes=num_classes, first=first)
            inputs, targets = source.read(np.arange(count))
            for kind in ("images", "masks"):
                (tmp_path / "data" / part / kind).mkdir(parents=True, exist_ok=True)
            for number, (image, mask) in enumerate(zip(inputs, targets, strict=True)):
                folder = tmp_path / "data" / part
                Image.fromarray(np.moveaxis(image, 0, 2)).save(folder / "images" / f"{number}.png")
                values = mask.reshape(size, size).astype(np.uint8) * (255 if num_classes == 1 else 1)
                Image.fromarray(values).save(folder / "masks" / f"{number}_mask.png")
        return tmp_path / "data"

    return make


@pytest.mark.parametrize("kind", ["folder", "masks"])
def test_folders_of_images_and_masks_are_learned_and_validated_on_their_own_validation_folder(
    kind: str, shape_folder: Callable[..., Path]
) -> None:
    folder = shape_folder()
    session = Session.open(RunConfig(**SMALL | {"dataset": f"{kind}:{folder}", "num_samples": None}, run_dir="out"))
    assert [len(part) for part in (session.dataset.train, session.dataset.validation)] == [12, 4]
    result = session.run()
    assert list(result.epochs[0]) == ["dice", "iou", "loss", "val_dice", "val_iou", "val_loss"]
    assert result.test is None, "validation data are no test data"


def test_a_trained_model_is_evaluated_at_its_own_size(shape_folder: Callable[..., Path]) -> None:
    session = Session.open(
        RunConfig(**SMALL | {"dataset": f"folder:{shape_folder()}", "num_samples": None}, run_dir="out")
    )
    result = session.run()
    validated = {name.removeprefix("val_"): value for name, value in result.epochs[-1].items() if "val_" in name}
    assert session.dataset.validation is not None
    assert load_model("out", batch_size=8).evaluate(session.dataset.validation) == validated


def test_several_classes_are_learned_evaluated_and_drawn(shape_folder: Callable[..., Path]) -> None:
    options = {**SMALL, "dataset": f"masks:{shape_folder(4)}", "num_samples": None, "num_classes": 4}
    session = Session.open(RunConfig(**options, metrics=("iou", "pixel_accuracy"), rotate_images=True, run_dir="out"))
    result = session.run()
    assert session.loss == "categorical_cross_entropy"
    validated = {name.removeprefix("val_"): value for name, value in result.epochs[-1].items() if "val_" in name}
    assert set(validated) == {"iou", "accuracy", "loss"}
    assert load_model("out", batch_size=8).evaluate(session.dataset.validation) == validated
    assert Path("out/pictures/epoch-0001.png").is_file()


def test_masks_of_classes_without_a_number_of_classes_are_explained(shape_folder: Callable[..., Path]) -> None:
    with pytest.raises(DataError, match="Give num_classes, at least 4, to learn them"):
        Trainer("unet", f"masks:{shape_folder(4)}")


@pytest.mark.parametrize(("loss", "used"), [("dice", "dice"), ("bce_dice", "bce_dice"), (None, "bce_dice")])
def test_a_few_epochs_learn_the_shapes(loss: str | None, used: str) -> None:
    trainer = Trainer(**SMALL | {"num_samples": 64, "learning_rate": 0.01}, loss_func=loss, metrics=("iou",))
    history = trainer.fit(8)
    assert trainer.loss == used
    assert history.epochs[-1]["loss"] < 0.6 * history.epochs[0]["loss"]
    assert history.epochs[-1]["iou"] > 0.7
    assert history.epochs[-1]["val_iou"] > 0.5


def test_bce_dice_is_the_sum_of_its_parts() -> None:
    losses = {
        loss: Trainer(**SMALL, loss_func=loss).evaluate()["loss"]
        for loss in ("dice", "bce_dice", "binary_cross_entropy")
    }
    assert losses["bce_dice"] == pytest.approx(losses["dice"] + losses["binary_cross_entropy"], rel=1e-6)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("bce_dice", ("bce_dice", [])),
        ("bce_dice_loss", ("bce_dice", [])),
        ("dice_coef_loss", ("dice", [])),
        ("dice_coef,dice_loss", ("dice", ["dice"])),
        ("mse,dice_loss", ("dice", ["mse"])),
        ("pixel_accuracy,jaccard,dice_coefficient,bce", ("binary_cross_entropy", ["accuracy", "iou", "dice"])),
    ],
)
def test_losses_and_figures_of_masks_have_the_names_people_use(given: str, expected: object) -> None:
    assert split_losses(given) == expected


@pytest.mark.parametrize("metric", ["val_bce_dice", "val_dice_loss", "val_loss"])
def test_a_monitor_watches_the_loss_by_any_of_its_names(metric: str) -> None:
    options = {"lr_schedulers": ("early_stopping",), "early_stopping_metric": metric, "early_stopping_patience": 1}
    trainer = Trainer(**SMALL | {"num_epochs": 9}, learning_rate=1e-12, **options)
    assert len(trainer.fit().epochs) < 9


@pytest.mark.parametrize(("size", "options"), [((17, 30), {"width": 3}), ((9, 9), {"levels": 3, "width": 2})])
def test_images_of_any_size_and_networks_of_any_width_train(size: tuple[int, int], options: dict[str, int]) -> None:
    trainer = Trainer(**SMALL | {"image_size": size, "model_options": options})
    trainer.fit(1)
    assert trainer.predict(np.zeros((2, 3, *size), np.uint8)).shape == (2, 1, *size)


def test_a_batch_of_masks_is_small_unless_asked_otherwise() -> None:
    assert Trainer(**SMALL).global_batch_size == 8
    assert Trainer(**SMALL, local_batch_size=16).global_batch_size == 16
    assert Trainer(**SMALL, shards=2).global_batch_size == 16
    assert Trainer(model="simplecnn").global_batch_size == 64


def test_one_number_is_a_square_image_size() -> None:
    assert RunConfig(image_size=128).dataset.image_size == (128, 128)
    assert RunConfig(image_size=(96,)).dataset.image_size == (96, 96)
    with pytest.raises(ConfigError, match=r"image_size: expected height,width or one number.* received 0,0"):
        RunConfig(image_size=0)


def test_every_kind_of_augmentation_can_be_asked_for() -> None:
    light = ("jitter", "colour", "blur", "erase")
    kinds = ("flip", "crop", "shift", "rotate", "vertical_flip", "zoom", "resized_crop", *light)
    dataset = load_dataset("shapes", num_samples=8)
    assert make_augmentation(RunConfig(), dataset) is None
    samples = dataset.train.read(np.arange(8))
    for kind in kinds:
        augmentation = make_augmentation(RunConfig(**{f"{kind}_images": True, f"{kind}_images_prob": 1.0}), dataset)
        assert augmentation is not None
        changed, masks = augmentation.apply(tuple(part.copy() for part in samples), np.arange(8), 0, 0)
        assert (changed != samples[0]).any(axis=(1, 2, 3)).all(), kind
        assert (masks != samples[1]).any() == (kind not in light)


def test_a_network_of_other_classes_than_the_masks_is_refused() -> None:
    source = ShapesSource((3, 16, 16), 8)
    with pytest.raises(SpecError, match=r"needs \(1, 16, 16\)"):
        Trainer("unet", Dataset("own", source), num_classes=3, model_options=SMALL["model_options"])


def test_real_photographs_of_cars_are_learned(real_data: Path) -> None:
    options = {"dataset": f"folder:{real_data / 'carvana'}", "image_size": 32, "num_samples": 64, "num_epochs": 8}
    trainer = Trainer(
        "unet", model_options={"levels": 3, "momentum": 0.9}, learning_rate=0.005, flip_images=True, **options
    )
    validated = trainer.fit().epochs[-1]
    assert validated["val_iou"] > 0.7
    assert validated["val_dice"] > 0.6
