"""Pictures of validation samples: which, when, how they look, and that nothing they do ends a training."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest
from PIL import Image

from ringlet import RunConfig, Trainer
from ringlet.comm.single import SingleCommunicator
from ringlet.data.builtin import ShapesSource
from ringlet.evaluation.panels import fitted, image_panel, mask_panel
from ringlet.evaluation.sheets import GAP, LINE, Sample, draw_sheet
from ringlet.training.events import EpochFinished
from ringlet.training.pictures import ValidationPictures, evenly_spaced, predicted_mask, remove_pictures_after
from ringlet.training.session import Session

SMALL: dict[str, Any] = {
    "model": "unet",
    "model_options": {"levels": 2, "width": 2},
    "dataset": "shapes",
    "image_size": 16,
    "num_samples": 40,
    "validation_split": 0.5,
    "num_epochs": 3,
    "run_dir": "out",
}
SIDE = 128
"""Panels of such small images are drawn this large."""


def names() -> list[str]:
    folder = Path("out/pictures")
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def panels(path: str, num_rows: int) -> list[list[np.ndarray]]:
    """Image, truth and prediction of every row of a picture, cut out of it."""
    with Image.open(path) as picture:
        sheet = np.asarray(picture)
    return [
        [sheet[LINE + row * (SIDE + LINE) :, GAP + column * (SIDE + GAP) :][:SIDE, :SIDE] for column in range(3)]
        for row in range(num_rows)
    ]


def test_every_epoch_leaves_one_picture() -> None:
    Session.open(RunConfig(**SMALL)).run()
    assert names() == ["epoch-0001.png", "epoch-0002.png", "epoch-0003.png"]


def test_a_picture_shows_image_truth_and_prediction_of_the_model_at_that_moment() -> None:
    predictions = []
    session = Session.open(RunConfig(**SMALL))
    source = session.dataset.validation
    assert source is not None
    inputs, targets = source.read(np.array([0, 6, 12, 19]))

    def keep(event: object) -> None:
        if isinstance(event, EpochFinished):
            predictions.append(session.predict(inputs))

    session.run([keep])
    for epoch, predicted in enumerate(predictions, 1):
        for row, (image, truth, prediction) in enumerate(panels(f"out/pictures/epoch-{epoch:04d}.png", 4)):
            np.testing.assert_array_equal(image, np.moveaxis(inputs[row], 0, 2).repeat(8, 0).repeat(8, 1))
            np.testing.assert_array_equal(truth[::8, ::8, 0], targets[row, 0] * 255)
            np.testing.assert_array_equal(prediction[::8, ::8, 0], np.rint(predicted[row, 0] * 255))


@pytest.mark.parametrize(("num_pictures", "expected"), [(0, 0), (1, 1), (3, 3), (100, 20)])
def test_their_number_is_an_option(num_pictures: int, expected: int) -> None:
    Session.open(RunConfig(**SMALL | {"num_epochs": 1}, num_pictures=num_pictures)).run()
    assert names() == (["epoch-0001.png"] if num_pictures else [])
    if num_pictures:
        with Image.open("out/pictures/epoch-0001.png") as picture:
            assert picture.height == LINE + expected * (SIDE + LINE) + GAP


@pytest.mark.parametrize("changes", [{"dataset": "digits", "model": "simplecnn"}, {"validation_split": 0.0}])
def test_without_masks_or_validation_nothing_is_drawn(changes: dict[str, Any]) -> None:
    options = {**SMALL, "num_epochs": 1, **changes}
    if changes.get("dataset"):
        options |= {"model_options": {}, "image_size": None}
    Session.open(RunConfig(**options)).run()
    assert names() == []


def test_a_resumed_run_draws_the_same_samples_and_forgets_later_pictures() -> None:
    Session.open(RunConfig(**SMALL, checkpoint_every="1 epochs", keep=0)).run()
    before = {name: Path("out/pictures", name).read_bytes() for name in names()}
    Path("out/pictures/mine.png").write_bytes(b"keep me")
    resumed = RunConfig(**SMALL | {"num_epochs": 2}, checkpoint_every="1 epochs", keep=0, resume="epoch:1")
    with pytest.warns(UserWarning, match="supersedes the checkpoints"):
        Session.open(resumed).run()
    assert Path("out/superseded/1/pictures/epoch-0003.png").read_bytes() == before["epoch-0003.png"]
    assert names() == ["epoch-0001.png", "epoch-0002.png", "mine.png"]
    assert Path("out/pictures/epoch-0002.png").read_bytes() == before["epoch-0002.png"]


def test_pictures_do_not_change_what_is_learned() -> None:
    results = [
        Session.open(RunConfig(**SMALL | {"run_dir": f"out{count}"}, num_pictures=count)).run() for count in (0, 4)
    ]
    assert results[0].epochs == results[1].epochs


def test_a_folder_that_cannot_be_written_does_not_end_the_training() -> None:
    said: list[str] = []
    session = Session.open(RunConfig(**SMALL), say=said.append)

    def spoil(event: object) -> None:
        if isinstance(event, EpochFinished) and event.epoch == 1:
            Path("out/pictures/epoch-0001.png").unlink()
            Path("out/pictures").rmdir()
            Path("out/pictures").write_text("in the way")

    assert session.run([spoil]).num_epochs == 3
    assert len([line for line in said if "out/pictures" in line and "the next picture is tried" in line]) == 1


def test_a_trainer_draws_when_told_to() -> None:
    trainer = Trainer(**{name: value for name, value in SMALL.items() if name != "run_dir"})
    trainer.fit(1)
    assert not list(Path().iterdir())
    trainer.keep_pictures("pictures")
    trainer.fit(1)
    assert [path.name for path in Path("pictures").iterdir()] == ["epoch-0002.png"]


def test_nothing_half_written_stays_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Image.Image, file: BinaryIO, **_: object) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    whole = Image.Image.save
    monkeypatch.setattr(Image.Image, "save", fail)
    said: list[str] = []
    source = ShapesSource((3, 16, 16), 8)
    pictures = ValidationPictures(source, 2, SingleCommunicator(), Path("pictures"), said.append)
    pictures.take_outputs(np.arange(8), np.zeros((8, 1, 16, 16), np.float32))
    pictures.after_validation(1)
    pictures.after_validation(2)
    assert list(Path("pictures").iterdir()) == []
    assert [line.split(":")[0] for line in said] == ["cannot write pictures/epoch-0001.png"]
    assert "the disk or quota is full (No space left on device): " in said[0]
    assert said[0].endswith(" are free. The run goes on; the next picture is tried as planned")
    monkeypatch.setattr(Image.Image, "save", whole)
    pictures.after_validation(3)
    assert [path.name for path in Path("pictures").iterdir()] == ["epoch-0003.png"]
    assert said[1:] == ["the picture can be written again"]


@pytest.mark.parametrize(
    ("num_samples", "num_chosen", "expected"),
    [(64, 4, [0, 21, 42, 63]), (3, 4, [0, 1, 2]), (10, 1, [0]), (1, 5, [0]), (5, 5, [0, 1, 2, 3, 4])],
)
def test_samples_are_spread_over_all_of_them(num_samples: int, num_chosen: int, expected: list[int]) -> None:
    assert evenly_spaced(num_samples, num_chosen).tolist() == expected


def test_of_several_classes_the_most_likely_is_drawn_in_its_colour() -> None:
    output = np.zeros((3, 2, 2))
    output[[0, 1, 2, 1], [0, 0, 1, 1], [0, 1, 0, 1]] = 1
    mask = predicted_mask(output)
    np.testing.assert_array_equal(mask, [[0, 1], [2, 1]])
    panel = mask_panel(mask, 3)
    colours = [tuple(panel[y, x]) for y in (0, -1) for x in (0, -1)]
    assert colours[0] == (0, 0, 0)
    assert colours[1] == colours[3]
    assert len(set(colours)) == 3


@pytest.mark.parametrize(
    ("shape", "expected"), [((16, 16), (128, 128)), ((200, 100), (200, 100)), ((1030, 2000), (129, 250))]
)
def test_panels_are_of_a_size_to_look_at(shape: tuple[int, int], expected: tuple[int, int]) -> None:
    assert fitted(np.zeros((*shape, 3), np.uint8)).shape == (*expected, 3)


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_images_of_any_channels_can_be_shown(channels: int, dtype: type) -> None:
    image = (np.arange(channels * 130 * 130).reshape(channels, 130, 130) % 251).astype(dtype)
    panel = image_panel(image)
    assert (panel.shape, panel.dtype) == ((130, 130, 3), np.uint8)
    assert panel.std() > 10


def test_values_that_are_not_numbers_can_be_shown() -> None:
    sample = Sample(0, np.zeros((1, 130, 130), np.float32), np.zeros((130, 130), np.float32))
    sheet = np.asarray(draw_sheet([sample], [np.full((130, 130), np.nan, np.float32)], 1, "epoch 1"))
    assert not sheet[LINE : LINE + 130, GAP + 2 * (130 + GAP) :][:130, :130].any()


def test_only_pictures_of_later_epochs_are_removed(tmp_path: Path) -> None:
    for name in ("epoch-0001.png", "epoch-0003.png", "epoch-12345.png", "epoch-0009.png.txt", "other.png"):
        (tmp_path / name).touch()
    remove_pictures_after(tmp_path, 2)
    remove_pictures_after(tmp_path / "missing", 2)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == [
        "epoch-0001.png",
        "epoch-0009.png.txt",
        "other.png",
    ]
