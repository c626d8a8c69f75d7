"""Data that a Python program hands over: what each kind of object is taken for, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ringlet.data import as_dataset
from ringlet.data.source import Source, is_random, labels_of, weights_of
from ringlet.errors import ConfigError, DataError

RNG = np.random.default_rng(5)
IMAGES = RNG.random((20, 3, 6, 5)).astype(np.float32)
LABELS = np.arange(20) % 4


def everything(source: Source) -> tuple[np.ndarray, np.ndarray]:
    return source.read(np.arange(len(source)))


# -- arrays -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "given",
    [
        (IMAGES, LABELS),
        [IMAGES, LABELS],
        (IMAGES.tolist(), LABELS.tolist()),
        {"x": IMAGES, "y": LABELS},
        {"Images": IMAGES, "Labels": LABELS},
        {"x_train": IMAGES, "y_train": LABELS},
        {"train": (IMAGES, LABELS)},
        list(zip(IMAGES, LABELS.tolist(), strict=True)),
        [{"image": image, "label": label} for image, label in zip(IMAGES, LABELS, strict=True)],
    ],
    ids=["tuple", "list", "lists", "dict", "names", "parts", "split", "samples", "mappings"],
)
def test_the_same_samples_in_any_form_are_the_same_data(given: Any) -> None:
    dataset = as_dataset(given)
    inputs, targets = everything(dataset.train)
    assert (dataset.task, dataset.num_classes, dataset.input_shape) == ("classification", 4, (3, 6, 5))
    np.testing.assert_array_equal(inputs, IMAGES)
    np.testing.assert_array_equal(targets, LABELS)
    assert targets.dtype == np.int64


def test_channels_are_found_where_that_leaves_no_doubt() -> None:
    last = np.moveaxis(IMAGES, 1, 3)
    dataset = as_dataset((last, LABELS))
    np.testing.assert_array_equal(everything(dataset.train)[0], IMAGES)
    assert dataset.channels == "last"
    assert dataset.remarks == ("train data: x: (20, 6, 5, 3) is taken as (n, height, width, channels)",)


@pytest.mark.parametrize(
    ("shape", "channels", "expected", "remark"),
    [
        ((9, 3, 8, 8), None, (3, 8, 8), ""),
        ((9, 3, 8, 3), None, (3, 8, 3), "both ends may count channels"),
        ((9, 3, 8, 3), "last", (3, 3, 8), ""),
        ((9, 7, 8, 8), None, (7, 8, 8), "no axis has 1, 3 or 4"),
        ((9, 8, 8, 7), "last", (7, 8, 8), ""),
        ((9, 8, 6), None, (1, 8, 6), "images of one channel"),
        ((9, 5), None, (5,), ""),
        ((9,), None, (1,), ""),
    ],
)
def test_axes_are_what_they_look_like_or_what_is_said(
    shape: tuple[int, ...], channels: Any, expected: tuple[int, ...], remark: str
) -> None:
    dataset = as_dataset((np.zeros(shape, np.float32), np.arange(9) % 3), channels=channels)
    assert dataset.input_shape == expected
    assert remark in " ".join(dataset.remarks)
    assert bool(dataset.remarks) == bool(remark)


def test_bytes_are_scaled_and_numbers_are_not() -> None:
    as_bytes = as_dataset(((IMAGES * 255).astype(np.uint8), LABELS))
    assert everything(as_bytes.train)[0].dtype == np.uint8
    assert as_bytes.normalization.scale == pytest.approx(1 / 255)
    as_numbers = as_dataset((IMAGES * 255, LABELS))
    assert as_numbers.normalization.scale == 1.0
    assert "are used as they are: bytes (uint8) would be divided by 255" in as_numbers.remarks[0]
    assert as_dataset((IMAGES, LABELS)).remarks == ()


def test_weights_follow_their_samples_into_every_part() -> None:
    weights = np.arange(20) / 10
    dataset = as_dataset((IMAGES, LABELS, weights), validation_split=0.25, image_size=(3, 3))
    for source in (dataset.train, dataset.validation):
        assert source is not None
        indices = np.arange(len(source))
        resized, _ = source.read(indices)
        place = [int(np.argmin(np.abs(everything(dataset_of_all())[0] - row).sum(axis=(1, 2, 3)))) for row in resized]
        np.testing.assert_array_equal(weights_of(source, indices), weights[place].astype(np.float32))
    plain = as_dataset((IMAGES, LABELS)).train
    assert weights_of(plain, np.arange(3)) is None


def dataset_of_all() -> Source:
    return as_dataset((IMAGES, LABELS), image_size=(3, 3)).train


def test_parts_may_be_given_by_themselves_and_of_other_kinds() -> None:
    dataset = as_dataset(
        (IMAGES, LABELS), {"x": IMAGES[:4], "y": LABELS[:4]}, list(zip(IMAGES[:3], LABELS[:3], strict=True))
    )
    assert [len(part) for part in (dataset.train, dataset.validation, dataset.test) if part] == [20, 4, 3]
    with pytest.raises(ConfigError, match="validation data are given twice"):
        as_dataset({"train": (IMAGES, LABELS), "val": (IMAGES, LABELS)}, (IMAGES, LABELS))
    with pytest.raises(DataError, match=r"test data: inputs of shape \(3, 6, 4\)"):
        as_dataset((IMAGES, LABELS), test=(IMAGES[:, :, :, :4], LABELS))


def test_the_split_is_the_one_of_files_class_by_class() -> None:
    dataset = as_dataset((IMAGES, LABELS), validation_split=0.2)
    assert dataset.validation is not None
    assert np.bincount(everything(dataset.validation)[1]).tolist() == [1, 1, 1, 1]
    assert dataset.is_stratified


# -- targets ----------------------------------------------------------------------------------------------------------
ONE_HOT = np.eye(4)[LABELS]
SEVERAL = (RNG.random((20, 4)) < 0.6).astype(np.float32)
PIXELS = RNG.integers(0, 2, (20, 6, 5))


@pytest.mark.parametrize(
    ("targets", "task", "num_classes", "shape"),
    [
        (LABELS, "classification", 4, (20,)),
        (LABELS[:, None], "classification", 4, (20,)),
        (LABELS.astype(np.uint8), "classification", 4, (20,)),
        (LABELS > 1, "classification", 2, (20,)),
        (ONE_HOT, "classification", 4, (20,)),
        (np.array(["cat", "dog", "ant", "bee"])[LABELS], "classification", 4, (20,)),
        (SEVERAL, "multilabel", 4, (20, 4)),
        (SEVERAL.astype(bool), "multilabel", 4, (20, 4)),
        (RNG.random(20), "regression", 1, (20, 1)),
        (RNG.random((20, 3)), "regression", 3, (20, 3)),
        (RNG.random((20, 2, 6, 5)), "regression", 2, (20, 2, 6, 5)),
        (RNG.random((20, 6, 5)), "regression", 1, (20, 1, 6, 5)),
        (PIXELS, "segmentation", 1, (20, 1, 6, 5)),
        (PIXELS[:, None] == 1, "segmentation", 1, (20, 1, 6, 5)),
        (PIXELS[..., None].astype(np.float32), "segmentation", 1, (20, 1, 6, 5)),
        ((PIXELS * 255).astype(np.uint8), "segmentation", 1, (20, 1, 6, 5)),
    ],
)
def test_targets_say_what_the_task_is(targets: np.ndarray, task: str, num_classes: int, shape: tuple[int, ...]) -> None:
    dataset = as_dataset((IMAGES, targets))
    found = everything(dataset.train)[1]
    assert (dataset.task, dataset.num_classes, found.shape) == (task, num_classes, shape)
    assert found.dtype == (np.int64 if task == "classification" else np.float32)
    if task in ("multilabel", "regression"):
        np.testing.assert_allclose(found.reshape(20, -1), np.asarray(targets, np.float32).reshape(20, -1))


def test_texts_are_the_names_of_classes() -> None:
    names = np.array(["cat", "dog", "ant", "bee"])[LABELS]
    dataset = as_dataset((IMAGES, names), test=(IMAGES[:2], names[:2].tolist()))
    assert dataset.class_names == ("ant", "bee", "cat", "dog")
    assert dataset.test is not None
    assert everything(dataset.test)[1].tolist() == [2, 3]
    with pytest.raises(DataError, match="class 'eel', which the training data lack"):
        as_dataset((IMAGES, names), test=(IMAGES[:1], ["eel"]))


def test_the_user_decides_what_is_in_doubt() -> None:
    whole = np.array(LABELS, np.float64)
    doubtful = as_dataset((IMAGES, whole))
    assert doubtful.task == "regression"
    assert "task='classification' if they are classes" in doubtful.remarks[0]
    assert as_dataset((IMAGES, whole), task="classification").num_classes == 4
    assert as_dataset((IMAGES, ONE_HOT), task="multilabel").task == "multilabel"
    assert as_dataset((IMAGES, LABELS), task="regression").task == "regression"
    classes = as_dataset((IMAGES, RNG.integers(0, 3, (20, 6, 5))), num_classes=3)
    assert everything(classes.train)[1].shape == (20, 6, 5)
    assert as_dataset((IMAGES, LABELS), num_classes=9).num_classes == 9


NOT_A_NUMBER = np.where(np.arange(20) == 7, np.nan, 1.0)


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        ((IMAGES, LABELS[:19]), {}, r"x has shape \(20, 3, 6, 5\), y \(19,\): expected as many targets"),
        ((IMAGES, NOT_A_NUMBER), {}, "y: target 7 is not finite"),
        ((np.where(np.arange(20)[:, None, None, None] == 3, np.inf, IMAGES), LABELS), {}, "x: sample 3 has values"),
        ((IMAGES[:0], LABELS[:0]), {}, "expected at least one sample"),
        ((np.array([[1, 2], [3]], object), [0, 1]), {}, "an array of Python objects, such as list"),
        (([[1, 2], [3]], [0, 1]), {}, "a list of unequal parts"),
        ((IMAGES.astype(complex), LABELS), {}, "values of type complex128"),
        ((np.array([["a"], ["b"]]), [0, 1]), {}, "texts: expected numbers"),
        ((IMAGES, -1 - LABELS), {}, "label -1 at index 0"),
        ((IMAGES, LABELS), {"num_classes": 3}, "label 3 at index 3"),
        ((IMAGES, np.stack([LABELS, LABELS], 1)), {}, "2 columns of integers such as 3"),
        ((IMAGES, RNG.random((20, 4, 4))), {}, r"numbers of shape \(20, 4, 4\)"),
        ((IMAGES.reshape(20, -1), PIXELS), {}, "for inputs that are no images"),
        ((IMAGES, LABELS, np.ones(19)), {}, r"weights of shape \(19,\) for 20 samples"),
        ((IMAGES, LABELS, -np.ones(20)), {}, "expected 0 or more"),
        ((IMAGES[0], LABELS[:3]), {"channels": "last"}, "has no axis of channels"),
        (np.ma.masked_equal(IMAGES, IMAGES[0, 0, 0, 0]), {}, "without targets"),
        (((IMAGES, LABELS), (IMAGES, LABELS)), {}, r"looks like \(train, test\)"),
        ({"a": IMAGES, "b": LABELS}, {}, "has the names 'a', 'b'"),
        ([], {}, "is empty"),
        ([IMAGES[0]], {}, r"train data\[0\] is a numpy.ndarray"),
        ((row for row in ()), {}, "gave no items"),
        ([({"a": 1}, 2)], {}, "networks have one input"),
        ((IMAGES, LABELS), {"target": "kind"}, "names columns of a table"),
    ],
)
def test_what_cannot_be_trained_on_is_refused_in_words(given: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises((DataError, ConfigError, TypeError), match=message):
        as_dataset(given, **options)


@pytest.mark.parametrize("given", [42, "x", None, object(), IMAGES], ids=lambda value: type(value).__name__)
def test_what_is_no_data_is_a_type_error(given: Any) -> None:
    with pytest.raises(TypeError, match="expected \\(x, y\\)"):
        as_dataset(given)


# -- by index ---------------------------------------------------------------------------------------------------------
class Counted:
    """A map-style data set that counts how often each sample is read."""

    def __init__(self, make: Callable[[int], Any], count: int, **attributes: Any) -> None:
        self.reads = [0] * count
        self._make = make
        vars(self).update(attributes)

    def __len__(self) -> int:
        return len(self.reads)

    def __getitem__(self, index: int) -> Any:
        self.reads[index] += 1
        return self._make(index)


def test_listed_targets_are_used_if_they_are_those_of_the_samples() -> None:
    honest = Counted(lambda index: (IMAGES[index % 20], index % 4), 400, targets=[index % 4 for index in range(400)])
    source = as_dataset(honest).train
    assert sum(honest.reads) < 40
    assert labels_of(source) is not None
    lying = Counted(lambda index: (IMAGES[index % 20], index % 4), 40, targets=[0] * 40)
    dataset = as_dataset(lying)
    assert dataset.num_classes == 4
    assert "all samples were read once for their classes" in dataset.remarks[-1]


def test_named_classes_need_no_reading() -> None:
    data = Counted(lambda index: (IMAGES[index % 20], index % 2), 400, classes=["cat", "dog", "eel"])
    dataset = as_dataset(data)
    assert (dataset.num_classes, dataset.class_names) == (3, ("cat", "dog", "eel"))
    assert sum(data.reads) < 40


def test_pictures_of_pillow_become_bytes_and_mixed_modes_colours() -> None:
    def sample(index: int) -> tuple[Image.Image, int]:
        values = np.full((6, 5, 3), index, np.uint8)
        return Image.fromarray(values if index % 2 else values[:, :, 0]), index % 3

    dataset = as_dataset(Counted(sample, 9))
    inputs, targets = everything(dataset.train)
    assert inputs.shape == (9, 3, 6, 5)
    assert inputs.dtype == np.uint8
    assert inputs[:, 1, 2, 2].tolist() == list(range(9))
    assert targets.tolist() == [index % 3 for index in range(9)]


def test_pictures_of_unequal_size_need_a_size() -> None:
    data = Counted(lambda index: (Image.new("L", (5 + index, 6), index), index % 2), 4)
    source = as_dataset(data, num_classes=2).train
    with pytest.raises(DataError, match=r"\[1\]: an input of shape \(1, 6, 6\).*image_size= brings"):
        everything(source)
    sized = as_dataset(data, num_classes=2, image_size=(4, 4)).train
    assert everything(sized)[0][:, 0, 0, 0].tolist() == [0, 1, 2, 3]


def test_masks_of_pillow_are_masks() -> None:
    def sample(index: int) -> tuple[Image.Image, Image.Image]:
        mask = np.zeros((6, 5), np.uint8)
        mask[index] = 255
        return Image.new("RGB", (5, 6)), Image.fromarray(mask)

    dataset = as_dataset(Counted(sample, 6))
    assert (dataset.task, dataset.num_classes) == ("segmentation", 1)
    np.testing.assert_array_equal(everything(dataset.train)[1][2, 0].sum(axis=1), [0, 0, 5, 0, 0, 0])


def test_samples_that_change_are_noticed() -> None:
    steady = as_dataset(Counted(lambda index: (IMAGES[index], 0), 4))
    shaky = as_dataset(Counted(lambda index: (RNG.random((3, 6, 5)), index % 2), 4), validation_split=0.5)
    assert not is_random(steady.train)
    assert is_random(shaky.train)
    assert "cannot be repeated or resumed to the bit" in shaky.remarks[-1]


# -- in order ---------------------------------------------------------------------------------------------------------
def batches(size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    buffer = np.empty((size, *IMAGES.shape[1:]), np.float32)
    for start in range(0, 20, size):
        rows = slice(start, min(start + size, 20))
        buffer[: len(LABELS[rows])] = IMAGES[rows]
        yield buffer[: len(LABELS[rows])], LABELS[rows]  # the same memory every time


def test_a_generator_is_read_once_whether_it_gives_samples_or_batches() -> None:
    for given in (batches(8), zip(IMAGES, LABELS, strict=True)):
        dataset = as_dataset(given)
        inputs, targets = everything(dataset.train)
        np.testing.assert_array_equal(inputs, IMAGES)
        np.testing.assert_array_equal(targets, LABELS)
        assert "20 samples of" in dataset.remarks[0]


def test_items_that_might_be_batches_are_what_the_user_says() -> None:
    vectors = [(RNG.random(3), RNG.random(3)) for _ in range(4)]
    assert as_dataset(iter(vectors), batched=False).input_shape == (3,)
    pairs = [(RNG.random((3, 2)), RNG.random(3)) for _ in range(4)]
    understood = as_dataset(iter(pairs))
    assert len(understood.train) == 12
    assert "taken as batches of 3 samples; batched=False" in understood.remarks[1]


def test_an_endless_generator_ends_at_the_limit() -> None:
    def endless() -> Iterator[tuple[np.ndarray, int]]:
        while True:
            yield np.zeros(1000, np.float32), 1

    with pytest.raises(DataError, match=r"only 0 MB may be taken of the free memory. Give data that are read by"):
        as_dataset(endless(), max_bytes=100_000)
    assert len(as_dataset(endless(), num_samples=30, max_bytes=1_000_000).train) == 30


def test_items_of_another_shape_are_refused() -> None:
    with pytest.raises(DataError, match=r"item 1: samples of shape \(4,\)"):
        as_dataset(iter([(np.zeros(3), 0), (np.zeros(4), 1)]))
