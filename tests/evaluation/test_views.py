"""Test-time augmentation: views of images, outputs brought back, and their mean."""

from __future__ import annotations

import numpy as np
import pytest

from ringlet import Trainer
from ringlet.errors import ConfigError, UnknownNameError
from ringlet.evaluation.views import NAMES, VIEWS, averaged, views_of

IMAGES = np.random.default_rng(0).random((3, 2, 9, 8)).astype(np.float32)


@pytest.mark.parametrize("name", NAMES)
def test_outputs_of_every_view_come_back_to_their_pixels(name: str) -> None:
    for view in VIEWS[name]:
        back, covered = view.back(view.of_images(IMAGES))
        np.testing.assert_array_equal(back * covered, IMAGES * covered)
        assert covered.mean() > 0.7


@pytest.mark.parametrize("name", NAMES)
def test_a_network_that_looks_at_each_pixel_alone_gives_the_same_mean(name: str) -> None:
    result = averaged(VIEWS[name], IMAGES, lambda _, images: images * 2, (-2, -1))
    np.testing.assert_allclose(result, IMAGES * 2, rtol=1e-6)


def test_classes_are_means_over_mirrored_images() -> None:
    weights = np.random.default_rng(1).random((2 * 9 * 8, 3))
    run = lambda images: images.reshape(len(images), -1) @ weights  # noqa: E731
    result = averaged(VIEWS["flips"], IMAGES, lambda _, images: run(images), (-2, -1))
    mirrored = [IMAGES, IMAGES[..., ::-1], IMAGES[:, :, ::-1], IMAGES[:, :, ::-1, ::-1]]
    np.testing.assert_allclose(result, np.mean([run(images) for images in mirrored], axis=0), rtol=1e-6)


def test_a_shift_moves_by_two_pixels_and_repeats_the_edge() -> None:
    moved = VIEWS["shift"][1].of_images(IMAGES)
    np.testing.assert_array_equal(moved[:, :, 2:], IMAGES[:, :, :-2])
    np.testing.assert_array_equal(moved[:, :, 0], IMAGES[:, :, 0])


def test_what_has_no_views_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="flip"):
        views_of("flup", (3, 8, 8))
    with pytest.raises(ConfigError, match="expected images"):
        views_of("flip", (10,))
    with pytest.raises(ConfigError, match="are small"):
        views_of("shift", (1, 4, 9))


def test_a_trainer_reports_with_and_without_views() -> None:
    trainer = Trainer("simplecnn", "digits", num_samples=200, local_batch_size=32, threads=1)
    trainer.fit(1)
    plain, mirrored = trainer.report(), trainer.report(tta="flip", num_examples=3)
    assert plain.metrics == trainer.evaluate()
    assert plain.averages["weighted"]["recall"] == pytest.approx(plain.metrics["accuracy"])
    assert mirrored.tta == "flip"
    assert len(mirrored.examples["least_likely_truth"]) == 3
    inputs, targets = trainer.session.source("test").read(np.arange(mirrored.num_samples))
    outputs = (trainer.predict(inputs) + trainer.predict(np.ascontiguousarray(inputs[..., ::-1]))) / 2
    assert mirrored.metrics["accuracy"] == pytest.approx((outputs.argmax(axis=1) == targets).mean())
