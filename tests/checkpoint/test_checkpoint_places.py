"""One suite over checkpoints of this machine and of an object store."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoint_samples import content, make_checkpoint
from fsspec.implementations.memory import MemoryFileSystem

from ringlet.checkpoint import BackgroundWriter, CheckpointStore
from ringlet.errors import CheckpointError, NewerCheckpointError, UnreadableCheckpointError
from ringlet.io.storage import Storage, open_location


@pytest.fixture(params=["this machine", "object store", "file system"])
def place(request: pytest.FixtureRequest, tmp_path: Path, bucket: str) -> str:
    """The last is this machine's again, reached by fsspec."""
    here = tmp_path / "checkpoints"
    places = {
        "this machine": str(here),
        "object store": f"{bucket}/run/checkpoints",
        "file system": f"local://{here}",
    }
    return places[request.param]


@pytest.fixture
def store(place: str, said: list[str]) -> CheckpointStore:
    return CheckpointStore(place, say=said.append)


@pytest.fixture
def files(place: str) -> Storage:
    return open_location(place)


def put(files: Storage, name: str, data: bytes, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(data)
    files.put(source, name)


def change(files: Storage, name: str, tmp_path: Path) -> None:
    """Flip one bit."""
    data = bytearray(files.read(name, 1 << 20))
    data[-1] ^= 1
    put(files, name, bytes(data), tmp_path)


# -- both -------------------------------------------------------------------------------------------------------------
def test_a_checkpoint_comes_back_to_the_bit(store: CheckpointStore, place: str) -> None:
    written = make_checkpoint(41, optimizer=("first", "second"))
    assert str(store.write(written)) == f"{place}/step-00000041"
    again = CheckpointStore(place)
    assert again.steps() == [41]
    assert content(again.load(41)) == content(written)


def test_an_empty_place_has_no_checkpoints(store: CheckpointStore) -> None:
    assert (store.steps(), store.entries(), store.newest(), store.last_training()) == ([], [], None, {})
    with pytest.raises(
        CheckpointError, match=r"there is no checkpoint of step 3 in .*checkpoints; the newest are: none"
    ):
        store.load(3)


def test_the_newest_good_one_is_used(filled: Any, files: Storage, said: list[str], tmp_path: Path) -> None:
    store = filled(10, 20, 30)
    change(files, "step-00000030/model.safetensors", tmp_path)
    files.delete("step-00000020/optimizer.safetensors")
    found = store.newest()
    assert found is not None
    assert content(found) == content(make_checkpoint(10))
    assert ["model.safetensors does not match its checksum" in line for line in said] == [True, False]
    assert "optimizer.safetensors is missing. Step 10 is used instead" in said[1]


def test_none_that_can_be_used_is_an_error(filled: Any, files: Storage, tmp_path: Path) -> None:
    store = filled(10)
    put(files, "step-00000010/optimizer.safetensors", b"short", tmp_path)
    with pytest.raises(CheckpointError, match="has 5 bytes, the manifest says"):
        store.newest()


def test_entries_say_what_is_wrong(filled: Any, files: Storage, tmp_path: Path) -> None:
    store = filled(10, 20)
    change(files, "step-00000020/manifest.json", tmp_path)
    good, bad = store.entries(verify=True)
    assert (good.state, good.problem, bad.state) == ("ok", None, "damaged")
    assert "manifest.json" in str(bad.problem)
    assert good.num_bytes > 1000
    assert abs(good.time - time.time()) < 60
    assert good.checkpoint is not None
    assert good.checkpoint.training == make_checkpoint(10).training


def test_old_ones_are_removed(filled: Any, files: Storage) -> None:
    store = filled(10, 20, 30, 40)
    assert store.prune(2, protected_steps=(10,)) == [20]
    assert store.steps() == [10, 30, 40]
    assert sorted(files.list()) == ["step-00000010", "step-00000030", "step-00000040"]


def test_nothing_is_removed_while_the_newest_is_damaged(
    filled: Any, files: Storage, place: str, said: list[str], tmp_path: Path
) -> None:
    filled(10, 20)
    change(files, "step-00000020/model.safetensors", tmp_path)
    assert CheckpointStore(place, say=said.append).prune(1) == []
    assert "Older ones are kept for now" in said[-1]


def test_what_holds_anything_foreign_is_left_alone(
    filled: Any, files: Storage, said: list[str], tmp_path: Path
) -> None:
    store = filled(10, 20)
    put(files, "step-00000010/notes.txt", b"mine", tmp_path)
    assert store.prune(1) == []
    assert "was not removed: it holds 'notes.txt', which does not belong there" in said[-1]
    assert store.steps() == [10, 20]


def test_another_state_of_the_same_step_is_set_aside(filled: Any, files: Storage, said: list[str]) -> None:
    store = filled(10)
    store.write(make_checkpoint(10))
    assert said == []
    other = replace(
        make_checkpoint(10), optimizer={"velocity": np.zeros_like(make_checkpoint(10).optimizer["velocity"])}
    )
    store.write(other)
    assert "holds another state of step 10. It was renamed to step-00000010.superseded-" in said[0]
    assert content(store.load(10)) == content(other)
    (aside,) = set(files.list()) - {"step-00000010"}
    assert sorted(files.list(aside)) == sorted(files.list("step-00000010"))


def test_later_ones_are_moved(filled: Any, tmp_path: Path) -> None:
    store = filled(10, 20, 30)
    target = tmp_path / "superseded"
    target.mkdir()
    assert store.move_after(10, target) == [20, 30]
    assert store.steps() == [10]
    moved = CheckpointStore(target)
    assert [content(moved.load(step)) for step in moved.steps()] == [content(make_checkpoint(n)) for n in (20, 30)]
    assert [path.name for path in sorted(target.iterdir())] == ["step-00000020", "step-00000030"]


def test_the_newest_manifest_tells_about_training(filled: Any) -> None:
    assert filled(10, 20).last_training() == make_checkpoint(20).training


def test_a_thread_writes_while_training_goes_on(store: CheckpointStore) -> None:
    with BackgroundWriter(store) as writer:
        writer.submit(make_checkpoint(10))
    assert content(store.load(10)) == content(make_checkpoint(10))


def test_an_address_of_a_file_is_a_path(tmp_path: Path) -> None:
    store = CheckpointStore(f"file://{tmp_path}/checkpoints")
    assert store.write(make_checkpoint(1)) == tmp_path / "checkpoints" / "step-00000001"


# -- object stores ----------------------------------------------------------------------------------------------------
@pytest.fixture
def remote(bucket: str, said: list[str]) -> CheckpointStore:
    return CheckpointStore(f"{bucket}/run", say=said.append)


def refuse(*_: object, **__: object) -> None:
    raise ConnectionError("the network is down")


def leave_incomplete(bucket: str, step: int, tmp_path: Path) -> Storage:
    """What a writer leaves that dies before it sends the manifest."""
    files = open_location(f"{bucket}/run")
    put(files, f"step-{step:08d}/model.safetensors", b"half", tmp_path)
    return files


def test_the_manifest_is_sent_last(remote: CheckpointStore, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    send = MemoryFileSystem.put_file

    def record(self: MemoryFileSystem, source: str, target: str, **options: Any) -> None:
        sent.append(Path(target).name)
        send(self, source, target, **options)

    monkeypatch.setattr(MemoryFileSystem, "put_file", record)
    remote.write(make_checkpoint(1))
    assert sent == ["model.safetensors", "optimizer.safetensors", "history.ndjson", "manifest.json"]


def test_a_checkpoint_without_its_manifest_is_ignored_and_written_again(
    remote: CheckpointStore, bucket: str, tmp_path: Path, said: list[str]
) -> None:
    files = leave_incomplete(bucket, 20, tmp_path)
    remote.write(make_checkpoint(10))
    assert (remote.steps(), said) == ([10], [])
    assert sorted(files.list()) == ["step-00000010", "step-00000020"]
    remote.write(make_checkpoint(20))
    assert content(remote.load(20)) == content(make_checkpoint(20))


def test_an_old_incomplete_checkpoint_is_removed(
    remote: CheckpointStore, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    files = leave_incomplete(bucket, 20, tmp_path)
    put(leave_incomplete(bucket, 30, tmp_path), "step-00000030/notes.txt", b"mine", tmp_path)
    put(files, "other/notes.txt", b"mine", tmp_path)
    now = time.time()
    monkeypatch.setattr("ringlet.checkpoint.remote.time.time", lambda: now + 7200)
    remote.prepare()
    assert sorted(files.list()) == ["other", "step-00000030"]
    assert "step-00000030 was left alone: it holds 'notes.txt', which does not belong there" in said[0]


@pytest.mark.parametrize("broken", ["put_file", "ls"])
def test_a_network_that_fails_is_an_error_that_leaves_the_others_intact(
    remote: CheckpointStore, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    remote.write(make_checkpoint(10))
    with monkeypatch.context() as patch:
        patch.setattr(MemoryFileSystem, broken, refuse)
        with pytest.raises(CheckpointError, match="the network is down"):
            remote.write(make_checkpoint(20))
    assert content(remote.load(10)) == content(make_checkpoint(10))
    remote.write(make_checkpoint(20))
    assert remote.steps() == [10, 20]


def test_a_write_that_fails_midway_leaves_nothing(
    remote: CheckpointStore, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = MemoryFileSystem.put_file

    def fail_at_the_end(self: MemoryFileSystem, source: str, target: str, **options: Any) -> None:
        if target.endswith("manifest.json"):
            refuse()
        send(self, source, target, **options)

    monkeypatch.setattr(MemoryFileSystem, "put_file", fail_at_the_end)
    with pytest.raises(CheckpointError, match=f"cannot write {bucket}/run/step-00000010: the network is down"):
        remote.write(make_checkpoint(10))
    assert open_location(bucket).list("run/step-00000010") == {}


def test_files_that_did_not_arrive_whole_are_noticed(remote: CheckpointStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(self: MemoryFileSystem, source: str, target: str, **_: Any) -> None:
        self.pipe_file(target, Path(source).read_bytes()[:-1])

    monkeypatch.setattr(MemoryFileSystem, "put_file", cut)
    with pytest.raises(CheckpointError, match=r"model\.safetensors has [\d,]+ bytes there, [\d,]+ were sent"):
        remote.write(make_checkpoint(10))


def test_a_network_that_fails_does_not_damage_what_is_read(
    remote: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote.write(make_checkpoint(10))
    monkeypatch.setattr(MemoryFileSystem, "_open", refuse)
    with pytest.raises(UnreadableCheckpointError, match="is unreadable: cannot be read: the network is down"):
        remote.load(10)


def test_newer_formats_are_told_apart(remote: CheckpointStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("ringlet.checkpoint.manifest.FORMAT", 9)
        remote.write(make_checkpoint(10))
    with pytest.raises(NewerCheckpointError, match="newer format 9"):
        remote.load(10)


def test_manifests_without_end_are_refused(remote: CheckpointStore, bucket: str, tmp_path: Path) -> None:
    put(open_location(bucket), "run/step-00000010/manifest.json", b"[" * (9 << 20), tmp_path)
    with pytest.raises(CheckpointError, match=r"manifest\.json has more than 8,388,608 bytes"):
        remote.load(10)
