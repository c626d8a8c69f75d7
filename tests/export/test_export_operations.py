"""Every operation of the specs, with the attributes that frameworks disagree about, in every target."""

from __future__ import annotations

import pytest
from export_networks import TARGETS, make_case, write

from ringlet.data.normalization import Normalization
from ringlet.models import builder as b
from ringlet.operations import OPERATIONS

pytestmark = [pytest.mark.xdist_group("keras_exports"), pytest.mark.filterwarnings("ignore")]


def convolutions():
    x = b.image_input((4, 13, 11))
    x = b.conv2d(x, 6, kernel=(3, 2), stride=(2, 1), padding=(1, 2), groups=2)
    x = b.conv2d(x, 12, kernel=3, padding="same", groups=6, bias=False)
    x = b.conv2d(x, 8, kernel=(2, 3), stride=(2, 3), dilation=(2, 1), padding=2)
    return b.conv2d(x, 5, kernel=(3, 1), dilation=(2, 1), padding=(3, 0))


def transposed_convolutions():
    x = b.image_input((3, 5, 7))
    x = b.conv2d_transpose(x, 4, kernel=3, stride=2, padding=1, output_padding=1)
    x = b.conv2d_transpose(x, 5, kernel=2, stride=(2, 3), output_padding=(1, 2))
    x = b.conv2d_transpose(x, 3, kernel=(1, 4), stride=(3, 2), padding=(0, 1), bias=False)
    return b.conv2d_transpose(x, 2, kernel=3, padding=1)


def pools():
    x = b.image_input((3, 14, 15))
    cut = b.max_pool2d(x, 3, stride=2, padding=1, ceil_mode=True)
    mean = b.avg_pool2d(x, 3, stride=2, padding=1, ceil_mode=True)
    joined = b.concat(b.tanh(cut), mean)
    lopsided = b.avg_pool2d(joined, (3, 2), stride=(2, 3), padding=(1, 0), ceil_mode=True)
    negative = b.max_pool2d(b.conv2d(joined, 4, kernel=1), (2, 3), stride=(3, 2), padding=(1, 1))
    return b.concat(b.flatten(lopsided), b.flatten(negative))


def activations():
    x = b.image_input((3, 6, 6))
    x = b.conv2d(x, 8, kernel=3)
    curves = [b.relu(x), b.relu6(x), b.sigmoid(x), b.tanh(x), b.leaky_relu(x, slope=0.2), b.log_sigmoid(x)]
    return b.concat(*curves, b.arctanh(b.tanh(x)), b.softmax(x))


def joints():
    x = b.image_input((3, 8, 8))
    left, right = b.conv2d(x, 6, kernel=3, padding=1), b.conv2d(x, 6, kernel=1)
    x = b.add(left, right, b.batch_norm(left))
    x = b.batch_norm(b.concat(x, b.relu(right)))
    return b.concat(b.global_avg_pool2d(x), b.global_max_pool2d(x))


def dense_layers():
    x = b.image_input((7,))
    x = b.relu(b.batch_norm(b.dense(x, 9)))
    x = b.batch_norm(b.dropout(b.dense(x, 6, bias=False), 0.5))
    return b.softmax(b.dense(b.flatten(x), 4))


GRAPHS = (convolutions, transposed_convolutions, pools, activations, joints, dense_layers)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: graph.__name__)
def test_an_operation_means_the_same_everywhere(graph, target):
    case = make_case(b.build(graph.__name__, graph()), Normalization(1 / 255, (0.4,), (0.25,)))
    case.check(write(case, target), tolerance=2e-5)


@pytest.mark.parametrize("target", TARGETS)
def test_networks_trained_on_floats_take_floats(target):
    x = b.image_input((2, 6, 5))
    spec = b.build("floats", b.softmax(b.dense(b.flatten(b.relu(b.conv2d(x, 3, kernel=2))), 4)))
    case = make_case(spec, Normalization(1.0, (0.1, -0.2), (0.5, 2.0)))
    assert case.values.dtype == "float32"
    case.check(write(case, target))


@pytest.mark.parametrize("target", TARGETS)
def test_any_name_of_a_node_will_do(target):
    x = b.image_input((1, 4, 4), name="class")
    x = b.conv2d(x, 2, kernel=2, name="a/b")
    x = b.conv2d(x, 2, kernel=2, name="a-b")
    x = b.relu(x, name="half")
    x = b.batch_norm(x, name="1")
    x = b.relu(b.batch_norm(x, name="factor"), name="images")
    spec = b.build("odd.names/and-so_on", b.softmax(b.dense(b.flatten(x, name="normalize"), 3, name="forward")))
    case = make_case(spec)
    case.check(write(case, target))


def test_no_operation_is_missing():
    used = {node.op for graph in GRAPHS for node in b.build("g", graph()).nodes}
    assert used == set(OPERATIONS)
