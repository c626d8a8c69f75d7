"""Data sets in an object store: the same samples as from this machine, files fetched when they are first read."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from ringlet.data import load_dataset, survey
from ringlet.data.cache import RemotePath, located
from ringlet.errors import DataError, UsageError

GREY = np.arange(64, dtype=np.uint8).reshape(8, 8) * 4
MASK = np.tri(8, dtype=np.uint8) * 255


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RINGLET_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def upload(bucket: str) -> Callable[[Path], str]:
    """Send a folder or file; gives its address."""

    def upload(source: Path) -> str:
        fs = fsspec.filesystem("memory")
        for path in [source] if source.is_file() else source.rglob("*"):
            if path.is_file():
                fs.pipe_file(f"{bucket}/data/{path.relative_to(source.parent)}", path.read_bytes())
        return f"{bucket}/data/{source.name}"

    return upload


@pytest.fixture
def fetches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of files that were asked for."""
    names: list[str] = []
    usual = MemoryFileSystem._open

    def record(self: MemoryFileSystem, path: str, *arguments: Any, **options: Any) -> Any:
        names.append(Path(path).name)
        return usual(self, path, *arguments, **options)

    monkeypatch.setattr(MemoryFileSystem, "_open", record)
    return names


@pytest.fixture
def pets(tmp_path: Path, save_image: Any) -> Path:
    for split, count in (("train", 4), ("val", 1)):
        for number in range(count):
            for name in ("cat", "dog"):
                save_image(tmp_path / "pets" / split / name / f"{split}-{name}-{number}.png", GREY + number)
    return tmp_path / "pets"


def masks(folder: Path, save_image: Any) -> Path:
    for number in range(3):
        save_image(folder / "images" / f"{number}.png", GREY + number)
        save_image(folder / "masks" / f"{number}_mask.png", MASK)
    return folder


def shards(folder: Path, _: Any) -> Path:
    (folder / "train").mkdir(parents=True)
    for number in range(2):
        np.savez(folder / "train" / f"{number}.npz", x=np.stack([GREY, GREY + number])[:, None], y=[number, 1])
    return folder


def npz(folder: Path, _: Any) -> Path:
    folder.mkdir()
    np.savez_compressed(folder / "d.npz", x=np.stack([GREY, GREY.T])[:, None], y=[0, 1])
    return folder / "d.npz"


def same(one: Any, other: Any) -> bool:
    assert (len(one), one.input_shape, one.num_classes) == (len(other), other.input_shape, other.num_classes)
    indices = np.arange(len(one))
    return all(
        np.array_equal(mine, theirs) for mine, theirs in zip(one.read(indices), other.read(indices), strict=True)
    )


@pytest.mark.parametrize(("kind", "make"), [("masks", masks), ("imagenet", shards), ("npz", npz), ("folder", masks)])
def test_all_formats_are_read(kind: str, make: Any, tmp_path: Path, save_image: Any, upload: Any) -> None:
    source = make(tmp_path / "made", save_image)
    address = upload(source)
    assert same(load_dataset(f"{kind}:{address}").train, load_dataset(f"{kind}:{source}").train)
    assert same(load_dataset(kind, path=address).train, load_dataset(kind, path=source).train)


def test_idx_files_and_cifar_are_read(idx_folder: Path, cifar_folder: Path, bucket: str, upload: Any) -> None:
    for name, folder in (("mnist", idx_folder), ("cifar10", cifar_folder)):
        here, there = load_dataset(name, path=folder), load_dataset(name, path=upload(folder))
        assert same(there.train, here.train)
        assert same(there.test, here.test)


def test_masks_beside_their_images_are_found(tmp_path: Path, save_image: Any, upload: Any) -> None:
    for folder in ("train", "train_masks"):
        save_image(tmp_path / "cars" / folder / "a.png", GREY if folder == "train" else MASK)
    upload(tmp_path / "cars")
    assert len(load_dataset("masks", path=f"{upload(tmp_path / 'cars')}/train").train) == 1


def test_files_come_when_they_are_first_read_and_stay(
    pets: Path, upload: Any, fetches: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survey, "MAX_REMOTE_FILES", 1)
    address = upload(pets)
    fetches.clear()
    dataset = load_dataset(f"folder:{address}")
    assert (len(dataset.train), dataset.class_names) == (8, ("cat", "dog"))
    assert fetches == ["train-cat-0.png"]  # whose size is that of all
    dataset.train.read(np.array([5, 1]))
    assert sorted(fetches) == ["train-cat-0.png", "train-cat-1.png", "train-dog-1.png"]
    load_dataset(f"folder:{address}").train.read(np.array([0, 1, 5]))
    assert len(fetches) == 3


def test_a_file_that_has_changed_is_fetched_again(pets: Path, upload: Any, save_image: Any) -> None:
    address = upload(pets)
    before = load_dataset(f"folder:{address}").train.read(np.array([0]))[0]
    save_image(pets / "train" / "cat" / "train-cat-0.png", GREY.T)
    upload(pets)
    after = load_dataset(f"folder:{address}").train.read(np.array([0]))[0]
    np.testing.assert_array_equal(after[0, 0], GREY.T)
    assert not np.array_equal(before, after)


def test_a_file_that_shrinks_meanwhile_is_refused(
    pets: Path, upload: Any, bucket: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survey, "MAX_REMOTE_FILES", 1)
    dataset = load_dataset(f"folder:{upload(pets)}")
    fsspec.filesystem("memory").pipe_file(f"{bucket}/data/pets/train/dog/train-dog-0.png", b"cut")
    with pytest.raises(DataError, match=r"train-dog-0\.png: .*was listed with \d+ bytes and has 3"):
        dataset.train.read(np.array([4]))
    assert not list(cache.rglob("*dog-0*"))


def test_damaged_files_are_refused_as_local_ones_are(pets: Path, upload: Any) -> None:
    (pets / "train" / "cat" / "train-cat-0.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"train-cat-0\.png: not a readable image"):
        load_dataset(f"folder:{upload(pets)}")


def test_what_is_not_there_is_told(bucket: str) -> None:
    with pytest.raises(DataError, match=r"missing is not a folder: expected one with a folder of images"):
        load_dataset(f"folder:{bucket}/missing")
    with pytest.raises(DataError, match=r"cannot read .*missing\.npz: no such file in the object store"):
        load_dataset(f"npz:{bucket}/missing.npz")


def test_a_store_that_cannot_be_listed_is_told(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Access Denied")

    monkeypatch.setattr(MemoryFileSystem, "ls", refuse)
    with pytest.raises(DataError, match=f"cannot read {bucket}: Access Denied. Check the address"):
        load_dataset(f"folder:{bucket}/pets")


@pytest.mark.parametrize("name", ["..", ".", "a\0b"])
def test_names_that_would_leave_the_cache_are_refused(bucket: str, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    entry = {"name": f"/x/{name}", "size": 1, "type": "file"}
    monkeypatch.setattr(MemoryFileSystem, "ls", lambda *_, **__: [entry])
    with pytest.raises(DataError, match="which cannot be the name of a file: refused"):
        load_dataset(f"folder:{bucket}/pets")


def test_without_fsspec_the_command_that_installs_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(UsageError, match=r'pip install "ringlet\[remote\]"'):
        load_dataset("folder:s3://bucket/pets")


# -- paths ------------------------------------------------------------------------------------------------------------
def test_a_remote_path_behaves_like_a_path(pets: Path, upload: Any, bucket: str, cache: Path) -> None:
    path = located(upload(pets))
    assert isinstance(path, RemotePath)
    assert path == cache / "remote" / "memory" / bucket.removeprefix("memory://") / "data" / "pets"
    assert path.is_dir()
    assert not path.is_file()
    assert not (path / "other").exists()
    assert sorted(child.name for child in (path / "train").iterdir()) == ["cat", "dog"]
    assert [child.name for child in (path / "val" / "cat").glob("*.png")] == ["val-cat-0.png"]
    assert len(list(path.rglob("*.png"))) == 10
    with pytest.raises(NotImplementedError):
        list(path.glob("*/*.png"))
    file = path / "val" / "cat" / "val-cat-0.png"
    assert file.is_file()
    assert file.address == f"{bucket}/data/pets/val/cat/val-cat-0.png"
    assert not os.path.lexists(file)
    assert file.read_bytes() == (pets / "val" / "cat" / "val-cat-0.png").read_bytes()
    assert os.path.lexists(file)
    with pytest.raises(IsADirectoryError):
        path.stat()


def test_a_bucket_itself_is_a_folder(pets: Path, upload: Any, bucket: str) -> None:
    upload(pets)
    assert [child.name for child in located(bucket).iterdir()] == ["data"]


def test_passwords_do_not_become_names_in_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringlet.data.cache.open_location", lambda _: None)
    assert "secret" not in str(located("sftp://me:secret@host/data/x"))


def test_paths_of_this_machine_stay_as_they_are(tmp_path: Path) -> None:
    assert located(tmp_path) is tmp_path
    assert located(f"file://{tmp_path}") == tmp_path
