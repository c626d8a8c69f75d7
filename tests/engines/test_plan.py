"""Compilation: what is fused, what shares memory, how little memory a step needs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ringlet.engines.native import NativeReplica
from ringlet.engines.native.buffers import Arena, Lifetime, assign_offsets, lifetimes, peak_bytes
from ringlet.engines.native.placement import fuse
from ringlet.models import builder as b
from ringlet.models import zoo
from ringlet.operations.native import Call, Storage, new_tensor

FLOAT = np.dtype(np.float32)


def kernel_names(spec, reference, *, training=True, **options):
    plan = NativeReplica(spec, local_batch_size=8, kernels=reference, **options).plan
    return [kernel for kernel, _, _ in (plan.training_calls if training else plan.inference_calls)]


# -- fusion ---------------------------------------------------------------------------------------------------------
def test_relu_joins_convolution_dense_and_batch_norm(reference):
    x = b.relu(b.batch_norm(b.relu(b.conv2d(b.image_input((1, 4, 4)), 2, kernel=3))))
    spec = b.build("fused", b.softmax(b.dense(b.relu(b.dense(b.flatten(x), 4)), 3)))
    assert "activation_forward" not in kernel_names(spec, reference)


def test_relu_stays_apart_when_something_else_reads_its_input():
    x = b.conv2d(b.image_input((1, 4, 4)), 2, kernel=3)
    spec = b.build("apart", b.add(b.relu(x), x))
    found = [(fused.operation.name, fused.relu) for fused in fuse(spec)]
    assert found == [("conv2d", False), ("relu", False), ("add", False)]


def test_a_pool_sums_up_the_bias_of_the_convolution_below_if_nobody_else_reads_that(reference):
    def convolution():
        return b.conv2d(b.image_input((1, 4, 4)), 2, kernel=3, padding=1)

    alone = b.flatten(b.max_pool2d(b.relu(convolution()), kernel=2))
    assert "bias_backward" not in kernel_names(b.build("alone", alone), reference, loss="mse")
    x = convolution()
    both = b.concat(b.flatten(b.max_pool2d(x, kernel=2)), b.flatten(x))
    assert "bias_backward" in kernel_names(b.build("both", both), reference, loss="mse")


def test_softmax_and_its_cross_entropy_need_no_softmax_gradient(reference):
    spec = zoo.create("simplemlp")
    assert "softmax_backward" not in kernel_names(spec, reference)
    assert "softmax_backward" in kernel_names(spec, reference, loss="mse")


def test_no_gradient_is_computed_for_the_input(reference):
    spec = zoo.create("simplecnn")
    assert kernel_names(spec, reference).count("conv2d_backward_data") == 1


def test_inference_has_neither_dropout_nor_backward_calls(reference):
    names = kernel_names(zoo.create("vgg3do", input_shape=(3, 8, 8)), reference, training=False)
    assert not any(name == "dropout" or "backward" in name for name in names)


# -- sharing memory -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "options"),
    [("densenet121", {"growth": 8}), ("unet", {"levels": 3}), ("googlenet", {}), ("inceptionv3", {"form": "imagenet"})],
)
def test_concatenation_is_free(name, options, reference):
    size = {"unet": 16, "inceptionv3": 75}.get(name, 33)
    loss = "dice" if name == "unet" else "categorical_cross_entropy"
    spec = zoo.create(name, input_shape=(3, size, size), **options)
    for training in (True, False):
        names = kernel_names(spec, reference, training=training, loss=loss)
        assert names.count("copy") == 0


def test_flat_dense_connections_are_free_too(reference):
    x0 = b.conv2d(b.image_input((2, 5, 6)), 3, kernel=1)
    x1 = b.conv2d(x0, 2, kernel=1)
    x2 = b.conv2d(b.concat(x0, x1), 2, kernel=1)
    spec = b.build("dense", b.softmax(b.dense(b.flatten(b.concat(x0, x1, x2)), 3)))
    assert "copy" not in kernel_names(spec, reference)


def test_residual_addition_takes_over_the_memory_of_its_input(reference):
    plan = NativeReplica(zoo.create("resnet20"), local_batch_size=8, kernels=reference).plan
    additions = [arrays for kernel, arrays, _ in plan.training_calls if kernel == "add"]
    assert len(additions) == 9
    for first, second, out in additions:
        assert np.shares_memory(out, first) or np.shares_memory(out, second)


def test_input_of_two_different_concatenations_is_copied_once(reference):
    x = b.image_input((2, 5, 6))
    p, q = b.conv2d(x, 3, kernel=1), b.conv2d(x, 3, kernel=3, padding=1)
    joined = b.concat(b.conv2d(b.concat(p, q), 2, kernel=1), b.conv2d(b.concat(q, p), 2, kernel=1))
    spec = b.build("crossed", b.softmax(b.dense(b.flatten(joined), 3)))
    assert kernel_names(spec, reference).count("copy") == 2


# -- lifetimes ------------------------------------------------------------------------------------------------------
def test_life_runs_from_the_first_to_the_last_call():
    x, y = new_tensor("x", (4,), FLOAT), new_tensor("y", (4,), FLOAT)
    lives = lifetimes([Call("a", (x,)), Call("b", (x, y)), Call("c", (y, None)), Call("d", (x,))])
    assert lives == {x.storage: Lifetime(0, 3), y.storage: Lifetime(1, 2)}


@pytest.mark.parametrize("seed", range(20))
def test_storages_that_live_together_do_not_overlap(seed):
    rng = np.random.default_rng(seed)
    lives = {}
    for index in range(60):
        first, second = sorted(rng.integers(0, 40, 2).tolist())
        lives[Storage(str(index), int(rng.integers(1, 5000)))] = Lifetime(first, second)
    offsets, size = assign_offsets(lives)
    for one, life in lives.items():
        assert offsets[one] % 64 == 0
        assert offsets[one] + one.num_bytes <= size
        for other, other_life in lives.items():
            together = life.first <= other_life.last and other_life.first <= life.last
            if one is not other and together:
                apart = offsets[one] >= offsets[other] + other.num_bytes
                assert apart or offsets[other] >= offsets[one] + one.num_bytes
    assert peak_bytes(lives) <= size <= 1.5 * peak_bytes(lives)


def test_arena_is_aligned():
    tensor = new_tensor("x", (3,), FLOAT)
    assert Arena(192).view(tensor, {tensor.storage: 64}).ctypes.data % 64 == 0


@pytest.mark.parametrize("name", ["vgg16_bn", "resnet18", "densenet121", "inceptionv3", "mobilenetv1", "googlenet"])
def test_layout_is_within_two_percent_of_the_least_possible(name, reference):
    shape = (3, 75, 75) if name == "inceptionv3" else (3, 64, 64)
    spec = zoo.create(name, input_shape=shape, num_classes=10)
    plan = NativeReplica(spec, local_batch_size=8, kernels=reference, parameters=unused(spec)).plan
    assert plan.memory_bytes <= 1.02 * plan.peak_bytes


def test_vgg16_bn_needs_only_what_its_backward_pass_reads(reference, record_property):
    """By hand: inputs of convolutions and of batch norms, one byte pair per pooled element, two gradients at a time."""
    spec, lanes = zoo.create("vgg16_bn_cifar10"), 32
    sizes = {name: math.prod(shape) * lanes * 4 for name, shape in spec.shapes.items()}
    kept = {"input": 4, "conv2d": 4, "relu": 4, "max_pool2d": 6}
    saved = sum(sizes[node.name] * kept.get(node.op, 0) // 4 for node in spec.nodes)
    plan = NativeReplica(spec, local_batch_size=lanes, kernels=reference, parameters=unused(spec)).plan
    record_property("memory_bytes", plan.memory_bytes)
    assert plan.memory_bytes <= saved + 2 * max(sizes.values())


def test_vgg16_bn_keeps_no_more_than_pytorch(reference, torch_builder):
    torch = pytest.importorskip("torch")
    spec, count = zoo.create("vgg16_bn_cifar10"), 8
    replica = NativeReplica(spec, local_batch_size=count, kernels=reference, parameters=unused(spec))
    judge = torch_builder.TorchReplica(
        spec, replica.parameters.views, replica.state.views, torch_builder.no_dropout, torch.float32
    )
    saved, own = {}, {parameter.untyped_storage()._cdata for parameter in judge.parameters.values()}

    def remember(tensor):
        saved[tensor.untyped_storage()._cdata] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(remember, lambda tensor: tensor):
        judge.forward(np.zeros((count, 3, 32, 32), np.float32), training=True)
    in_pytorch = sum(size for storage, size in saved.items() if storage not in own)
    largest = 4 * count * max(math.prod(shape) for shape in spec.shapes.values())
    assert replica.plan.memory_bytes <= in_pytorch + 2 * largest


def unused(spec):
    """Parameters without the time to draw them."""
    return np.zeros(spec.num_parameters, np.float32)
