"""What is removed, and what is never touched."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from checkpoint_samples import content, make_checkpoint

from ringlet.checkpoint import BackgroundWriter, Checkpoint, CheckpointStore
from ringlet.checkpoint.atomic import write_directory
from ringlet.errors import CheckpointError

Fill = Callable[..., CheckpointStore]


class TestPrune:
    @pytest.mark.parametrize(
        ("keep", "protected", "left"),
        [(1, (), [5]), (2, (), [4, 5]), (2, (1, 4), [1, 4, 5]), (9, (), [1, 2, 3, 4, 5]), (1, (7,), [5])],
    )
    def test_keeps_the_newest_and_the_protected(
        self, filled: Fill, keep: int, protected: tuple[int, ...], left: list[int]
    ) -> None:
        store = filled(1, 2, 3, 4, 5)
        removed = store.prune(keep, protected)
        assert store.steps() == left
        assert sorted(removed + left) == [1, 2, 3, 4, 5]
        assert sorted(path.name for path in store.path.iterdir()) == [f"step-{step:08d}" for step in left]

    def test_keep_must_be_positive(self, filled: Fill) -> None:
        with pytest.raises(CheckpointError, match="keep = 0"):
            filled(1).prune(0)

    def test_removes_nothing_while_the_newest_is_damaged(self, filled: Fill, said: list[str]) -> None:
        path = filled(1, 2, 3).path
        (path / "step-00000003" / "model.safetensors").write_bytes(b"")
        assert CheckpointStore(path, say=said.append).prune(1) == []
        assert len(list(path.iterdir())) == 3
        assert "Older ones are kept" in said[0]

    def test_leaves_a_checkpoint_with_a_foreign_file_whole(self, filled: Fill, said: list[str]) -> None:
        store = filled(1, 2, 3)
        (store.directory(1) / "notes.txt").write_text("mine")
        assert store.prune(1) == [2]
        assert content(store.load(1)) == content(make_checkpoint(1))
        assert "step-00000001 was not removed: it holds 'notes.txt'" in said[0]

    def test_does_not_follow_links(self, filled: Fill, tmp_path: Path) -> None:
        store = filled(1, 2, 3)
        elsewhere = tmp_path / "elsewhere"
        store.directory(1).rename(elsewhere)
        store.directory(1).symlink_to(elsewhere)
        (store.directory(2) / "optimizer.safetensors").unlink()
        (store.directory(2) / "optimizer.safetensors").symlink_to(elsewhere / "optimizer.safetensors")
        assert store.prune(1) == []
        assert len(list(elsewhere.iterdir())) == 4

    def test_later_steps_move_when_a_run_resumes_from_an_earlier_one(self, filled: Fill, tmp_path: Path) -> None:
        store = filled(1, 2, 3)
        (tmp_path / "kept").mkdir()
        assert store.move_after(1, tmp_path / "kept") == [2, 3]
        assert store.steps() == [1]
        for step in (2, 3):
            assert content(CheckpointStore(tmp_path / "kept").load(step)) == content(make_checkpoint(step))


class TestLeftovers:
    def leftover(self, store: CheckpointStore, step: int, *names: str) -> Path:
        path = store.path / f".step-{step:08d}.partial-0123456789ab"
        path.mkdir(parents=True)
        for name in names:
            (path / name).write_bytes(b"half")
        return path

    def test_of_dead_writers_are_removed(self, filled: Fill, said: list[str]) -> None:
        path = filled(1).path
        self.leftover(filled(1), 2, "model.safetensors", "optimizer.safetensors")
        store = CheckpointStore(path, say=said.append)
        assert store.newest() is not None
        assert len(list(path.iterdir())) == 2, "reading changes nothing"
        store.prepare()
        assert [entry.name for entry in path.iterdir()] == ["step-00000001"]
        assert said == []

    def test_of_living_writers_stay(self, store: CheckpointStore) -> None:
        path = self.leftover(store, 2, "model.safetensors")
        descriptor = os.open(path, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            store.prepare()
            assert path.is_dir()
        finally:
            os.close(descriptor)
        CheckpointStore(store.path).prepare()
        assert not path.exists()

    def test_a_second_writer_does_not_disturb_the_first(self, tmp_path: Path) -> None:
        def while_writing(_: object) -> None:
            CheckpointStore(tmp_path).prepare()

        write_directory(tmp_path / "step-00000001", {"model.safetensors": while_writing}, {})
        assert sorted(path.name for path in (tmp_path / "step-00000001").iterdir()) == [
            "manifest.json",
            "model.safetensors",
        ]

    @pytest.mark.parametrize("name", [".step-1.partial-0123456789ab", ".step-00000002.partial-xyz", "other", ".other"])
    def test_what_is_not_recognised_stays(self, store: CheckpointStore, name: str) -> None:
        (store.path / name).mkdir(parents=True)
        store.prepare()
        assert (store.path / name).is_dir()

    def test_with_foreign_content_stay_and_that_is_said(self, store: CheckpointStore, said: list[str]) -> None:
        path = self.leftover(store, 2, "model.safetensors", "thesis.txt")
        store.prepare()
        assert len(list(path.iterdir())) == 2
        assert "was left alone: it holds 'thesis.txt'" in said[0]

    def test_a_link_that_looks_like_one_stays(self, store: CheckpointStore, tmp_path: Path) -> None:
        (tmp_path / "mine").mkdir()
        store.path.mkdir()
        link = store.path / ".step-00000002.partial-0123456789ab"
        link.symlink_to(tmp_path / "mine")
        store.prepare()
        assert link.is_symlink()


class TestBackgroundWriter:
    def test_writes_what_was_submitted(self, store: CheckpointStore) -> None:
        with BackgroundWriter(store) as writer:
            assert writer.wait() is None
            writer.submit(make_checkpoint(1))
            assert writer.wait() == store.directory(1)
            assert writer.wait() is None
            writer.submit(make_checkpoint(2))
        assert store.steps() == [1, 2]

    def test_submit_returns_before_the_write_ends(
        self, store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        go_on = threading.Event()
        write = CheckpointStore.write

        def slow(self: CheckpointStore, checkpoint: Checkpoint) -> Path:
            assert go_on.wait(60)
            return write(self, checkpoint)

        monkeypatch.setattr(CheckpointStore, "write", slow)
        writer = BackgroundWriter(store)
        writer.submit(make_checkpoint(1))
        assert writer.busy
        assert store.steps() == []
        go_on.set()
        assert writer.close() == store.directory(1)
        assert not writer.busy

    def test_an_error_comes_out_of_wait_once(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        writer = BackgroundWriter(CheckpointStore(tmp_path / "file" / "checkpoints"))
        writer.submit(make_checkpoint(1))
        with pytest.raises(CheckpointError, match="cannot write"):
            writer.wait()
        assert writer.wait() is None

    def test_an_error_that_nobody_asked_for_comes_out_of_the_next_submit(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        writer = BackgroundWriter(CheckpointStore(tmp_path / "file" / "checkpoints"))
        writer.submit(make_checkpoint(1))
        with pytest.raises(CheckpointError, match="cannot write"):
            writer.submit(make_checkpoint(2))

    def test_an_error_of_the_block_is_not_hidden(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        store = CheckpointStore(tmp_path / "file" / "checkpoints")

        def fails() -> None:
            with BackgroundWriter(store) as writer:
                writer.submit(make_checkpoint(1))
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fails()

    def test_a_process_that_ends_finishes_its_write_first(self, tmp_path: Path) -> None:
        here = Path(__file__).parent
        program = (
            "import sys; from checkpoint_samples import make_checkpoint;"
            "from ringlet.checkpoint import BackgroundWriter, CheckpointStore;"
            "BackgroundWriter(CheckpointStore(sys.argv[1])).submit(make_checkpoint(1))"
        )
        paths = os.pathsep.join([str(here.parents[1] / "src"), str(here)])
        command = [sys.executable, "-c", program, str(tmp_path / "checkpoints")]
        subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, timeout=60, check=True)
        assert content(CheckpointStore(tmp_path / "checkpoints").load(1)) == content(make_checkpoint(1))
