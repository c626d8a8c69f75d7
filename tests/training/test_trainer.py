"""Trainer: fitting, evaluating, predicting, saving; and the defects of others that must not come back."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from ringlet import RunConfig, Trainer, load_dataset, load_model
from ringlet.errors import ConfigError, DataError, ModelFileError, SpecError, UnknownNameError
from ringlet.models import zoo
from ringlet.optim import create
from ringlet.training.events import EpochFinished, EventLog, StepFinished, TrainingFinished


def weights(trainer):
    return trainer.replica.parameters.flat.copy()


def test_training_lowers_the_loss(small_trainer):
    history = small_trainer(num_epochs=4, steps_per_epoch=0).fit()
    assert history["loss"][-1] < history["loss"][0]


def test_the_same_seed_gives_the_same_weights(small_trainer):
    first, second = small_trainer(seed=3), small_trainer(seed=3)
    first.fit()
    second.fit()
    np.testing.assert_array_equal(weights(first), weights(second))


def test_another_seed_gives_other_weights(small_trainer):
    assert not np.array_equal(weights(small_trainer(seed=3)), weights(small_trainer(seed=4)))


def test_two_fits_equal_one_long_fit(small_trainer):
    once, twice = small_trainer(), small_trainer()
    once.fit(4)
    twice.fit(2)
    twice.fit(2)
    np.testing.assert_array_equal(weights(once), weights(twice))


def test_without_validation_there_are_no_validation_figures(small_trainer):
    history = small_trainer(validation_split=0.0, num_epochs=12).fit()
    assert history.names() == ["accuracy", "loss"]
    assert len(history) == 12


def test_throughput_counts_trained_samples_only(small_trainer):
    seen = []
    trainer = small_trainer(steps_per_epoch=0, validation_split=0.2)
    trainer.callbacks = (seen.append,)
    trainer.fit()
    finished = next(event for event in seen if isinstance(event, TrainingFinished))
    assert finished.num_samples == 2 * len(trainer.dataset.train) == 2 * 1150
    assert finished.samples_per_second == pytest.approx(finished.num_samples / finished.seconds)


def test_figures_of_an_epoch_weigh_by_samples(small_trainer):
    seen = []
    trainer = small_trainer(num_epochs=1, steps_per_epoch=0, batch_size=500)
    trainer.callbacks = (seen.append,)
    trainer.fit()
    steps = [event for event in seen if isinstance(event, StepFinished)]
    epoch = next(event for event in seen if isinstance(event, EpochFinished))
    sizes = [step.num_samples for step in steps]
    assert len(set(sizes)) > 1
    expected = np.average([step.figures["accuracy"] for step in steps], weights=sizes)
    assert epoch.figures["accuracy"] == pytest.approx(expected)


def test_steps_per_epoch_limits_an_epoch(small_trainer):
    trainer = small_trainer(num_epochs=3, steps_per_epoch=2)
    trainer.fit()
    assert trainer.progress.num_steps == 6


def test_a_batch_larger_than_the_data_is_told_and_not_padded(small_trainer):
    trainer, whole = small_trainer(batch_size=100_000), small_trainer()
    num_train = len(trainer.dataset.train)
    assert f"larger than the training data ({num_train:,}): an epoch is one step" in " ".join(trainer.remarks)
    assert trainer.replica.local_batch_size == num_train
    trainer.fit(1)
    assert trainer.progress.num_steps == 1
    assert not any("larger than" in remark for remark in whole.remarks)


def test_a_callback_can_stop_training(small_trainer):
    trainer = small_trainer(num_epochs=5)
    trainer.callbacks = (lambda event: "enough" if isinstance(event, EpochFinished) and event.epoch == 2 else None,)
    history = trainer.fit()
    assert (len(history), history.stopped) == (2, "enough")


def test_objects_serve_instead_of_names():
    dataset = load_dataset("digits", validation_split=0.1)
    spec = zoo.create("simplemlp", input_shape=(1, 8, 8), num_classes=10, hidden=(16,))
    trainer = Trainer(spec, dataset, optimizer=create("sgd", learning_rate=0.1), steps_per_epoch=3)
    trainer.fit(1)
    assert trainer.config.model.network == "simplemlp"
    assert trainer.config.optimizer.name == "sgd"


def test_a_segmentation_network_learns_masks():
    options = {"levels": 2, "width": 2}
    trainer = Trainer("unet", "shapes", model_options=options, input_shape=(3, 16, 16), num_samples=32, batch_size=8)
    history = trainer.fit(1)
    assert {"dice", "iou", "loss", "val_dice"} <= set(history.names())


@pytest.mark.parametrize("model", ["simplemlp", "unet", "resnet20"])
def test_synthetic_data_fit_any_network(model):
    options = {"model_options": {"levels": 2, "width": 2}, "input_shape": (3, 16, 16)} if model == "unet" else {}
    trainer = Trainer(model, "synthetic", num_samples=16, batch_size=4, steps_per_epoch=1, **options)
    assert len(trainer.fit(1)) == 1


@pytest.mark.parametrize("optimizer", ["Adam", "SGD", "SGDMomentum", "RMSProp", "nadam", "adamw", "adadelta", "lars"])
def test_every_optimizer_trains(small_trainer, optimizer):
    assert len(small_trainer(optimizer=optimizer, num_epochs=1).fit()) == 1


def test_an_option_foreign_to_the_optimizer_is_remarked(small_trainer):
    trainer = small_trainer(optimizer="adam", momentum=0.9)
    assert trainer.remarks == ["momentum: no effect, optimizer 'adam' has no such option"]


def test_early_stopping_ends_training(small_trainer):
    trainer = small_trainer(
        num_epochs=20, learning_rate=1e-12, lr_schedulers=("early_stopping",), early_stopping_patience=1,
        early_stopping_metric="accuracy",
    )  # fmt: skip
    history = trainer.fit()
    assert len(history) < 20
    assert "early stopping" in history.stopped


def test_the_learning_rate_follows_its_schedule(small_trainer):
    seen = []
    trainer = small_trainer(num_epochs=4, learning_rate=0.01, lr_schedulers=("step",), step_every=2)
    trainer.callbacks = (seen.append,)
    trainer.fit()
    rates = [event.learning_rate for event in seen if isinstance(event, EpochFinished)]
    assert rates == pytest.approx([0.01, 0.01, 0.001, 0.001])


def test_clipping_limits_the_update(small_trainer):
    options = {"optimizer": "sgd", "momentum": 0.0, "learning_rate": 1.0, "num_epochs": 1, "steps_per_epoch": 1}
    trainer = small_trainer(clip_norm=1e-3, **options)
    before = weights(trainer)
    trainer.fit()
    assert np.linalg.norm(weights(trainer) - before) == pytest.approx(1e-3, rel=1e-3)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"model": "simplecn"}, UnknownNameError, "Did you mean 'simplecnn'"),
        ({"dataset": "digit"}, ConfigError, "Did you mean 'digits'"),
        ({"optimizer": "adm"}, ConfigError, "Did you mean 'adam'"),
        ({"metrics": ("acuracy",)}, ConfigError, "Did you mean 'accuracy'"),
        ({"loss_func": "accuracy"}, ConfigError, "unknown loss"),
        ({"model": "unet"}, SpecError, "one class per image"),
        ({"validation_split": 0.0001}, ConfigError, "Give another share, or 0 for no validation"),
        ({"num_classes": 3}, SpecError, "leave num_classes out"),
        ({"loss_func": "accuracy,mean_square"}, ConfigError, "unknown loss 'mean_square'"),
        ({"model_options": {"depth": 5}}, UnknownNameError, "Known: none"),
        ({"num_classes": 5}, SpecError, "outputs"),
        ({"lr_schedulers": ("early_stopping",), "early_stopping_metric": "val_iou"}, ConfigError, "not reported"),
        (
            {"lr_schedulers": ("early_stopping",), "early_stopping_metric": "val_loss", "validation_split": 0.0},
            ConfigError,
            "no validation data",
        ),
        ({"crop_images": True, "crop_images_size": 16}, ConfigError, "does not fit 8x8"),
        ({"weights_and_bias_filename": "none.safetensors"}, ModelFileError, "none.safetensors"),
    ],
)
def test_impossible_requests_are_refused_before_training(options, error, message):
    with pytest.raises(error) as caught:
        Trainer(**options)
    assert message in str(caught.value)


def test_a_saved_model_predicts_the_same_after_loading(small_trainer):
    trainer = small_trainer()
    trainer.fit()
    trainer.save("model.safetensors")
    images, _ = trainer.dataset.test.read(np.arange(50))
    np.testing.assert_array_equal(
        load_model("model.safetensors", batch_size=32, kernels="reference").predict(images), trainer.predict(images)
    )


def test_a_loaded_model_knows_labels_normalisation_and_data(small_trainer):
    trainer = small_trainer()
    trainer.save("model.safetensors")
    model = load_model("model.safetensors", batch_size=32, kernels="reference")
    assert model.labels == tuple("0123456789")
    assert model.normalization == trainer.dataset.normalization
    assert model.evaluate() == trainer.evaluate()


def test_saved_weights_start_another_run(small_trainer):
    first = small_trainer()
    first.fit()
    first.save("first.safetensors")
    second = small_trainer(weights_and_bias_filename="first.safetensors", seed=9)
    np.testing.assert_array_equal(weights(second), weights(first))


def test_weights_of_another_network_are_refused(small_trainer):
    small_trainer(model="simplemlp").save("mlp.safetensors")
    with pytest.raises(ModelFileError, match="does not fit network 'simplecnn'"):
        small_trainer(weights_and_bias_filename="mlp.safetensors")


@pytest.mark.parametrize("shape", [(3, 1, 8, 8), (3, 8, 8), (1, 8, 8), (8, 8)])
def test_images_of_any_sensible_form_are_predicted(small_trainer, shape):
    assert small_trainer().predict(np.zeros(shape, np.uint8)).shape[1:] == (10,)


def test_images_of_another_shape_are_refused(small_trainer):
    with pytest.raises(DataError, match="channels first"):
        small_trainer().predict(np.zeros((3, 8, 8, 1)))


def test_no_image_gives_no_output(small_trainer):
    assert small_trainer().predict(np.zeros((0, 1, 8, 8))).shape == (0, 10)


def test_augmentation_leaves_validation_alone(small_trainer):
    plain, mirrored = small_trainer(), small_trainer(flip_images=True, flip_images_prob=1.0)
    assert plain.evaluate("validation") == mirrored.evaluate("validation")


def test_the_event_log_holds_one_object_per_line(tmp_path, small_trainer):
    import json

    log = EventLog(tmp_path / "events.ndjson", clock=lambda: 1.5)
    trainer = small_trainer(num_epochs=1)
    trainer.callbacks = (log,)
    trainer.fit()
    log.close()
    records = [json.loads(line) for line in (tmp_path / "events.ndjson").read_text().splitlines()]
    names = [record["event"] for record in records]
    assert names == [
        "epoch_started",
        *["step_finished"] * 4,
        "validation_started",
        "phases_measured",
        "epoch_finished",
        "training_finished",
    ]
    assert records[1]["figures"].keys() == {"accuracy", "loss"}


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("model", object()),
        ("optimizer", SimpleNamespace(name="adam")),
        ("optimizer", 0.1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_neither_a_name_nor_a_part_is_refused(part: str, value: object) -> None:
    """It must never be replaced by a default."""
    with pytest.raises(TypeError, match=rf"Trainer\({part}=…\): expected a name or a ringlet \w+.*, received \w+"):
        Trainer(**{part: value})


@pytest.mark.parametrize("value", [np.zeros((4, 1, 8, 8)), 42, object()], ids=lambda value: type(value).__name__)
def test_what_is_no_data_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match=r"train data: .*expected \(x, y\)"):
        Trainer(dataset=value)


def test_a_list_is_as_good_as_a_tuple() -> None:
    lists = RunConfig(metrics=["accuracy"], lr_schedulers=["warm_up"], input_shape=[1, 8, 8], image_size=[8, 8])
    assert lists == RunConfig(
        metrics=("accuracy",), lr_schedulers=("warm_up",), input_shape=(1, 8, 8), image_size=(8, 8)
    )
