import numpy as np
import pytest

from ringlet.data import dataset_names, load_dataset
from ringlet.data.catalogue import catalogue
from ringlet.errors import ConfigError, UnknownNameError, UsageError


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'mnist'"):
        load_dataset("mnits")


@pytest.mark.parametrize("name", ["Digits", "DIGITS", " digits"])
def test_names_may_be_written_in_any_case(name: str) -> None:
    assert len(load_dataset(name).train) == 1437


def test_a_kind_that_needs_a_path_says_so() -> None:
    for name in ("npz", "folder", "idx", "imagenet", "npz:"):
        with pytest.raises(UsageError, match="path"):
            load_dataset(name)


def test_the_validation_part_is_disjoint_and_chosen_by_the_seed() -> None:
    whole = load_dataset("digits").train
    dataset = load_dataset("digits", validation_split=0.2, seed=3)
    assert (len(dataset.train), len(dataset.validation)) == (1150, 287)
    chosen = [
        {image.tobytes() for image in part.read(np.arange(len(part)))[0]}
        for part in (dataset.train, dataset.validation)
    ]
    assert not chosen[0] & chosen[1]
    assert chosen[0] | chosen[1] == {image.tobytes() for image in whole.read(np.arange(1437))[0]}
    other = load_dataset("digits", validation_split=0.2, seed=4).validation
    assert chosen[1] != {image.tobytes() for image in other.read(np.arange(len(other)))[0]}


def test_no_split_means_no_validation_rather_than_an_empty_one() -> None:
    assert load_dataset("digits", validation_split=0.0).validation is None


@pytest.mark.parametrize(("count", "split"), [(10, 0.01), (10, 0.99), (1, 0.5)])
def test_a_split_that_leaves_a_part_empty_is_an_error(count: int, split: float) -> None:
    with pytest.raises(ConfigError, match="at least one each"):
        load_dataset("digits", num_samples=count, validation_split=split)


@pytest.mark.parametrize("split", [-0.1, 1.0, 2.0, float("nan")])
def test_a_share_outside_zero_to_one_is_refused(split: float) -> None:
    with pytest.raises(ConfigError, match="validation_split"):
        load_dataset("digits", validation_split=split)


def test_the_test_part_may_serve_as_validation() -> None:
    dataset = load_dataset("digits", test_as_validation=True)
    assert dataset.validation is dataset.test
    assert len(dataset.train) == 1437
    with pytest.raises(ConfigError, match="exclude each other"):
        load_dataset("digits", validation_split=0.2, test_as_validation=True)


def test_serving_a_missing_test_part_as_validation_is_an_error(tmp_path) -> None:
    np.savez(tmp_path / "d.npz", x=np.zeros((2, 4, 4), np.uint8), y=[0, 1])
    with pytest.raises(ConfigError, match="test_as_validation"):
        load_dataset("npz", path=tmp_path / "d.npz", test_as_validation=True)


def test_fewer_samples_are_a_choice_by_seed() -> None:
    dataset = load_dataset("digits", num_samples=100)
    assert len(dataset.train) == 100
    assert len(set(dataset.train.read(np.arange(100))[1].tolist())) == 10
    with pytest.raises(ConfigError, match="1437 training samples"):
        load_dataset("digits", num_samples=2000)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"num_samples": 0}, "num_samples: 0 is out of range, expected at least 1"),
        ({"num_classes": 0}, "num_classes = .*expected positive numbers"),
        ({"image_size": 0}, "image_size: expected height,width or one number, such as 128, received 0,0"),
        ({"input_shape": ()}, "input_shape = .*expected positive numbers"),
    ],
)
def test_sizes_must_be_positive(option: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_dataset("synthetic", **option)


def test_a_shape_that_does_not_fit_says_how_to_mend_it() -> None:
    with pytest.raises(ConfigError, match=r"\(1, 8, 8\), but \(3, 32, 32\).*image_size"):
        load_dataset("digits", input_shape=(3, 32, 32))


def test_the_fingerprint_tells_data_sets_apart() -> None:
    first = load_dataset("digits").fingerprint()
    assert first == load_dataset("digits").fingerprint()
    assert len(first) == 64
    others = [
        load_dataset("digits", validation_split=0.2),
        load_dataset("digits", num_samples=1000),
        load_dataset("digits", image_size=9),
        load_dataset("synthetic", num_samples=20),
        load_dataset("synthetic", num_samples=20, seed=1),
    ]
    assert len({first, *(other.fingerprint() for other in others)}) == 6


def test_the_catalogue_lists_every_name_once(tmp_path) -> None:
    entries = catalogue(tmp_path)
    assert sorted(entry.name for entry in entries) == sorted(dataset_names())
    assert [entry.name for entry in entries if entry.present] == ["digits", "shapes", "synthetic"]
    assert {entry.name for entry in entries if entry.origin == "downloadable"} >= {"mnist", "fashion-mnist", "cifar10"}
