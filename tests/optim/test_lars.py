"""LARS against the formula of its paper, on whole buffers and on slices that cut parameters."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ringlet.errors import UsageError
from ringlet.models.spec import ParameterInfo
from ringlet.optim import LARS, Segment, SegmentNorms, cut_segments, segment_squares, segments_of
from ringlet.optim.lars import CHUNK

SEGMENTS = (
    Segment(0, 12, "conv1.weight", "weight"),
    Segment(12, 15, "conv1.bias", "bias"),
    Segment(15, 18, "norm1.scale", "scale"),
    Segment(18, 21, "norm1.shift", "shift"),
    Segment(21, 41, "dense1.weight", "weight"),
)
SIZE = 41
RATE = 0.5


def paper(weights, gradients, velocity, *, momentum, decay, trust, nesterov):
    """One step, array by array, in the words of the paper."""
    for segment in SEGMENTS:
        part = slice(segment.start, segment.stop)
        w, g = weights[part].copy(), gradients[part]
        local, own_decay = 1.0, 0.0
        if segment.role == "weight":
            local = trust * np.linalg.norm(w) / (np.linalg.norm(g) + decay * np.linalg.norm(w))
            own_decay = decay
        step = RATE * local * (g + own_decay * w)
        velocity[part] = momentum * velocity[part] + step
        weights[part] = w - (step + momentum * velocity[part] if nesterov else velocity[part])


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_twenty_steps_follow_the_paper(kernels, gradient_at, decay, nesterov):
    optimizer = LARS(weight_decay=decay, trust=0.02, nesterov=nesterov)
    parameters, state = np.linspace(-1, 1, SIZE), optimizer.init_state(SIZE, float)
    expected, velocity = parameters.copy(), np.zeros(SIZE)
    for step in range(1, 21):
        gradients = gradient_at(step, SIZE)
        optimizer.update(
            parameters, gradients, state, step=step, learning_rate=RATE, segments=SEGMENTS, kernels=kernels
        )
        np.testing.assert_array_equal(gradients, gradient_at(step, SIZE))
        paper(expected, gradients, velocity, momentum=0.9, decay=decay, trust=0.02, nesterov=nesterov)
    np.testing.assert_allclose(parameters, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("cut", [5, 13, 16, 30])
def test_two_slices_with_norms_of_whole_arrays_equal_the_whole_buffer(kernels, gradient_at, cut):
    optimizer = LARS(weight_decay=0.1)
    whole, parts = np.linspace(-1, 1, SIZE), np.linspace(-1, 1, SIZE)
    state, part_state = optimizer.init_state(SIZE, float), optimizer.init_state(SIZE, float)
    slices = {part: cut_segments(SEGMENTS, part.start, part.stop) for part in map(_Part, (0, cut), (cut, SIZE))}
    for step in range(1, 6):
        gradients = gradient_at(step, SIZE)
        optimizer.update(whole, gradients, state, step=step, segments=SEGMENTS, kernels=kernels)
        squares: dict[str, np.ndarray] = {}
        for part, segments in slices.items():
            for name, values in segment_squares(parts[part.slice], gradients[part.slice], segments, kernels).items():
                squares[name] = squares.get(name, np.zeros(2)) + values
        norms = {name: SegmentNorms(*np.sqrt(values)) for name, values in squares.items()}
        for part, segments in slices.items():
            optimizer.update(
                parts[part.slice], gradients[part.slice], {"velocity": part_state["velocity"][part.slice]}, step=step,
                segments=segments, segment_norms=norms, kernels=kernels,
            )  # fmt: skip
    np.testing.assert_allclose(parts, whole, rtol=1e-12)


class _Part:
    def __init__(self, *bounds: int) -> None:
        self.start, self.stop = bounds
        self.slice = slice(*bounds)


def test_a_cut_parameter_without_norms_is_an_error(kernels):
    optimizer = LARS()
    segments = cut_segments(SEGMENTS, 0, 5)
    with pytest.raises(UsageError, match=r"holds 5 of 12 elements of 'conv1.weight'.*pass segment_norms"):
        optimizer.update(
            np.ones(5), np.ones(5), optimizer.init_state(5, float), step=1, segments=segments, kernels=kernels
        )


def test_segments_that_do_not_cover_the_slice_are_an_error(kernels):
    optimizer = LARS()
    state = optimizer.init_state(3, float)
    with pytest.raises(UsageError, match=r"cover 0 of 3 elements"):
        optimizer.update(np.ones(3), np.ones(3), state, step=1, kernels=kernels)
    with pytest.raises(UsageError, match=r"covers 1:3, expected it to begin at 0"):
        optimizer.update(np.ones(3), np.ones(3), state, step=1, segments=[Segment(1, 3, "a")], kernels=kernels)


def test_biases_take_a_plain_momentum_step_without_decay(kernels):
    optimizer = LARS(weight_decay=0.5, momentum=0.0)
    parameters = np.ones(2)
    optimizer.update(
        parameters, np.array([1.0, 2.0]), {}, step=1, learning_rate=0.1, segments=[Segment(0, 2, "b", "bias")],
        kernels=kernels,
    )  # fmt: skip
    np.testing.assert_allclose(parameters, [0.9, 0.8])


def test_weights_of_zero_still_learn(kernels):
    parameters = np.zeros(2)
    LARS(momentum=0.0).update(
        parameters, np.ones(2), {}, step=1, learning_rate=0.1, segments=[Segment(0, 2, "w")], kernels=kernels
    )
    np.testing.assert_allclose(parameters, [-0.1, -0.1])


def test_an_array_longer_than_a_chunk_is_updated_completely(kernels):
    size = 2 * CHUNK + 3
    parameters, gradients = np.ones(size), np.full(size, 2.0)
    LARS(momentum=0.0, trust=0.5).update(
        parameters, gradients, {}, step=1, learning_rate=1.0, segments=[Segment(0, size, "w")], kernels=kernels
    )
    np.testing.assert_allclose(parameters, 1 - 0.5 * math.sqrt(size) / (2 * math.sqrt(size)) * 2)


def test_segments_follow_the_order_of_the_parameters():
    infos = [
        ParameterInfo("a.weight", "a", "weight", (2, 3), "glorot_uniform", 3, 2),
        ParameterInfo("a.bias", "a", "bias", (2,), "zeros", 3, 2),
    ]
    assert segments_of(infos) == (Segment(0, 6, "a.weight", "weight"), Segment(6, 8, "a.bias", "bias"))


def test_cutting_twice_remembers_the_whole():
    once = cut_segments(SEGMENTS, 4, 41)
    assert cut_segments(once, 0, 3) == (Segment(0, 3, "conv1.weight", "weight", whole=12),)
