"""Networks with unusual graphs have PyTorch's loss and gradients."""

from __future__ import annotations

import pytest

from ringlet.models import builder as b


def end(x):
    return b.softmax(b.dense(b.flatten(x), 3))


def three_consumers():
    x = b.relu(b.conv2d(b.image_input((2, 5, 6)), 4, kernel=3, padding=1))
    return end(b.add(b.tanh(x), b.conv2d(x, 4, kernel=3, padding=1), b.sigmoid(x)))


def chain_of_additions():
    x = b.conv2d(b.image_input((2, 5, 6)), 4, kernel=3, padding=1)
    y = b.relu(b.add(x, b.batch_norm(b.conv2d(x, 4, kernel=1))))
    z = b.relu(b.add(y, b.batch_norm(b.conv2d(y, 4, kernel=1))))
    return end(b.add(z, y, x))


def same_bytes_added():
    x = b.conv2d(b.image_input((2, 5, 6)), 4, kernel=3, padding=1)
    return b.softmax(b.dense(b.add(b.flatten(x), b.flatten(x), b.flatten(x)), 3))


def same_bytes_concatenated():
    x = b.conv2d(b.image_input((2, 5, 6)), 4, kernel=3, padding=1)
    return b.softmax(b.dense(b.concat(b.flatten(x), b.flatten(x)), 3))


def addition_of_dropouts():
    x = b.conv2d(b.image_input((2, 5, 6)), 4, kernel=3, padding=1)
    return end(b.add(b.dropout(x, 0.3), b.dropout(x, 0.6), x))


def concat_of_concat():
    x = b.image_input((2, 5, 6))
    first = b.concat(b.conv2d(x, 3, kernel=1), b.relu(b.conv2d(x, 4, kernel=3, padding=1)))
    second = b.concat(first, b.conv2d(first, 2, kernel=3, padding=1))
    third = b.concat(second, b.batch_norm(second), b.conv2d(b.relu(second), 2, kernel=1))
    return end(third)


def growing_concats():
    x0 = b.conv2d(b.image_input((2, 5, 6)), 3, kernel=1)
    x1 = b.conv2d(b.relu(b.batch_norm(x0)), 2, kernel=1)
    x2 = b.conv2d(b.relu(b.batch_norm(b.concat(x0, x1))), 2, kernel=1)
    x3 = b.conv2d(b.relu(b.batch_norm(b.concat(x0, x1, x2))), 2, kernel=1)
    return end(b.concat(x0, x1, x2, x3))


def permuted_concats():
    x = b.image_input((2, 5, 6))
    p, q = b.conv2d(x, 3, kernel=1), b.conv2d(x, 3, kernel=3, padding=1)
    return end(b.add(b.concat(p, q), b.concat(q, p)))


def concat_with_input():
    x = b.image_input((2, 5, 6))
    return end(b.concat(x, b.conv2d(b.concat(x, b.relu(x)), 3, kernel=1)))


def relu_of_input():
    x = b.image_input((2, 5, 6))
    return end(b.add(b.relu(x), x, b.conv2d(x, 2, kernel=1)))


def relu_feeds_addition():
    x = b.conv2d(b.image_input((2, 5, 6)), 4, kernel=3, padding=1)
    return end(b.add(b.relu(x), b.relu(b.batch_norm(x))))


def batch_norm_without_relu():
    x = b.batch_norm(b.image_input((2, 5, 6)), momentum=0.7)
    x = b.batch_norm(b.conv2d(x, 3, kernel=3))
    return end(b.max_pool2d(x, 2))


def batch_norm_of_features():
    x = b.relu(b.batch_norm(b.dense(b.flatten(b.image_input((2, 5, 6))), 7)))
    return b.softmax(b.dense(b.dropout(x, 0.5), 3))


def output_is_concat():
    x = b.relu(b.conv2d(b.image_input((2, 5, 6)), 4, kernel=3))
    return b.concat(b.sigmoid(b.conv2d(x, 1, kernel=1)), b.sigmoid(b.conv2d(x, 2, kernel=1)))


def output_is_fused_relu():
    return b.relu(b.conv2d(b.image_input((2, 5, 6)), 4, kernel=3))


def dropout_and_skip():
    x = b.relu(b.conv2d(b.image_input((2, 5, 6)), 4, kernel=3, padding=1))
    return end(b.concat(b.dropout(x, 0.4), x))


def every_activation():
    x = b.dense(b.flatten(b.image_input((1, 4, 4))), 9)
    y = b.tanh(x)
    parts = [b.relu6(x), b.leaky_relu(x, slope=0.2), b.log_sigmoid(x), b.sigmoid(x), b.relu(x), b.softmax(x), y]
    return b.softmax(b.dense(b.concat(*parts, b.arctanh(b.sigmoid(b.tanh(y)))), 3))


def every_pooling():
    x = b.conv2d(b.image_input((2, 9, 8)), 3, kernel=3, padding=1)
    pooled = b.add(
        b.max_pool2d(x, 3, stride=2, padding=1),
        b.avg_pool2d(x, 3, stride=2, padding=1),
    )
    return b.softmax(b.dense(b.concat(b.global_avg_pool2d(pooled), b.global_max_pool2d(x)), 3))


def convolutions():
    x = b.image_input((4, 9, 8))
    x = b.relu(b.conv2d(x, 8, kernel=3, stride=2, padding=1, groups=2))
    x = b.conv2d(x, 6, kernel=(3, 2), padding=(2, 1), dilation=(2, 1), bias=False)
    x = b.relu(b.conv2d_transpose(x, 5, kernel=3, stride=2, padding=1, output_padding=1))
    y = b.conv2d_transpose(x, 5, kernel=1, stride=1, bias=False)
    z = b.relu(b.conv2d_transpose(x, 5, kernel=1, stride=1, bias=False))
    return end(b.add(x, y, z, b.depthwise_conv2d(x, kernel=3, padding=1)))


GRAPHS = [
    three_consumers, chain_of_additions, same_bytes_added, same_bytes_concatenated, addition_of_dropouts,
    concat_of_concat, growing_concats, permuted_concats, concat_with_input, relu_of_input, relu_feeds_addition,
    batch_norm_without_relu, batch_norm_of_features, dropout_and_skip, every_activation, every_pooling, convolutions,
]  # fmt: skip


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: graph.__name__)
def test_graph_equals_pytorch(graph, kernels, assert_parity):
    assert_parity(b.build("graph", graph()), kernels, count=5)


@pytest.mark.parametrize("graph", [output_is_concat, output_is_fused_relu], ids=lambda graph: graph.__name__)
@pytest.mark.parametrize("loss", ["mse", "mae", "dice"])
def test_output_that_is_no_activation_equals_pytorch(graph, loss, kernels, assert_parity):
    assert_parity(b.build("graph", graph()), kernels, count=5, loss=loss)


@pytest.mark.parametrize("count", [1, 7, 16, 17, 64])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_any_batch_size_equals_pytorch(count, dtype, kernels, assert_parity):
    x = b.relu(b.batch_norm(b.conv2d(b.image_input((2, 8, 8)), 5, kernel=3, padding=1)))
    x = b.max_pool2d(b.relu(b.conv2d(x, 4, kernel=3)), 2)
    spec = b.build("small", end(b.dropout(x, 0.25)))
    assert_parity(spec, kernels, count=count, dtype=dtype)
