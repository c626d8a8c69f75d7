"""Sums along a tree: the same bits as the tree written out, whoever computes them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

# Lengths around vectors, blocks and the pieces of threads.
LENGTHS = (0, 1, 7, 8, 33, 1000, 4097, 70_001)
BALANCED, LEFT, RIGHT = [0, 1, -1, 2, 3, -1, -1], [0, 1, -1, 2, -1, 3, -1], [0, 1, 2, 3, -1, -1, -1]


def inputs_for(lab, num_inputs: int, length: int) -> list[np.ndarray]:
    """Of magnitudes so different that every other order of additions gives other bits."""
    return [(lab.parameter(length) * 10.0 ** (index % 5)).astype(lab.dtype) for index in range(num_inputs)]


def written_out(inputs: list[np.ndarray], tree: list[int]) -> np.ndarray:
    stack: list[np.ndarray] = []
    for item in tree:
        stack.append(inputs[item] if item >= 0 else stack.pop(-2) + stack.pop())
    (total,) = stack
    return total


def trees(num_inputs: int) -> st.SearchStrategy[list[int]]:
    """Every shape of tree over the inputs in every order."""

    def join(parts: list[list[int]], choose) -> list[int]:
        while len(parts) > 1:
            at = choose(len(parts) - 1)
            parts[at : at + 2] = [[*parts[at], *parts[at + 1], -1]]
        return parts[0]

    return st.tuples(st.permutations(range(num_inputs)), st.randoms(use_true_random=False)).map(
        lambda drawn: join([[leaf] for leaf in drawn[0]], drawn[1].randrange)
    )


@given(data=st.data(), num_inputs=st.integers(1, 9), length=st.sampled_from(LENGTHS), seed=st.integers(0, 999))
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
def test_any_tree_gives_the_bits_of_the_tree_written_out(make_lab, kernels, dtype, data, num_inputs, length, seed):
    lab = make_lab(kernels, dtype, seed)
    inputs, tree = inputs_for(lab, num_inputs, length), data.draw(trees(num_inputs))
    out = lab.unwritten(length)
    kernels.add_tree(inputs, tree, out)
    assert out.tobytes() == written_out(inputs, tree).tobytes()


@pytest.mark.parametrize(
    "tree", [[0], [0, 1, -1], [0, 1, -1, 2, -1], [0, 1, 2, -1, -1], BALANCED, LEFT, RIGHT], ids=str
)
def test_the_result_may_replace_any_input(lab, tree):
    num_inputs = max(tree) + 1
    for replaced in range(num_inputs):
        inputs = inputs_for(lab, num_inputs, 5003)
        expected = written_out(inputs, tree)
        others = [array.copy() for array in inputs]
        lab.kernels.add_tree(inputs, tree, inputs[replaced])
        assert inputs[replaced].tobytes() == expected.tobytes()
        assert all((inputs[i] == others[i]).all() for i in range(num_inputs) if i != replaced)


def test_other_trees_give_other_bits(lab):
    inputs = inputs_for(lab, 4, 1000)
    results = []
    for tree in (BALANCED, LEFT, RIGHT):
        out = lab.unwritten(1000)
        lab.kernels.add_tree(inputs, tree, out)
        results.append(out.tobytes())
    assert len(set(results)) == 3


def test_an_input_may_be_used_twice_and_another_not_at_all(lab):
    inputs, out = inputs_for(lab, 3, 100), lab.unwritten(100)
    lab.kernels.add_tree(inputs, [2, 2, -1], out)
    assert (out == inputs[2] + inputs[2]).all()


def test_threads_do_not_change_the_bits(lab):
    if not hasattr(lab.kernels, "set_num_threads"):
        pytest.skip(f"the {lab.kernels.name} kernels have no threads of their own")
    inputs = inputs_for(lab, 7, 100_003)
    tree = [0, 1, -1, 2, 3, -1, -1, 4, 5, -1, 6, -1, -1]
    before, results = lab.kernels.num_threads(), []
    for num_threads in (1, 2, 3):
        lab.kernels.set_num_threads(num_threads)
        out = lab.unwritten(100_003)
        lab.kernels.add_tree(inputs, tree, out)
        results.append(out.tobytes())
    lab.kernels.set_num_threads(before)
    assert results == [written_out(inputs, tree).tobytes()] * 3


@pytest.mark.parametrize("tree", [[], [0, 1], [-1], [0, -1], [0, 1, -1, -1], [0, 1, -2]], ids=str)
def test_what_is_no_tree_is_refused(lab, tree):
    with pytest.raises(ValueError, match="tree"):
        lab.kernels.add_tree(inputs_for(lab, 2, 8), tree, lab.unwritten(8))


def test_lengths_and_dtypes_must_agree(lab):
    other = np.float64 if lab.dtype == np.float32 else np.float32
    for wrong in (np.zeros(9, lab.dtype), np.zeros(8, other)):
        with pytest.raises(ValueError, match="same"):
            lab.kernels.add_tree([lab.parameter(8), wrong], [0, 1, -1], lab.unwritten(8))
