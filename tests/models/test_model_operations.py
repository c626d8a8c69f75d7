"""Shapes agree with PyTorch's; attributes and shapes that make no sense are refused in so many words."""

from __future__ import annotations

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ringlet.errors import SpecError
from ringlet.models.builder import (
    add,
    avg_pool2d,
    batch_norm,
    concat,
    conv2d,
    conv2d_transpose,
    dense,
    depthwise_conv2d,
    dropout,
    flatten,
    global_avg_pool2d,
    image_input,
    leaky_relu,
    max_pool2d,
    relu,
)
from ringlet.operations import OPERATIONS

EXTENTS = st.tuples(st.integers(1, 14), st.integers(1, 14))
WINDOWS = st.tuples(st.integers(1, 5), st.integers(1, 5))
STRIDES = st.tuples(st.integers(1, 4), st.integers(1, 4))
PADDINGS = st.tuples(st.integers(0, 3), st.integers(0, 3))


def shape_or_refusal(function):
    """The result's shape without the batch, or None when the size is refused (PyTorch also makes empty results)."""
    try:
        shape = tuple(function().shape)
    except (RuntimeError, SpecError):
        return None
    return None if 0 in shape else shape


@settings(max_examples=150, deadline=None)
@given(EXTENTS, WINDOWS, STRIDES, PADDINGS, st.booleans(), st.sampled_from(["max", "avg"]))
def test_pooling_has_the_shape_of_pytorch_in_both_rounding_modes(extents, kernel, stride, padding, ceil_mode, kind):
    assume(all(2 * border <= window for border, window in zip(padding, kernel, strict=True)))
    ours = {"max": max_pool2d, "avg": avg_pool2d}[kind]
    theirs = {"max": torch.nn.functional.max_pool2d, "avg": torch.nn.functional.avg_pool2d}[kind]
    options = {"stride": stride, "padding": padding, "ceil_mode": ceil_mode}
    expected = shape_or_refusal(lambda: theirs(torch.zeros(2, *extents), kernel, **options))
    assert shape_or_refusal(lambda: ours(image_input((2, *extents)), kernel, **options)) == expected


@settings(max_examples=150, deadline=None)
@given(EXTENTS, WINDOWS, STRIDES, PADDINGS, st.tuples(st.integers(1, 3), st.integers(1, 3)), st.sampled_from([1, 2, 4]))
def test_convolution_has_the_shape_of_pytorch(extents, kernel, stride, padding, dilation, groups):
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    weight = torch.zeros(8, 4 // groups, *kernel)
    expected = shape_or_refusal(lambda: torch.nn.functional.conv2d(torch.zeros(1, 4, *extents), weight, **options)[0])
    assert shape_or_refusal(lambda: conv2d(image_input((4, *extents)), 8, kernel=kernel, **options)) == expected


@settings(max_examples=150, deadline=None)
@given(EXTENTS, WINDOWS, STRIDES, PADDINGS, st.tuples(st.integers(0, 2), st.integers(0, 2)))
def test_transposed_convolution_has_the_shape_of_pytorch(extents, kernel, stride, padding, extra):
    assume(all(more < step for more, step in zip(extra, stride, strict=True)))
    options = {"stride": stride, "padding": padding, "output_padding": extra}
    weight = torch.zeros(3, 5, *kernel)
    expected = shape_or_refusal(
        lambda: torch.nn.functional.conv_transpose2d(torch.zeros(1, 3, *extents), weight, **options)[0]
    )
    assert (
        shape_or_refusal(lambda: conv2d_transpose(image_input((3, *extents)), 5, kernel=kernel, **options)) == expected
    )


@pytest.mark.parametrize(("extent", "stride", "expected"), [(7, 1, 7), (7, 2, 4), (8, 2, 4)])
def test_same_padding_divides_the_size_by_the_stride_and_rounds_up(extent, stride, expected):
    assert conv2d(image_input((1, extent, extent)), 2, kernel=3, stride=stride, padding="same").shape[1] == expected


def test_depthwise_convolution_keeps_the_number_of_channels():
    assert depthwise_conv2d(image_input((6, 8, 8)), kernel=3, padding="same").shape == (6, 8, 8)


def test_concat_joins_channels():
    x = image_input((3, 4, 4))
    assert concat(x, conv2d(x, 5, kernel=1)).shape == (8, 4, 4)


def test_flatten_and_global_pool_give_features():
    x = image_input((3, 4, 5))
    assert (flatten(x).shape, global_avg_pool2d(x).shape) == ((60,), (3,))


MISTAKES = {
    "node 'pool3': 5x5 window does not fit 4x4 input": lambda x: max_pool2d(x, 5, name="pool3"),
    "node 'conv1': 5x5 window does not fit 4x4 input": lambda x: conv2d(x, 1, kernel=3, dilation=2),
    "dense needs features .* put a flatten before it": lambda x: dense(x, 3),
    "units must be an integer from 1 to .*, got 0": lambda x: dense(flatten(x), 0),
    "units must be an integer from 1 to .*, got True": lambda x: dense(flatten(x), True),
    "filters must be an integer .* got 4.0": lambda x: conv2d(x, 4.0, kernel=1),
    "kernel must be two integers .* got 'big'": lambda x: conv2d(x, 4, kernel="big"),
    "stride must be two integers from 1 to": lambda x: conv2d(x, 4, kernel=1, stride=0),
    "padding must be 'same', 'valid'": lambda x: conv2d(x, 4, kernel=1, padding="sane"),
    "padding 'same' needs an odd window": lambda x: conv2d(x, 4, kernel=2, padding="same"),
    "2 groups must divide the 3 input channels": lambda x: conv2d(x, 4, kernel=1, groups=2),
    "initializer must be one of glorot_uniform": lambda x: conv2d(x, 4, kernel=1, initializer="he_norml"),
    "bias must be true or false": lambda x: conv2d(x, 4, kernel=1, bias=1),
    "output_padding 1x1 must be smaller than the stride 1x1": lambda x: conv2d_transpose(
        x, 4, kernel=1, output_padding=1
    ),
    "padding 9x9 leaves nothing of a 4x4 input": lambda x: conv2d_transpose(x, 4, kernel=1, padding=9),
    "padding 2x2 must be at most half of the 3x3 window": lambda x: avg_pool2d(x, 3, padding=2),
    "rate must be a number at least 0 and below 1, got 1": lambda x: dropout(x, 1),
    "rate must be a number .* got nan": lambda x: dropout(x, float("nan")),
    "momentum must be a number at least 0 and below 1": lambda x: batch_norm(x, momentum=1.5),
    "epsilon must be a number above 0": lambda x: batch_norm(x, epsilon=0),
    "slope must be a number": lambda x: leaky_relu(x, slope="steep"),
    "add needs equal shapes": lambda x: add(x, conv2d(x, 3, kernel=2)),
    "concat joins channels": lambda x: concat(x, conv2d(x, 3, kernel=2)),
    "add takes at least 2 input": lambda x: add(x),
    "lists an input twice": lambda x: add(x, x),
    "different graphs": lambda x: add(x, image_input((3, 4, 4))),
    "node 'same' is defined twice": lambda x: relu(relu(x, name="same"), name="same"),
    "name 'a b' is not allowed": lambda x: relu(x, name="a b"),
    "expected a tensor made by a builder function, got 3": lambda _: relu(3),
    "global pooling needs an image": lambda x: global_avg_pool2d(flatten(x)),
    "the output shape has an extent outside its range": lambda x: conv2d(x, 1, kernel=1, padding=1 << 20),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_a_mistake_is_explained(message):
    with pytest.raises(SpecError, match=message):
        MISTAKES[message](image_input((3, 4, 4)))


@pytest.mark.parametrize(
    "shape", [(), (3, 4), (0, 4, 4), (3, 4, -4), (True, 4, 4), (3.0, 4, 4), "333", None, (1, 1, 1 << 40)]
)
def test_an_impossible_input_shape_is_refused(shape):
    with pytest.raises(SpecError, match="node 'input': shape"):
        image_input(shape)


def test_every_operation_is_listed_once_with_its_own_name():
    assert all(name == operation.name for name, operation in OPERATIONS.items())
    assert len(OPERATIONS) == 21
