"""Small networks that the tests of stage 2 share."""

from __future__ import annotations

import pytest

from ringlet.models.builder import batch_norm, build, conv2d, dense, flatten, image_input, max_pool2d, relu, softmax
from ringlet.models.spec import ModelSpec


@pytest.fixture
def tiny_spec() -> ModelSpec:
    """One of each kind of tensor: weights, biases, scale, shift and running statistics."""
    x = image_input((2, 6, 6))
    x = relu(batch_norm(conv2d(x, 3, kernel=3, bias=False)))
    x = flatten(max_pool2d(x, 2))
    return build("tiny", softmax(dense(x, 4)))
