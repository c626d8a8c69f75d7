"""What every engine promises, as functions of the engine's name: the native engine is the judge.

The tests call them in their own process. Keras has one backend per process and its import takes long, so for Keras
``python engine_checks.py CHECK…`` runs many in one process and prints what each said, as JSON.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
import traceback
from functools import lru_cache
from pathlib import Path

import numpy as np
from clear_branches import Network
from narrow_networks import narrowed

from ringlet.engines.engine import create_replica
from ringlet.engines.keras import import_keras
from ringlet.engines.native import NativeReplica
from ringlet.errors import DataError, UsageError
from ringlet.losses.functions import loss_of
from ringlet.models import builder as b
from ringlet.models import zoo
from ringlet.models.initializers import initial_values
from ringlet.timeline import RecordedTimeline

FAMILIES = {
    "simplemlp": ("simplemlp", 12, {"hidden": (32, 16)}),
    "simplecnn": ("simplecnn", 12, {}),
    "mnistcnn": ("mnistcnn", 10, {}),
    "alexnet": ("alexnet", 67, {"form": "imagenet", "hidden": (32, 16)}),
    "alexnet_cifar10": ("alexnet_cifar10", 16, {"hidden": (32, 16)}),
    "vgg3dobn": ("vgg3dobn", 8, {}),
    "vgg11": ("vgg11", 32, {"form": "imagenet", "hidden": (32,)}),
    "vgg16_bn": ("vgg16_bn", 32, {}),
    "resnet20": ("resnet20", 8, {"width": 4}),
    "resnet18": ("resnet18", 33, {"width": 4, "form": "imagenet"}),
    "resnet50": ("resnet50", 33, {"width": 4, "form": "imagenet", "version": "v1"}),
    "mobilenetv1": ("mobilenetv1", 32, {"width": 0.125}),
    "googlenet": ("googlenet", 33, {}),
    "inceptionv3": ("inceptionv3", 75, {"form": "imagenet"}),
    "densenet121": ("densenet121", 33, {"growth": 8, "form": "imagenet"}),
    "unet": ("unet", 16, {"levels": 3, "width": 4}),
}
"""Every family of the zoo, small; where it has no option for its width, with fewer filters."""
NUM_SAMPLES = {"vgg16_bn": 2, "vgg11": 2}
"""Of the large ones fewer than 5."""
NUM_BATCHES, MAX_SEEDS, ROOM = 2, 12, 5.0
"""In float32: so many batches, of the first so many, in which every branch is so many times as far as rounding."""
ROUNDING = {
    "vgg16_bn": 2e-4,
    "resnet50": 1e-3,
    "mobilenetv1": 1e-3,
    "googlenet": 1e-3,
    "inceptionv3": 3e-3,
    "densenet121": 1e-3,
}
"""How far float32 may be from float64, where a deep network magnifies rounding."""
STRICT = 1e-7
"""In float64: engines differ by rounding alone, whatever the network makes of it."""
USUAL = 1e-4
"""In float32."""


def precision(engine):
    """The dtype to compare in, and how near results must be."""
    backend = os.environ.get("KERAS_BACKEND") if engine == "keras" else None
    if backend == "torch":  # Keras has no float64 there
        return "float32", USUAL
    return "float64", 1e-5 if backend == "jax" else STRICT  # where up to 2e-7 was seen


# -- comparing --------------------------------------------------------------------------------------------------------
def family(name):
    kind, size, options = FAMILIES[name]
    channels = zoo.describe(kind).input_shape[0]
    classes = None if kind == "unet" else 10
    return narrowed(zoo.create(kind, input_shape=(channels, size, size), num_classes=classes, **options), name)


def usual_loss(spec):
    return "bce_dice" if len(spec.output_shape) == 3 else "categorical_cross_entropy"


def batch_of(spec, loss, count, dtype="float64", seed=0):
    rng = np.random.default_rng(seed)
    inputs = rng.standard_normal((count, *spec.input_shape)).astype(dtype)
    if loss == "categorical_cross_entropy":
        return inputs, rng.integers(0, spec.output_shape[0], (count, *spec.output_shape[1:]))
    return inputs, rng.integers(0, 2, (count, *spec.output_shape)).astype(dtype)


def scattered(replica, seed=1):
    """The replica with parameters and statistics that hide no mistake: no zeros, no ones."""
    rng = np.random.default_rng(seed)
    for name, view in (*replica.parameters.views.items(), *replica.state.views.items()):
        if name.endswith((".bias", ".shift", ".running_mean")):
            view[...] = rng.uniform(-0.2, 0.2, view.shape)
        elif name.endswith((".scale", ".running_var")):
            view[...] = rng.uniform(0.7, 1.4, view.shape)
    return replica


def make(engine, spec, *, loss=None, count=5, dtype="float64", **options):
    loss = loss or usual_loss(spec)
    start = initial_parameters(spec).astype(dtype)
    options = {"threads": 1, "parameters": start, **options}
    return scattered(create_replica(engine, spec, loss=loss, local_batch_size=count, dtype=dtype, **options))


@lru_cache(maxsize=1)
def initial_parameters(spec):
    """Drawn once for all replicas of a check."""
    return np.concatenate([initial_values(info, 0, np.dtype("float64")).ravel() for info in spec.parameters])


def distance(found, expected, least=0.0):
    """Relative to the length of ``expected``, or to ``least`` if that is longer."""
    difference = np.asarray(found, np.float64) - expected
    return float(np.linalg.norm(difference) / max(np.linalg.norm(expected), least, 1e-30))


def results(replica, batch, **place):
    """Everything that passes over a batch give: evaluation first, since training changes the statistics."""
    evaluated = replica.evaluate(*batch)
    output = replica.loss_and_gradients(*batch, **place)
    return {
        "evaluated loss": np.array(evaluated.loss_sum),
        "evaluated outputs": evaluated.outputs,
        "predictions": replica.predict(batch[0]),
        "loss": np.array(output.loss_sum),
        "outputs": output.outputs,
        "state": replica.state.flat.copy(),
        "gradients": replica.gradients.flat.copy(),
    }


def assert_equal_passes(engine, spec, *, loss=None, count=5, batch=None):
    """Gradients also one by one, those that are zero but for rounding relative to all others."""
    dtype, tolerance = precision(engine)
    inputs, targets = batch or batch_of(spec, loss or usual_loss(spec), count)
    batch = inputs.astype(dtype), targets
    judge, replica = (make(name, spec, loss=loss, count=count, dtype=dtype) for name in ("native", engine))
    place = {"seed": 3, "step": 5, "shard": 1}
    expected, found = results(judge, batch, **place), results(replica, batch, **place)
    del expected["predictions"], found["predictions"]  # after a training step they follow the running statistics
    for what, value in expected.items():
        assert distance(found[what], value) < tolerance, (what, distance(found[what], value))
    least = 1e-3 * np.linalg.norm(expected["gradients"])
    for name, view in judge.gradients.views.items():
        error = distance(replica.gradients.views[name], view, least)
        assert error < tolerance, (name, error)
    assert distance(replica.predict(batch[0]), judge.predict(batch[0])) < tolerance


# -- parity -----------------------------------------------------------------------------------------------------------
def family_in_float64(engine, name):
    assert_equal_passes(engine, family(name), count=NUM_SAMPLES.get(name, 5))


def family_in_float32(engine, name):
    """As near to the truth (float64) as rounding allows, in every batch and for every gradient by itself.

    No ReLU and no maximum stands at its branch: see ``clear_branches``. How near is a constant of the network, not what
    another engine reaches: that may be wrong too.
    """
    spec, count, limit = family(name), NUM_SAMPLES.get(name, 5), ROUNDING.get(name, USUAL)
    truth, replica = make("native", spec, count=count), make(engine, spec, count=count, dtype="float32")
    for seed, parameters in clear_batches(name):
        for own in (truth, replica):
            scattered(own)
            own.state.flat[:] = own.state.flat.astype(np.float32)
            own.parameters.flat[:] = parameters
        batch = batch_of(spec, usual_loss(spec), count, "float32", seed)
        expected, found = (results(own, batch, step=seed) for own in (truth, replica))
        errors = {what: distance(found[what], value) for what, value in expected.items()}
        total = np.linalg.norm(expected["gradients"])
        for what, view in truth.gradients.views.items():
            is_zero = np.linalg.norm(view) < 1e-9 * total  # a bias in front of a batch norm: what is left is rounding
            errors[what] = distance(replica.gradients.views[what], view, total if is_zero else 0.0)
        wrong = {what: error for what, error in errors.items() if not error < limit}
        assert not wrong, (seed, limit, wrong)


@lru_cache(maxsize=1)
def clear_batches(name):
    """Seeds of batches, and the flat parameters with which each is far from every branch in float32."""
    spec, count, found = family(name), NUM_SAMPLES.get(name, 5), []
    start = make("native", spec, count=count, dtype="float32").parameters
    for seed in range(MAX_SEEDS):
        network = Network(spec, {key: view.copy() for key, view in start.views.items()}, step=seed)
        network.clear(batch_of(spec, usual_loss(spec), count, "float32", seed)[0])
        if min(network.margins.values()) > ROOM:
            found.append((seed, np.concatenate([network.parameters[key].ravel() for key in start.views])))
            if len(found) == NUM_BATCHES:
                return found
    raise AssertionError(f"{name}: no {NUM_BATCHES} of {MAX_SEEDS} batches are {ROOM} roundings from every branch")


def small_spec(rate=0.4):
    """Convolution, batch norm and dropout on images and on features."""
    x = b.relu(b.batch_norm(b.conv2d(b.image_input((2, 8, 8)), 5, kernel=3, padding=1)))
    x = b.dropout(b.max_pool2d(x, 2), rate)
    x = b.dropout(b.relu(b.batch_norm(b.dense(b.flatten(x), 7))), rate)
    return b.build("small", b.softmax(b.dense(x, 3)))


def batch_sizes(engine):
    """1 (of which a batch norm on features has a single value), 7, 17 and fewer than the replica was made for."""
    spec, (dtype, tolerance) = small_spec(), precision(engine)
    if dtype == "float32":
        tolerance *= 10  # a batch norm of a single value magnifies rounding 300 times
    judge, replica = (make(name, spec, count=17, dtype=dtype) for name in ("native", engine))
    for step, count in enumerate((17, 1, 7, 16, 1)):
        batch = batch_of(spec, "categorical_cross_entropy", count, dtype, seed=step)
        expected, found = (results(own, batch, seed=9, step=step, shard=2) for own in (judge, replica))
        for what, value in expected.items():
            assert distance(found[what], value) < tolerance, (count, what, distance(found[what], value))


def dropout(engine):
    """Each pass has its own mask, the native engine's, also in float32."""
    spec = b.build("drops", b.dropout(b.dense(b.dropout(b.flatten(b.image_input((3, 5, 7))), 0.5), 11), 0.3))
    judge, replica = (make(name, spec, loss="mse", count=6, dtype="float32") for name in ("native", engine))
    batch = batch_of(spec, "mse", 6, "float32")
    seen = set()
    for place in ({}, {"step": 1}, {"shard": 1}, {"seed": 1}):
        expected, found = (own.loss_and_gradients(*batch, **place).outputs for own in (judge, replica))
        np.testing.assert_array_equal(found == 0, expected == 0)
        assert distance(found, expected) < 1e-6
        seen.add((found == 0).tobytes())
    assert len(seen) == 4


def operations(engine):
    """Every operation, with the attributes that frameworks disagree about."""
    x = b.conv2d(b.image_input((4, 13, 11)), 6, kernel=(3, 2), stride=(2, 1), padding=(1, 2), groups=2)
    x = b.conv2d(x, 12, kernel=3, padding="same", groups=6, bias=False)
    x = b.conv2d(x, 8, kernel=(2, 3), stride=(2, 3), dilation=(2, 1), padding=2)
    x = b.conv2d_transpose(x, 4, kernel=3, stride=2, padding=1, output_padding=1)
    x = b.conv2d_transpose(x, 5, kernel=2, stride=(2, 3), output_padding=(1, 2))
    x = b.conv2d_transpose(x, 3, kernel=(1, 4), stride=(3, 2), padding=(0, 1), bias=False)
    x = b.concat(
        b.tanh(b.max_pool2d(x, 3, stride=2, padding=1, ceil_mode=True)),
        b.avg_pool2d(x, 3, stride=2, padding=1, ceil_mode=True),
    )
    x = b.avg_pool2d(x, (3, 2), stride=(2, 3), padding=(1, 0), ceil_mode=True)
    curves = [
        b.relu6(x),
        b.sigmoid(x),
        b.leaky_relu(x, slope=0.2),
        b.log_sigmoid(x),
        b.arctanh(b.tanh(x)),
        b.softmax(x),
    ]
    joined = b.add(b.conv2d(b.concat(*curves), 6, kernel=1), x)
    pooled = b.concat(b.global_avg_pool2d(joined), b.global_max_pool2d(joined))
    spec = b.build("operations", b.dense(pooled, 4, bias=False))
    assert_equal_passes(engine, spec, loss="mse")


WITH_KERNELS = (
    "categorical_cross_entropy", "soft_cross_entropy", "binary_cross_entropy", "dice", "bce_dice", "mse", "mae",
)  # fmt: skip
"""Losses that kernels compute."""


def losses(engine):
    """Every loss behind every last node that it can follow, with classes and with values as targets, on masks too."""
    for last in (b.softmax, b.sigmoid, lambda x: x):
        for loss in WITH_KERNELS:
            for masks in (True, False):
                x = b.conv2d(b.image_input((2, 4, 4)), 3, kernel=3)
                spec = b.build("losses", last(x if masks else b.dense(b.flatten(x), 3)))
                classes = batch_of(spec, "categorical_cross_entropy", 4)
                assert_equal_passes(engine, spec, loss=loss, count=4, batch=classes)
                if loss != "categorical_cross_entropy":
                    assert_equal_passes(engine, spec, loss=loss, count=4)


OPTIONS_OF_LOSSES = [
    ("softmax", "categorical_cross_entropy,label_smoothing=0.1"), ("softmax", "focal,gamma=1.5"), ("softmax", "dice"),
    ("sigmoid", "binary_cross_entropy,label_smoothing=0.2"), ("sigmoid", "binary_focal,gamma=3,alpha=0.3"),
    ("sigmoid", "categorical_cross_entropy,label_smoothing=0.1"), ("sigmoid", "focal"), ("sigmoid", "bce_dice"),
    ("sigmoid", "tversky,alpha=0.2,beta=0.9"), ("sigmoid", "mae"), ("softmax", "bce_dice,smooth=0.5"),
    ("softmax", "huber,delta=0.3"), ("softmax", "binary_focal"), ("sigmoid", "dice,smooth=2"),
    ("softmax", "soft_cross_entropy,label_smoothing=0.1"), ("sigmoid", "soft_cross_entropy,label_smoothing=0.1"),
]  # fmt: skip
"""Losses that no kernel computes, alone or with weights, after what they join and after what they do not."""


def weighted(engine, last, loss, *, masks, of_classes, of_samples):
    """A pass of one loss, with weights of classes or samples, is that of the native engine."""
    dtype, tolerance = precision(engine)
    x = b.conv2d(b.image_input((2, 4, 4)), 3, kernel=3)
    spec = b.build("weighted", b.activation(x if masks else b.dense(b.flatten(x), 3), last))
    inputs, targets = batch_of(spec, "categorical_cross_entropy", 4)
    options = {"loss": loss, "count": 4, "dtype": dtype}
    if of_classes:
        options["class_weights"] = [0.5, 2.0, 1.25]
    weights = np.array([0.0, 1.0, 3.0, 0.25], dtype) if of_samples else None
    judge, replica = (make(name, spec, **options) for name in ("native", engine))
    for own in (judge, replica):
        own.last = own.loss_and_gradients(inputs.astype(dtype), targets, weights=weights).loss_sum
        own.evaluated = own.evaluate(inputs.astype(dtype), targets, weights).loss_sum
    assert distance(replica.last, judge.last) < tolerance
    assert distance(replica.evaluated, judge.last) < 10 * tolerance
    assert distance(replica.gradients.flat, judge.gradients.flat) < tolerance


def options_of_losses(engine):
    """Every loss with options, without and with weights of classes and samples."""
    for last, loss in OPTIONS_OF_LOSSES:
        for masks, of_classes, of_samples in ((False, False, False), (False, True, True), (True, True, False)):
            weighted(engine, last, loss, masks=masks, of_classes=of_classes, of_samples=of_samples)


def weights_of_losses(engine):
    """A loss with a kernel, once weighted and once not, in one replica; and one without a kernel."""
    weighted(engine, "softmax", "categorical_cross_entropy", masks=False, of_classes=False, of_samples=True)
    weighted(engine, "sigmoid", "binary_focal", masks=True, of_classes=True, of_samples=True)


def functions_as_losses(engine):
    """A plain function of tensors, giving losses or their mean, is what the loss of that formula is."""
    dtype, tolerance = precision(engine)
    spec = b.build("own", b.dense(b.flatten(b.image_input((2, 4, 4))), 3))
    batch = batch_of(spec, "mse", 4)
    expected = make(engine, spec, loss="mse", count=4, dtype=dtype)
    wanted = expected.loss_and_gradients(batch[0].astype(dtype), batch[1]).loss_sum
    average = import_keras().ops.mean if engine == "keras" else lambda values, axis=None: values.mean(axis)
    each = loss_of(lambda outputs, targets: average((outputs - targets) ** 2, axis=-1))()
    mean = loss_of(lambda outputs, targets: average((outputs - targets) ** 2))()
    for loss in (each, mean):
        own = make(engine, spec, loss=loss, count=4, dtype=dtype)
        assert distance(own.loss_and_gradients(batch[0].astype(dtype), batch[1]).loss_sum, wanted) < tolerance
        assert distance(own.gradients.flat, expected.gradients.flat) < tolerance


def huge_logits(engine):
    """The joined forms of loss and last node stay finite where probabilities are 0 or 1."""
    for last, loss in ((b.softmax, "categorical_cross_entropy"), (b.sigmoid, "binary_cross_entropy")):
        spec = b.build("huge", last(b.dense(b.flatten(b.image_input((1, 2, 2))), 3)))
        inputs, targets = batch_of(spec, loss, 5)
        assert_equal_passes(engine, spec, loss=loss, batch=(1e4 * inputs, targets))


# -- the contract -----------------------------------------------------------------------------------------------------
def mixed_precision(engine):
    """In bfloat16 all that leaves a pass is float32, probabilities are not rounded, and results are near float32's."""
    spec = small_spec()
    loss = usual_loss(spec)
    inputs, targets = batch_of(spec, loss, 16, "float32")
    found = {}
    for dtype in ("float32", "bfloat16"):
        replica = create_replica(engine, spec, loss=loss, local_batch_size=16, dtype=dtype)
        output = scattered(replica).loss_and_gradients(inputs, targets, seed=3)
        arrays = replica.gradients.flat, replica.state.flat, output.outputs, replica.predict(inputs)
        assert {array.dtype for array in arrays} == {np.dtype("f4")}
        np.testing.assert_allclose(arrays[-1].sum(axis=1), 1, atol=1e-5)
        found[dtype] = output.loss_sum, *(array.copy() for array in arrays)
    assert found["bfloat16"][0] != found["float32"][0]
    for mixed, single in zip(found["bfloat16"], found["float32"], strict=True):
        assert distance(np.asarray(mixed), np.asarray(single)) < 0.1


def foreign_buffers(engine):
    """Parameters and gradients are parts of somebody else's arrays, at any place in memory."""
    spec = small_spec()
    batch = batch_of(spec, "categorical_cross_entropy", 5, "float32")
    own = make(engine, spec, dtype="float32")
    expected = own.loss_and_gradients(*batch).loss_sum
    window = np.zeros(spec.num_parameters + 3, np.float32)
    window[3:] = own.parameters.flat
    rows = np.full((3, spec.num_parameters), np.nan, np.float32)
    foreign = create_replica(
        engine, spec, local_batch_size=5, parameters=window[3:], gradients=rows[1], dtype="float32", threads=1
    )
    assert not rows[1].any()
    np.testing.assert_allclose(foreign.loss_and_gradients(*batch).loss_sum, expected, rtol=1e-6)
    np.testing.assert_allclose(rows[1], own.gradients.flat, rtol=1e-5, atol=1e-7)
    assert np.isnan(rows[[0, 2]]).all()
    before = foreign.predict(batch[0])
    window *= 2
    assert distance(foreign.predict(batch[0]), before) > 1e-3
    foreign.initialize(4)
    np.testing.assert_array_equal(window[3:], NativeReplica(spec, seed=4).parameters.flat)


def readiness(engine):
    """Every element is reported once, final, in the same order in every step, and may be changed at once."""
    spec = small_spec(rate=0) if engine == "keras" else family("resnet20")  # which compiles for a while
    batch = batch_of(spec, "categorical_cross_entropy", 5, "float32")
    replica = make(engine, spec, dtype="float32")
    replica.loss_and_gradients(*batch)
    expected = replica.gradients.flat.copy()
    orders = []
    for step in range(2):
        scattered(replica)
        orders.append([])

        def negate(start, stop):
            orders[-1].append((start, stop))
            replica.gradients.flat[start:stop] *= -1

        replica.loss_and_gradients(*batch, step=step, on_ready=negate)
        np.testing.assert_allclose(-replica.gradients.flat, expected, rtol=1e-4, atol=1e-6)
    assert orders[0] == orders[1]
    starts, stops = zip(*sorted(orders[0]), strict=True)
    assert starts == (0, *stops[:-1])
    assert stops[-1] == spec.num_parameters
    if engine != "keras":
        assert len(orders[0]) > 20
        assert spec.num_parameters in (stop for _, stop in orders[0][:2])


def empty_batches(engine):
    """A shard without samples: zeros, one range, no change of the state."""
    spec = small_spec()
    batch = batch_of(spec, "categorical_cross_entropy", 5, "float32")
    replica = make(engine, spec, dtype="float32")
    replica.loss_and_gradients(*batch)
    state, ranges = replica.state.flat.copy(), []
    output = replica.loss_and_gradients(
        batch[0][:0], batch[1][:0], on_ready=lambda start, stop: ranges.append((start, stop))
    )
    assert (output.count, output.loss_sum, output.outputs.shape) == (0, 0.0, (0, 3))
    assert ranges == [(0, spec.num_parameters)]
    assert not replica.gradients.flat.any()
    np.testing.assert_array_equal(replica.state.flat, state)
    assert replica.predict(batch[0][:0]).shape == (0, 3)


def scales(engine):
    """Gradients of shards, each scaled by the whole batch, add up to those of the batch."""
    spec = family("simplecnn")
    inputs, targets = batch_of(spec, "categorical_cross_entropy", 10, "float32")
    replica = make(engine, spec, count=10, dtype="float32")
    replica.loss_and_gradients(inputs, targets)
    whole, parts = replica.gradients.flat.copy(), np.zeros(spec.num_parameters)
    for part in (slice(0, 3), slice(3, 10)):
        replica.loss_and_gradients(inputs[part], targets[part], scale=0.1)
        parts += replica.gradients.flat
    assert distance(parts, whole) < 1e-5


def inference(engine):
    """Changes nothing, goes in chunks, takes bytes and memory that cannot be written."""
    spec = small_spec()
    inputs, targets = batch_of(spec, "categorical_cross_entropy", 12, "float32")
    inputs.flags.writeable = targets.flags.writeable = False
    replica, whole = (make(engine, spec, count=count, dtype="float32") for count in (5, 12))
    before = [flat.flat.copy() for flat in (replica.parameters, replica.gradients, replica.state)]
    replica.prepare()
    evaluated = replica.evaluate(inputs, targets)
    for flat, old in zip((replica.parameters, replica.gradients, replica.state), before, strict=True):
        np.testing.assert_array_equal(flat.flat, old)
    assert distance(evaluated.loss_sum, whole.evaluate(inputs, targets).loss_sum) < 1e-5
    assert distance(replica.predict(inputs), evaluated.outputs) < 1e-5
    images = np.random.default_rng(0).integers(0, 256, (3, 2, 8, 8), dtype=np.uint8)
    assert distance(replica.predict(images), replica.predict(images.astype(np.float32))) < 1e-5


def timeline(engine):
    """Forward, then backward."""
    marks = RecordedTimeline()
    batch = batch_of(small_spec(), "categorical_cross_entropy", 5, "float32")
    make(engine, small_spec(), dtype="float32").loss_and_gradients(*batch, timeline=marks)
    assert marks.phases == [1, 2]


def refusals(engine):
    """What does not fit is refused with the native engine's words."""
    replica = make(engine, small_spec(), dtype="float32")
    inputs, targets = batch_of(small_spec(), "categorical_cross_entropy", 6, "float32")
    wrong = [
        (UsageError, "6 samples does not fit local_batch_size 5", inputs, targets),
        (DataError, "expects (n, 2, 8, 8)", inputs[:5, :1], targets[:5]),
        (DataError, "classes 0 to 2", inputs[:5], targets[:5] + 3),
    ]
    for kind, words, images, classes in wrong:
        try:
            replica.loss_and_gradients(images, classes)
        except kind as error:
            assert words in str(error), error  # noqa: PT017 - the checks run without pytest too
        else:
            raise AssertionError(words)


def overflowing_statistics(engine):
    """A finite sample whose variance is not: the step is refused, and the running statistics are what they were."""
    from ringlet.comm.single import SingleCommunicator
    from ringlet.data import Dataset
    from ringlet.data.source import ArraySource
    from ringlet.training.trainer import Trainer

    spec = small_spec(rate=0)
    inputs, targets = batch_of(spec, "categorical_cross_entropy", 8, "float32")
    inputs[1] *= np.float32(1e21)
    dataset = Dataset("made", ArraySource(inputs, targets, 3))
    options = {"engine": engine, "global_batch_size": 4, "num_epochs": 1, "threads": 1, "on_nan": "skip"}
    events = []
    trainer = Trainer(spec, dataset, communicator=SingleCommunicator(), callbacks=[events.append], **options)
    held = []
    original = trainer.replica.loss_and_gradients

    def watched(*arguments, **keywords):
        held.append(np.concatenate([trainer.replica.parameters.flat, trainer.replica.state.flat]))
        return original(*arguments, **keywords)

    trainer.replica.loss_and_gradients = watched
    trainer.fit()
    held.append(np.concatenate([trainer.replica.parameters.flat, trainer.replica.state.flat]))
    problems = [(event.step, event.problem) for event in events if hasattr(event, "problem")]
    assert len(problems) == 1, problems
    step, problem = problems[0]
    assert "the running statistic 'norm1.running_var' is not finite" in problem, problem
    np.testing.assert_array_equal(held[step - 1], held[step])
    assert all(np.isfinite(values).all() for values in held)


# -- runs -------------------------------------------------------------------------------------------------------------
def resuming(engine):
    """native, then torch, then ``engine``: the loss curve of every step goes on as if nothing had changed."""
    from ringlet.config import RunConfig
    from ringlet.training.session import Session

    options = {
        "model": "vgg1dobn",
        "dataset": "digits",
        "num_samples": 320,
        "seed": 7,
        "threads": 1,
        "optimizer": "adam",
    }
    with tempfile.TemporaryDirectory() as folder:

        def curve(name, engines):
            for epochs, chosen in enumerate(engines, 1):
                more = {"resume": "auto"} if epochs > 1 else {}
                place = {"run_dir": f"{folder}/{name}", "num_epochs": epochs, "engine": chosen}
                Session.open(RunConfig(**options, **place, checkpoint_every="epoch", evaluate=False, **more)).run()
            lines = Path(folder, name, "events.ndjson").read_text().splitlines()
            events = [json.loads(line) for line in lines]
            assert [event["engine"] for event in events if "engine" in event] == list(engines)
            return [event["figures"]["loss"] for event in events if event["event"] == "step_finished"]

        expected, found = curve("straight", ["native"] * 3), curve("changing", ["native", "torch", engine])
    assert len(found) == len(expected) >= 9
    np.testing.assert_allclose(found, expected, rtol=2e-3)


CHECKS = {
    check.__name__: check
    for check in (
        batch_sizes, dropout, operations, losses, options_of_losses, weights_of_losses, functions_as_losses,
        huge_logits, mixed_precision, foreign_buffers, readiness,
        empty_batches, scales, inference, timeline, refusals, overflowing_statistics, resuming,
    )
} | {
    f"{check.__name__}:{name}": lambda engine, check=check, name=name: check(engine, name)
    for check in (family_in_float64, family_in_float32) for name in FAMILIES
}  # fmt: skip


def main() -> None:
    """Run the checks named on the command line on Keras and print what each said; nothing means that all is well."""
    sys.modules["matplotlib"] = sys.modules["sklearn"] = None  # a second and a half, for what nothing here uses
    if os.environ["KERAS_BACKEND"] != "tensorflow":
        sys.modules["tensorflow"] = None  # must not be needed; Keras imports it for small services where it can
    import_keras(threads=1)
    gc.freeze()  # frameworks stay to the end: collections look at what the checks make
    said = {}
    for name in sys.argv[1:]:
        try:
            CHECKS[name]("keras")
            said[name] = ""
        except Exception:
            said[name] = traceback.format_exc()
    print(json.dumps(said))  # noqa: T201


if __name__ == "__main__":
    main()
