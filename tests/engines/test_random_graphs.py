"""Random graphs of shared, joined, added and overwritten tensors have PyTorch's loss and gradients."""

from __future__ import annotations

import os

import numpy as np
import pytest

from ringlet.models import builder as b

NUM_GRAPHS = int(os.environ.get("RINGLET_TEST_GRAPHS", "30"))


def random_graph(seed):
    """Fifteen operations, each on any earlier results; what nobody used is joined at the end."""
    rng = np.random.default_rng(seed)
    values = [b.image_input((2, 4, 4))]
    used = set()

    def pick(count=1):
        recent = rng.random() < 0.6
        pool = values[-4:] if recent else values
        order = rng.permutation(len(pool))[:count]
        used.update(pool[i].name for i in order)
        return [pool[i] for i in order]

    def alike(count):
        (first,) = pick()
        others = [v for v in values if v.shape == first.shape and v is not first]
        rng.shuffle(others)
        chosen = [first, *others[: count - 1]]
        used.update(v.name for v in chosen)
        return chosen

    def convolution():
        return b.conv2d(pick()[0], int(rng.integers(1, 4)), kernel=3, padding=1, bias=bool(rng.integers(2)))

    def addition():
        terms = alike(int(rng.integers(2, 4)))
        return b.add(*terms) if len(terms) > 1 else b.tanh(terms[0])

    def joined():
        parts = pick(int(rng.integers(2, 4)))
        return b.concat(*parts) if len(parts) > 1 else b.relu(parts[0])

    makers = [
        convolution, convolution, addition, addition, joined, joined,
        lambda: b.relu(convolution()), lambda: b.relu(b.batch_norm(convolution())), lambda: b.relu(pick()[0]),
        lambda: b.batch_norm(pick()[0]), lambda: b.dropout(pick()[0], 0.3), lambda: b.sigmoid(pick()[0]),
        lambda: b.conv2d_transpose(pick()[0], 2, kernel=3, padding=1), lambda: b.softmax(pick()[0]),
        lambda: b.max_pool2d(pick()[0], 3, stride=1, padding=1),
        lambda: b.avg_pool2d(pick()[0], 3, stride=1, padding=1),
    ]  # fmt: skip
    while len(values) < 16:
        values.append(makers[rng.integers(len(makers))]())
    loose = [value for value in values if value.name not in used]
    x = b.concat(*loose) if len(loose) > 1 else loose[0]
    return b.build("random", b.softmax(b.dense(b.flatten(x), 3)) if rng.random() < 0.7 else b.sigmoid(x))


@pytest.mark.parametrize("seed", range(NUM_GRAPHS))
def test_random_graph_equals_pytorch(seed, kernels, assert_parity):
    spec = random_graph(seed)
    loss = "categorical_cross_entropy" if len(spec.output_shape) == 1 else "mse"
    assert_parity(spec, kernels, count=3, loss=loss, tolerance=1e-8)
