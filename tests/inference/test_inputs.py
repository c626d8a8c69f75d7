"""What the inputs of a prediction name: files, folders, arrays, lists; in order, with names for what is written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ringlet.errors import DataError
from ringlet.inference.inputs import list_inputs

SHAPE = (3, 8, 8)


def touch(*names: str) -> None:
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(b"x")


def names(*sources: str, stdin=None) -> list[str]:
    return [item.name for item in list_inputs(sources, SHAPE, stdin).inputs]


def outputs(*sources: str) -> list[str]:
    return [item.output for item in list_inputs(sources, SHAPE).inputs]


def test_folders_are_searched_by_name_and_hidden_files_left_alone():
    touch("in/b.png", "in/a/z.JPG", "in/a/y.png", "in/.hidden.png", "in/.git/x.png", "in/notes.txt")
    assert names("in") == ["in/a/y.png", "in/a/z.JPG", "in/b.png"]
    assert outputs("in") == ["a/y", "a/z", "b"]


def test_inputs_keep_the_order_in_which_they_are_named():
    touch("b.png", "in/c.png", "a.png")
    assert names("b.png", "in", "a.png") == ["b.png", "in/c.png", "a.png"]


def test_masks_beside_their_images_are_left_out():
    touch("in/images/a.png", "in/masks/a.png", "flat/a.jpg", "flat/a_mask.gif", "flat/a_overlay.png", "flat/b_mask.png")
    listing = list_inputs(["in", "flat"], SHAPE)
    assert [item.name for item in listing.inputs] == ["in/images/a.png", "flat/a.jpg", "flat/b_mask.png"]
    assert listing.remarks == ["left out 1 masks and overlays in 'in'", "left out 2 masks and overlays in 'flat'"]
    assert names("flat/a_mask.gif") == ["flat/a_mask.gif"]


def test_results_of_pictures_of_one_name_get_different_names():
    touch("one/a.png", "two/a.png", "two/a.jpg", "b.png")
    assert outputs("one/a.png", "two/a.png", "two/a.jpg", "b.png") == ["a_png", "a_png-2", "a_jpg", "b"]


def test_lists_come_from_stdin_or_a_file():
    touch("a.png", "b c.png")
    Path("list.txt").write_text("b c.png\n\na.png\n")
    assert names("-", stdin=lambda: ["a.png\n", "\n", "b c.png\r\n"]) == ["a.png", "b c.png"]
    assert names("@list.txt") == ["b c.png", "a.png"]
    with pytest.raises(DataError, match=r"list of paths 'none\.txt'"):
        names("@none.txt")


@pytest.mark.parametrize(
    ("arrays", "count"),
    [
        ({"images": np.zeros((3, 8, 8, 3), np.uint8), "labels": np.zeros(3)}, 3),
        ({"x_train": np.zeros((4, 3, 8, 8)), "x_test": np.zeros((2, 3, 8, 8))}, 2),
        ({"whatever": np.zeros((5, 3, 8, 8))}, 5),
    ],
)
def test_arrays_need_no_targets(arrays, count):
    np.savez("some.npz", **arrays)
    listing = list_inputs(["some.npz"], SHAPE)
    assert [item.name for item in listing.inputs] == [f"some.npz[{index}]" for index in range(count)]
    assert listing.inputs[0].named().picture.shape == (3, 8, 8)
    assert listing.inputs[0].output == "some-0"


def test_what_is_missing_is_listed_with_its_problem():
    touch("a.png", "empty/notes.txt", "broken.npz")
    np.savez("unclear.npz", one=np.zeros(3), two=np.zeros(3))
    sources = ["none.png", "a.png", "empty", "none.npz", "broken.npz", "unclear.npz", "zero\0byte.png"]
    inputs = list_inputs(sources, SHAPE).inputs
    assert [bool(item.problem) for item in inputs] == [True, False, True, True, True, True, True]
    assert "unclear.npz holds one, two" in inputs[5].problem


def test_nothing_at_all_is_an_error():
    with pytest.raises(DataError, match=r"nothing to predict: cannot read none\.png"):
        names("none.png")
    with pytest.raises(DataError, match="name no image"):
        names("-", stdin=list)


def test_names_of_any_bytes_become_text():
    name = b"caf\xe9.png".decode("utf-8", "surrogateescape")
    Path(name).write_bytes(b"x")
    [item] = list_inputs([name], SHAPE).inputs
    assert item.name == "caf\\udce9.png"
    assert item.path == Path(name)
