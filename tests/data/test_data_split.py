"""Validation data of people's own files are chosen class by class."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringlet import RunConfig, Trainer
from ringlet.data import load_dataset, partition, registry
from ringlet.errors import CheckpointError, ConfigError
from ringlet.training.session import Session

LABELS = np.repeat(np.arange(4), [60, 9, 30, 1])


@pytest.fixture
def own_file(tmp_path: Path) -> str:
    """An npz file of 100 samples that are all different; the last class has one."""
    images = np.arange(1600, dtype=np.float32).reshape(100, 4, 4)
    np.savez(tmp_path / "own.npz", x=images, y=LABELS)
    return f"npz:{tmp_path / 'own.npz'}"


def counts(source) -> list[int]:
    return np.bincount(source.read(np.arange(len(source)))[1], minlength=4).tolist()


@pytest.mark.parametrize("seed", range(8))
def test_every_class_is_held_out_in_proportion(seed: int, own_file: str) -> None:
    dataset = load_dataset(own_file, validation_split=0.1, seed=seed)
    assert (counts(dataset.train), counts(dataset.validation)) == ([54, 8, 27, 1], [6, 1, 3, 0])
    assert dataset.is_stratified


def test_the_seed_decides_which_samples(own_file: str) -> None:
    first, again, other = (load_dataset(own_file, validation_split=None, seed=seed).validation for seed in (1, 1, 2))
    images = [part.read(np.arange(10))[0] for part in (first, again, other)]
    np.testing.assert_array_equal(images[0], images[1])
    assert (images[0] != images[2]).any()


def test_folders_are_split_class_by_class_too(tmp_path: Path, save_image) -> None:
    for name, count in (("ant", 20), ("bee", 10), ("cow", 1)):
        for number in range(count):
            save_image(tmp_path / name / f"{number}.png", np.full((4, 4), number, np.uint8))
    for seed in range(5):
        dataset = load_dataset(f"folder:{tmp_path}", validation_split=0.2, seed=seed)
        assert (counts(dataset.train)[:3], counts(dataset.validation)[:3]) == ([16, 8, 1], [4, 2, 0])


def test_built_in_data_are_split_as_ever() -> None:
    dataset = load_dataset("digits", validation_split=0.1, seed=3)
    assert not dataset.is_stratified
    everything = load_dataset("digits").train
    expected = partition.split_indices(len(everything), 3, len(dataset.validation))[1]
    np.testing.assert_array_equal(dataset.validation.read(np.arange(len(expected)))[0], everything.read(expected)[0])


def test_classes_of_one_sample_each_leave_none_for_validation(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((9, 4, 4), np.uint8), y=np.arange(9))
    with pytest.raises(ConfigError, match="every class has a single sample, which stays for training"):
        load_dataset(f"npz:{tmp_path / 'a.npz'}", validation_split=0.2)


@settings(max_examples=60, deadline=None)
@given(labels=st.lists(st.integers(0, 6), min_size=1, max_size=80), share=st.floats(0, 1), seed=st.integers(0, 99))
def test_a_split_by_class_keeps_all_samples_and_every_class(labels: list[int], share: float, seed: int) -> None:
    values = np.array(labels)
    wanted = int(share * (len(values) - 1))
    kept, held_out = partition.split_by_class(values, seed, wanted)
    assert sorted([*kept, *held_out]) == list(range(len(values)))
    assert set(values[kept]) == set(labels)
    assert len(held_out) == min(wanted, len(labels) - len(set(labels)))


# -- runs that an earlier version began -------------------------------------------------------------------------------
def options(own_file: str, tmp_path: Path, **changes: object) -> dict[str, object]:
    return {
        "model": "simplemlp", "dataset": own_file, "num_epochs": 2, "local_batch_size": 10, "evaluate": False,
        "run_dir": str(tmp_path / "run"), "checkpoint_every": "1 epochs", **changes,
    }  # fmt: skip


def test_an_older_run_resumes_with_its_own_split(own_file: str, tmp_path: Path, monkeypatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(registry, "labels_of", lambda _: None)  # as before there were such splits
        session = Session.open(RunConfig(**options(own_file, tmp_path)))
        session.run()
    assert not session.dataset.is_stratified
    resumed = Session.open(RunConfig(**options(own_file, tmp_path, num_epochs=3, resume="auto")), say=[].append)
    assert resumed.dataset.fingerprint() == session.dataset.fingerprint()
    assert resumed.continuation is not None
    resumed.run()
    again = Session.open(RunConfig(**options(own_file, tmp_path, num_epochs=4, resume="auto")), say=[].append)
    assert again.dataset.fingerprint() == session.dataset.fingerprint()
    again.run()
    given = {name: value for name, value in options(own_file, tmp_path).items() if name not in ("model", "dataset")}
    with pytest.raises(CheckpointError, match="ringlet resume"):
        Trainer("simplemlp", own_file, **given).fit(resume="auto")


def test_a_new_run_resumes_with_its_own_split(own_file: str, tmp_path: Path) -> None:
    session = Session.open(RunConfig(**options(own_file, tmp_path)))
    session.run()
    resumed = Session.open(RunConfig(**options(own_file, tmp_path, num_epochs=3, resume="auto")), say=[].append)
    assert resumed.dataset.is_stratified
    assert resumed.dataset.fingerprint() == session.dataset.fingerprint()
    resumed.run()
