"""A full disk costs the new checkpoint, never an old one, and the message has the figures."""

from __future__ import annotations

import re
import resource
from collections.abc import Callable
from pathlib import Path

import pytest
from checkpoint_samples import content, make_checkpoint, make_spec

from ringlet.checkpoint import CheckpointStore, atomic
from ringlet.errors import CheckpointError

SPEC = make_spec(num_classes=4000)
"""About 0.45 MB, and as much of optimizer state."""


@pytest.fixture
def small_disk(mount_disk: Callable[[int], Path]) -> Path:
    """A file system of 1.5 MB."""
    return mount_disk(1500 << 10)


def check_refusal(store: CheckpointStore, step: int, *optimizer: str) -> None:
    names = sorted(path.name for path in store.path.iterdir())
    wanted = make_checkpoint(step, spec=SPEC, optimizer=optimizer)
    with pytest.raises(CheckpointError, match="the disk or quota is full") as caught:
        store.write(wanted)
    figures = re.search(r"about ([\d,]+) bytes are needed, ([\d,]+) bytes are free", str(caught.value))
    assert figures is not None
    needed, free = (int(figure.replace(",", "")) for figure in figures.groups())
    assert needed == wanted.num_bytes + atomic.SPARE_BYTES
    assert free == atomic.shutil.disk_usage(store.path).free
    assert sorted(path.name for path in store.path.iterdir()) == names
    for other in store.steps():
        assert content(store.load(other)) == content(make_checkpoint(other, spec=SPEC, optimizer=("velocity",)))


@pytest.fixture
def store(small_disk: Path) -> CheckpointStore:
    """A store with one checkpoint and no room for another."""
    store = CheckpointStore(small_disk / "checkpoints")
    store.write(make_checkpoint(1, spec=SPEC))
    return store


def test_is_noticed_before_anything_is_written(store: CheckpointStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic, "_write_file", None)
    check_refusal(store, 2, "velocity")


@pytest.mark.parametrize("optimizer", [(), ("velocity",)], ids=["in the model", "in the optimizer"])
def test_is_survived_in_the_middle_of_a_file(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch, optimizer: tuple[str, ...]
) -> None:
    monkeypatch.setattr(atomic, "_require_space", lambda *_: None)
    if not optimizer:
        (store.path.parent / "ballast").write_bytes(bytes(300 << 10))
    check_refusal(store, 2, *optimizer)


def test_room_that_was_made_is_used(store: CheckpointStore) -> None:
    check_refusal(store, 2, "velocity")
    store.remove(1)
    store.write(make_checkpoint(2, spec=SPEC))
    assert store.steps() == [2]


@pytest.mark.parametrize("limit", [100, 500], ids=["in the model", "in the optimizer"])
def test_a_limit_of_file_sizes_is_told_as_such(tmp_path: Path, limit: int) -> None:
    store = CheckpointStore(tmp_path / "checkpoints")
    store.write(make_checkpoint(1, spec=SPEC))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    wanted = make_checkpoint(2, spec=SPEC, optimizer=("first", "second"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit << 10, before[1]))
    try:
        with pytest.raises(CheckpointError, match=r"(?i)full \(.*file too large.* bytes are needed"):
            store.write(wanted)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert store.steps() == [1]
    assert len(list(store.path.iterdir())) == 1
