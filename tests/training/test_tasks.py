"""Several labels, values to predict and weights, from files or functions to a trained network and back."""

from __future__ import annotations

import numpy as np
import pytest

from ringlet import Dataset, Predictor, RunConfig, Trainer, load_model
from ringlet.data import load_dataset
from ringlet.data.source import ArraySource
from ringlet.errors import ConfigError, DataError, SpecError, UsageError

OF_OBJECTS = {"global_batch_size": 32, "seed": 5}
OPTIONS = {**OF_OBJECTS, "validation_split": 0.1}


@pytest.fixture(scope="module")
def digits():
    dataset = load_dataset("digits")
    return dataset.train.read(np.arange(600))


@pytest.fixture
def files(digits, tmp_path, monkeypatch):
    """Digits as three labels, as their mean brightness, and as images to paint."""
    monkeypatch.chdir(tmp_path)
    images, classes = digits
    labels = np.stack([classes % 2 == 0, classes > 4, np.isin(classes, (2, 3, 5, 7))], axis=1)
    np.savez("labels.npz", x=images, y=labels, x_test=images[:50], y_test=labels[:50])
    features = images.reshape(600, 64).astype(np.float32) / 16
    np.savez("values.npz", x=features, y=features.mean(axis=1, dtype=np.float64) * 3)
    np.savez("paint.npz", x=images[:64] / np.float32(16), y=1 - images[:64] / np.float32(32))


def test_labels_are_learned_saved_evaluated_and_predicted(files):
    trainer = Trainer("simplecnn", "npz:labels.npz", metrics="accuracy,exact_match,f1", learning_rate=0.01, **OPTIONS)
    assert trainer.spec.nodes[-1].op == "sigmoid"
    assert trainer.loss == "binary_cross_entropy"
    history = trainer.fit(12)
    assert history["f1"][-1] > 0.75
    trainer.save("model.safetensors")
    model = load_model("model.safetensors", batch_size=32)
    assert model.task == "multilabel"
    assert model.evaluate() == trainer.evaluate()
    prediction = next(iter(Predictor("model.safetensors").predict([np.zeros((8, 8), np.uint8)])))
    shown = {name for name, p in zip("012", prediction.probabilities, strict=True) if p >= 0.5}
    assert (prediction.class_index, set(filter(None, prediction.label.split(", ")))) == (None, shown)


def test_values_are_learned_from_features(files):
    trainer = Trainer(
        "simplemlp", "npz:values.npz", model_options={"hidden": (16,)}, loss="huber", learning_rate=0.01, **OPTIONS
    )
    assert (trainer.spec.input_shape, trainer.spec.output_shape, trainer.spec.nodes[-1].op) == ((64,), (1,), "dense")
    history = trainer.fit(30)
    assert trainer.metrics == ["mae", "r2"]
    assert history["r2"][-1] > 0.7
    trainer.save("model.safetensors")
    assert load_model("model.safetensors", batch_size=32).loss == "huber"


def test_values_of_every_pixel_are_learned_by_a_unet_without_a_last_activation(files):
    options = OPTIONS | {"model_options": {"levels": 1, "momentum": 0.8}, "global_batch_size": 8}
    trainer = Trainer("unet", "npz:paint.npz", **options, learning_rate=0.01)
    assert trainer.spec.nodes[-1].op == "conv2d"
    history = trainer.fit(8)
    assert history["loss"][-1] < 0.1 * history["loss"][0]
    with pytest.raises(SpecError, match="has values of every pixel: choose a U-Net"):
        Trainer("simplecnn", "npz:paint.npz", **OPTIONS)


def test_what_does_not_fit_is_refused_before_anything_is_computed(files):
    with pytest.raises(ConfigError, match="regression has values, not classes"):
        Trainer("simplemlp", "npz:values.npz", class_weights="balanced", **OPTIONS)
    with pytest.raises(SpecError, match=r"Networks for features .*simplemlp"):
        Trainer("resnet20", "npz:values.npz", **OPTIONS)
    with pytest.raises(SpecError, match=r"'resnet18' gives outputs .*has masks: choose a U-Net"):
        Trainer("resnet18", "shapes", num_samples=20, image_size=32)
    with pytest.raises(ConfigError, match="there is no class 'ten'"):
        Trainer("simplecnn", "digits", class_weights={"ten": 2})
    with pytest.raises(TypeError, match=r"Trainer\(loss=…\): expected a name"):
        Trainer("simplecnn", "digits", loss=3)
    with pytest.raises(TypeError, match=r"Trainer\(metrics=…\): expected names"):
        Trainer("simplecnn", "digits", metrics=[3])


def rare(digits, weights=None):
    """Only a few samples of classes 0 to 4."""
    images, classes = digits
    kept = np.flatnonzero((classes > 4) | (np.arange(600) % 10 == 0))
    return ArraySource(images[kept], classes[kept], 10, weights=None if weights is None else weights[kept])


def test_balanced_weights_are_those_of_sklearn_and_stay_with_the_model(digits, tmp_path):
    source = rare(digits)
    trainer = Trainer("simplecnn", Dataset("rare", source, test=source), class_weights="balanced", **OF_OBJECTS)
    counts = np.bincount(source.read(np.arange(len(source)))[1], minlength=10)
    assert trainer.session.class_weights == pytest.approx(len(source) / (10 * counts))
    trainer.fit(1)
    trainer.save(tmp_path / "model.safetensors")
    assert load_model(tmp_path / "model.safetensors", batch_size=32).evaluate(source) == trainer.evaluate()


def test_masks_and_labels_are_balanced_by_their_ones_and_zeros(files):
    trainer = Trainer("simplecnn", "npz:labels.npz", class_weights="balanced", **OPTIONS)
    targets = trainer.dataset.train.read(np.arange(len(trainer.dataset.train)))[1]
    share = targets.mean(axis=0, dtype=np.float64)
    assert trainer.session.class_weights == pytest.approx(np.stack([0.5 / (1 - share), 0.5 / share], axis=1))
    shapes = Trainer(
        "unet", "shapes", class_weights="balanced", num_samples=8, image_size=16, model_options={"levels": 1}
    )
    masks = shapes.dataset.train.read(np.arange(len(shapes.dataset.train)))[1]
    assert shapes.session.class_weights == pytest.approx([0.5 / (1 - masks.mean()), 0.5 / masks.mean()])
    assert np.isfinite(shapes.fit(1)["loss"][0])


@pytest.mark.parametrize("engine", ["native", "torch"])
def test_a_sample_of_weight_zero_is_as_if_it_were_not_there_but_in_the_mean(digits, engine):
    images, classes = digits
    weights = (np.arange(64) % 2).astype(np.float32)
    options = {"engine": engine, "global_batch_size": 64, "optimizer": "sgd", "validation_split": 0.0}
    source = ArraySource(images[:64], classes[:64], 10, weights=weights)
    halved = Trainer("simplecnn", Dataset("weighted", source), **options, learning_rate=0.2)
    some = ArraySource(images[1:64:2], classes[1:64:2], 10)
    whole = Trainer("simplecnn", Dataset("some", some), **options, learning_rate=0.1)
    one, other = halved.fit(1)["loss"][0], whole.fit(1)["loss"][0]
    assert one == pytest.approx(other / 2, rel=1e-5)
    np.testing.assert_allclose(halved.replica.parameters.flat, whole.replica.parameters.flat, rtol=1e-4, atol=1e-6)


def squared_errors(outputs, targets):
    """Each sample's mean squared error, and the gradient of their sum."""
    errors = outputs - targets
    return (errors**2).mean(axis=1), 2 * errors / errors.shape[1]


def worst_error(outputs, targets):
    return np.abs(outputs - targets).max(axis=1)


def test_functions_serve_as_loss_and_metrics(files):
    about = {"model_options": {"hidden": (16,)}, **OPTIONS}
    own = Trainer("simplemlp", "npz:values.npz", loss=squared_errors, metrics=[worst_error, "mae"], **about)
    named = Trainer("simplemlp", "npz:values.npz", loss="mse", metrics=["mae"], **about)
    history = own.fit(2)
    assert history["loss"] == pytest.approx(named.fit(2)["loss"], rel=1e-5)
    assert min(history["val_worst_error"]) >= min(history["val_mae"])
    assert (own.loss, str(own.config.loss)) == ("given:squared_errors", "given:squared_errors")
    own.save("model.safetensors")
    model = load_model("model.safetensors")
    assert model.metrics == ("mae",)
    assert len(model.predict(np.zeros((3, 64)))) == 3
    with pytest.raises(UsageError, match="loss 'squared_errors' was given to the run by a program"):
        model.evaluate(own.dataset.train)


def test_a_run_of_functions_resumes_in_its_program_alone(files):
    about = {"model_options": {"hidden": (4,)}, "run_dir": "run", **OPTIONS}
    trainer = Trainer("simplemlp", "npz:values.npz", loss=squared_errors, **about)
    trainer.fit(1, resume="auto")
    again = Trainer("simplemlp", "npz:values.npz", loss=squared_errors, **about)
    again.fit(1, resume="auto")
    assert np.array_equal(again.replica.parameters.flat, trainer.replica.parameters.flat)
    with pytest.raises(UsageError, match="'squared_errors' was given to the run by a program"):
        Trainer("simplemlp", "npz:values.npz", config=RunConfig(loss="given:squared_errors"), **OPTIONS).fit(1)


@pytest.mark.parametrize("engine", ["native", "torch"])
def test_mixed_samples_are_smoothed_and_weighted_on_every_engine(digits, engine):
    source = rare(digits)
    loss = {"name": "cross_entropy", "label_smoothing": 0.1}
    options = {**OF_OBJECTS, "loss": loss, "class_weights": "balanced", "augmentation": "mixup", "engine": engine}
    trainer = Trainer("simplecnn", Dataset("rare", source, validation=source), **options)
    losses = trainer.fit(2)["val_loss"]
    assert trainer.loss == "categorical_cross_entropy,label_smoothing=0.1"
    assert losses[1] < losses[0]


def test_samples_with_weights_are_not_mixed(digits):
    weighted = ArraySource(digits[0], digits[1], 10, weights=np.ones(600, np.float32))
    with pytest.raises(ConfigError, match="join samples of different weights"):
        Trainer("simplecnn", Dataset("weighted", weighted), augmentation="mixup", **OF_OBJECTS)


def test_weights_of_samples_are_checked(digits):
    bad = ArraySource(digits[0], digits[1], 10, weights=np.full(600, np.nan, np.float32))
    with pytest.raises(DataError, match="sample weights must be finite"):
        Trainer("simplecnn", Dataset("bad", bad), **OF_OBJECTS).fit(1)
