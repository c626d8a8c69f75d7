"""What a Keras model must do as the network of a trainer; Keras' own training is the judge.

Keras has one backend per process: ``python keras_model_checks.py FOLDER CHECK…`` runs many checks in one process and
prints what each said, as JSON.
"""

from __future__ import annotations

import gc
import json
import os
import re
import sys
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringlet import Dataset, Predictor, Trainer
from ringlet.data.normalization import BYTES
from ringlet.data.source import ArraySource
from ringlet.engines.keras import import_keras
from ringlet.errors import RingletError, SpecError

CLASSES = 3
SHAPE = (2, 6, 5)
OPTIONS: dict[str, Any] = {"num_epochs": 2, "global_batch_size": 10, "seed": 3, "threads": 1}
FOLDER = Path()


def sample_data(count: int = 50, *, whole: bool = False) -> Dataset:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, CLASSES, count)
    images = rng.standard_normal((count, *SHAPE)) + labels.reshape(-1, 1, 1, 1)
    if whole:
        stored = np.clip(images * 40 + 100, 0, 255).astype(np.uint8)
        return Dataset("bytes", ArraySource(stored, labels, CLASSES), normalization=BYTES)
    return Dataset("toy", ArraySource(images.astype("float32"), labels, CLASSES))


def functional(seed: int = 1, *, softmax: bool = False, normalized: bool = False) -> Any:
    """Channels last, as Keras has images."""
    import keras

    keras.utils.set_random_seed(seed)
    images = keras.Input((6, 5, 2))
    hidden = keras.layers.Conv2D(4, 3, activation="relu")(images)
    hidden = keras.layers.LayerNormalization()(hidden) if normalized else hidden
    outputs = keras.layers.Dense(CLASSES, activation="softmax" if softmax else None)(keras.layers.Flatten()(hidden))
    return keras.Model(images, outputs, name="small")


def odd(seed: int = 1) -> Any:
    """Dropout, statistics, a frozen layer, a regulariser; a class of its own, built by its first call."""
    import keras

    class Odd(keras.Model):
        def __init__(self) -> None:
            super().__init__(name="odd")
            self.flatten = keras.layers.Flatten()
            self.frozen = keras.layers.Dense(8, trainable=False)
            self.norm = keras.layers.BatchNormalization(momentum=0.8)
            self.dropout = keras.layers.Dropout(0.4)
            self.head = keras.layers.Dense(CLASSES, kernel_regularizer=keras.regularizers.L2(0.01))

        def call(self, inputs: Any, training: bool | None = None) -> Any:
            hidden = self.norm(self.frozen(self.flatten(inputs)), training=training)
            return self.head(self.dropout(hidden, training=training))

    keras.utils.set_random_seed(seed)
    return Odd()


def values(model: Any) -> dict[str, bytes]:
    """Of all variables but the states of random generators."""
    import keras

    return {
        variable.path: np.asarray(keras.ops.convert_to_numpy(variable)).tobytes()
        for variable in model.variables
        if "seed_generator" not in variable.path
    }


def refused(kind: type[Exception], words: str, make: Any) -> None:
    with pytest.raises(kind, match=re.escape(words)):
        make()


# -- checks ------------------------------------------------------------------------------------------------------------
def twenty_steps() -> None:
    """As many steps of Keras' own training give the same weights."""
    import keras

    pairs = [
        ({"optimizer": "sgd", "learning_rate": 0.05, "momentum": 0.9}, keras.optimizers.SGD(0.05, momentum=0.9)),
        ({"optimizer": "adam", "learning_rate": 0.01, "epsilon": 1e-7}, keras.optimizers.Adam(0.01, epsilon=1e-7)),
    ]
    for ours, theirs in pairs:
        model, twin = functional(), functional()
        trainer = Trainer(model, sample_data(100), **OPTIONS | ours)
        batches = [batch for epoch in range(2) for batch in trainer.session._loop.train.epoch(epoch)]
        trainer.fit()
        twin.compile(theirs, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        for batch in batches:
            twin.train_on_batch(np.transpose(batch.inputs, (0, 2, 3, 1)), batch.targets)
        for found, expected in zip(model.get_weights(), twin.get_weights(), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-3, atol=2e-5)


def own_loss() -> None:
    """A loss of Keras, called as Keras calls it, is that of the same name, on shards of unequal size."""
    import keras

    results = []
    losses = [None, keras.losses.SparseCategoricalCrossentropy(from_logits=True)]
    losses.append(lambda wanted, given: keras.losses.sparse_categorical_crossentropy(wanted, given, from_logits=True))
    for loss in losses:
        more = {} if loss is None else {"loss": loss, "shards": 3}
        trainer = Trainer(functional(), sample_data(), optimizer="sgd", learning_rate=0.1, **OPTIONS | more)
        trainer.fit(1)
        results.append((trainer.replica.parameters.flat.copy(), trainer.evaluate("train")["loss"]))
        np.testing.assert_allclose(trainer.predict(sample_data().train.read(np.arange(3))[0]).sum(1), 1, rtol=1e-5)
    for parameters, loss_found in results[1:]:
        np.testing.assert_allclose(parameters, results[0][0], rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(loss_found, results[0][1], rtol=1e-4)


def weights() -> None:
    """Those of samples and classes multiply the losses, of a named loss and of one that gives each sample's."""
    import keras

    inputs, targets = sample_data().train.read(np.arange(50))
    own, table = np.linspace(0, 2, 50).astype("float32"), np.array([0.5, 2, 1])
    source = ArraySource(inputs, targets, CLASSES, weights=own)
    logits = functional()(np.transpose(inputs, (0, 2, 3, 1)))
    entropies = keras.losses.sparse_categorical_crossentropy(targets, logits, from_logits=True)
    entropies = np.asarray(keras.ops.convert_to_numpy(entropies))
    by_sample = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None)
    for options, factors in (({"class_weights": table.tolist()}, own * table[targets]), ({"loss": by_sample}, own)):
        trainer = Trainer(functional(), Dataset("weighted", source), **OPTIONS | options)
        np.testing.assert_allclose(trainer.evaluate("train")["loss"], np.mean(entropies * factors), rtol=1e-5)
        history = trainer.fit()
        assert history["loss"][1] < history["loss"][0]
    refused(
        RingletError,
        "gives one value for all samples",
        lambda: Trainer(
            functional(),
            Dataset("weighted", source),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            **OPTIONS,
        ).fit(),
    )


def regularisers() -> None:
    """They are part of the loss, once for every sample."""
    import keras

    model = odd()
    trainer = Trainer(model, sample_data(), **OPTIONS)
    inputs, targets = sample_data().train.read(np.arange(50))
    logits = model(np.transpose(inputs, (0, 2, 3, 1)), training=False)
    data = keras.losses.sparse_categorical_crossentropy(targets, logits, from_logits=True)
    expected = float(np.mean(keras.ops.convert_to_numpy(data))) + float(sum(model.losses))
    np.testing.assert_allclose(trainer.evaluate("train")["loss"], expected, rtol=1e-5)


def kinds_of_variables() -> None:
    """What is frozen stays, statistics follow, the same seed gives the same bits, the model has what was learned."""
    ends = []
    for seed in (3, 3, 4):
        model = odd()
        trainer = Trainer(model, sample_data(), optimizer="adam", decay=0.1, shards=2, **OPTIONS | {"seed": seed})
        before = values(model)
        trainer.fit()
        after = values(model)
        changed = {path.partition("/")[2] for path in after if after[path] != before[path]}
        assert not any("dense/" in path for path in changed if path.startswith("dense/")), changed
        assert any("moving_mean" in path for path in changed), changed
        ends.append(list(after.values()))
        images = sample_data().train.read(np.arange(4))[0]
        import keras

        raw = keras.ops.softmax(model(np.transpose(images, (0, 2, 3, 1)), training=False))
        np.testing.assert_allclose(trainer.predict(images), keras.ops.convert_to_numpy(raw), rtol=1e-4, atol=1e-6)
    assert ends[0] == ends[1]
    assert ends[0] != ends[2], "dropout and the order follow the seed"


def resuming() -> None:
    """To the bit, with what is frozen from the checkpoint."""
    options = OPTIONS | {"shards": 2, "optimizer": "adam", "checkpoint_every": "3 steps", "keep": 0}
    options["run_dir"] = str(FOLDER / "run")
    straight = odd()
    Trainer(straight, sample_data(), **options).fit(resume="auto")
    resumed = odd(seed=7)
    trainer = Trainer(resumed, sample_data(), **options)
    trainer.session.say = lambda _: None
    trainer.fit(resume="6")
    assert list(values(resumed).values()) == list(values(straight).values())


def layouts() -> None:
    """Images become (H, W, C) if the model takes that; what fits neither way is refused with both shapes."""
    import keras

    for layers in ([keras.Input(SHAPE)], [keras.Input((6, 5, 2))], [keras.Input((None, None, 2))], []):
        pooled = [keras.layers.GlobalAveragePooling2D()] if layers and None in layers[0].shape[1:] else []
        model = keras.Sequential([*layers, *pooled, keras.layers.Flatten(), keras.layers.Dense(CLASSES)])
        trainer = Trainer(model, sample_data(), **OPTIONS)
        images = sample_data().train.read(np.arange(4))[0]
        last = trainer.replica._channels_last
        assert last is (not layers or tuple(layers[0].shape[1:]) != SHAPE)
        raw = model(np.transpose(images, (0, 2, 3, 1)) if last else images)
        expected = keras.ops.convert_to_numpy(keras.ops.softmax(raw))
        np.testing.assert_allclose(trainer.predict(images), expected, rtol=1e-4, atol=1e-6)
    wrong = keras.Sequential([keras.Input((7, 5, 2)), keras.layers.Flatten(), keras.layers.Dense(CLASSES)])
    refused(SpecError, "takes (7, 5, 2), the data are (2, 6, 5)", lambda: Trainer(wrong, sample_data(), **OPTIONS))


def masks() -> None:
    """(n, H, W, K) of a model is (n, K, H, W) here."""
    import keras

    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((8, 12, 3)), keras.layers.Conv2D(1, 3, padding="same", activation="sigmoid")])
    options = OPTIONS | {"input_shape": (3, 8, 12), "num_samples": 20}
    trainer = Trainer(model, "shapes", **options)
    before = trainer.evaluate("train")["loss"]
    trainer.fit(3)
    assert trainer.evaluate("train")["loss"] < before
    assert trainer.predict(trainer.dataset.train.read(np.arange(2))[0]).shape == (2, 1, 8, 12)


def refusals() -> None:
    """Clear words for what cannot be."""
    import keras

    images = keras.Input((6, 5, 2))
    two = keras.Model(images, [keras.layers.Flatten()(images), keras.layers.Dense(3)(keras.layers.Flatten()(images))])
    refused(SpecError, "expected one tensor", lambda: Trainer(two, sample_data(), **OPTIONS))
    frozen = functional()
    frozen.trainable = False
    refused(SpecError, "nothing to train", lambda: Trainer(frozen, sample_data(), **OPTIONS))
    refused(RingletError, "leave engine out", lambda: Trainer(functional(), sample_data(), engine="native", **OPTIONS))
    refused(SpecError, "policy", lambda: Trainer(functional(), sample_data(), dtype="bfloat16", **OPTIONS))


def files() -> None:
    """Keras' own files load without Ringlet."""
    import keras

    model = functional(softmax=True)
    trainer = Trainer(model, sample_data(), **OPTIONS)
    trainer.fit(1)
    trainer.save(FOLDER / "net.keras")
    trainer.save(FOLDER / "net.weights.h5")
    trainer.save(FOLDER / "net.safetensors")
    whole, other = keras.models.load_model(FOLDER / "net.keras"), functional(seed=8)
    other.load_weights(FOLDER / "net.weights.h5")
    for loaded in (whole, other):
        for found, expected in zip(loaded.get_weights(), model.get_weights(), strict=True):
            np.testing.assert_array_equal(found, expected)
    assert not [path for path in FOLDER.iterdir() if "partial" in path.name]
    refused(RingletError, ".weights.h5 or .keras", lambda: trainer.save(FOLDER / "net.h5"))


def exports() -> None:
    """What each backend can write answers like the trainer, from stored values."""
    backend = os.environ["KERAS_BACKEND"]
    if sys.modules.get("tensorflow", 0) is None:
        del sys.modules["tensorflow"]  # Keras' layers of preprocessing look for it
    kinds = {"tensorflow": [".keras", ".xml"], "torch": [".keras", ".xml", ".onnx"], "jax": [".keras"]}[backend]
    trainer = Trainer(functional(normalized=True), sample_data(whole=True), **OPTIONS)
    trainer.fit(1)
    images = trainer.dataset.train.read(np.arange(4))[0]
    for kind in kinds:
        trainer.export(FOLDER / f"export{kind}")
        with Predictor(FOLDER / f"export{kind}", threads=1) as predictor:
            answers = list(predictor.predict([np.moveaxis(image, 0, -1) for image in images]))
        found = [answer.probabilities for answer in answers]
        np.testing.assert_allclose(found, trainer.predict(images), atol=1e-5, err_msg=kind)
    if ".onnx" not in kinds:
        refused(RingletError, "KERAS_BACKEND=torch", lambda: trainer.export(FOLDER / "export.onnx"))


CHECKS = {
    check.__name__: check
    for check in (
        twenty_steps, own_loss, weights, regularisers, kinds_of_variables, resuming, layouts, masks, refusals, files,
        exports,
    )
}  # fmt: skip


def main() -> None:
    """Run the checks named on the command line and print what each said; nothing means that all is well."""
    global FOLDER
    sys.modules["matplotlib"] = sys.modules["sklearn"] = None  # type: ignore[assignment]  # as in engine_checks
    if os.environ["KERAS_BACKEND"] != "tensorflow":
        sys.modules["tensorflow"] = None  # type: ignore[assignment]
    FOLDER = Path(sys.argv[1])
    import_keras(threads=1)
    gc.freeze()
    said = {}
    for name in sys.argv[2:]:
        try:
            CHECKS[name]()
            said[name] = ""
        except Exception:
            said[name] = traceback.format_exc()
    print(json.dumps(said))  # noqa: T201


if __name__ == "__main__":
    main()
