"""Shared memory: found through tokens only, refused if anything is odd, and nothing of it is left behind."""

from __future__ import annotations

import errno
import gc
import itertools
import json
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringlet.comm import memory
from ringlet.comm.memory import KINDS, attach_segment, create_segment, share_segment
from ringlet.errors import CommunicationError

CHILD = """
import sys
import tempfile
from ringlet.comm.memory import attach_segment
segment = attach_segment(bytes.fromhex(sys.argv[1]))
print(len(segment.buffer), segment.buffer.sum())
segment.buffer[-1] = 42
"""


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def named_files(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[Path]]:
    """The files of segments that this test has made: other tests make theirs at the same time."""
    mark, numbers = uuid.uuid4().hex[:16], itertools.count()
    monkeypatch.setattr(memory.secrets, "token_hex", lambda _: f"{mark}{next(numbers):016x}")
    folders = [folder for folder in (Path("/dev/shm"), Path(tempfile.gettempdir())) if folder.is_dir()]
    return lambda: [path for folder in folders for path in folder.glob(f"ringlet-{mark}*")]


def descriptors() -> int:
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("num_bytes", [0, 1, 5000, 3 << 20])
def test_a_new_segment_is_zero_and_seen_by_another_process(kind, num_bytes):
    segment = create_segment(num_bytes, kind)
    assert segment.buffer.shape == (num_bytes,)
    assert not segment.buffer.any()
    if not num_bytes:
        return
    segment.buffer[0] = 7
    child = subprocess.run(
        [sys.executable, "-c", CHILD, segment.token.hex()], capture_output=True, text=True, check=True
    )
    assert child.stdout.split() == [str(num_bytes), "7"]
    assert segment.buffer[-1] == 42


def test_memory_begins_at_a_page(kind):
    assert create_segment(100, kind).buffer.ctypes.data % 4096 == 0


def test_a_sealed_segment_cannot_be_found_but_lives_on_in_its_mappings(kind, named_files):
    segment = create_segment(64, kind)
    other = attach_segment(segment.token)
    assert len(named_files()) == (1 if kind == "file" else 0)
    segment.seal()
    segment.seal()
    assert not named_files()
    with pytest.raises(CommunicationError, match="shared memory"):
        attach_segment(segment.token)
    view, token = other.buffer.view(np.float64), segment.token
    del segment, other
    view[:] = 3.0
    assert view.sum() == 24.0
    assert token


def test_nothing_is_left_when_the_last_array_is_gone(kind, named_files):
    before = descriptors()
    for _ in range(20):
        segment = create_segment(1 << 16, kind)
        other = attach_segment(segment.token)
        array = other.buffer.view(np.float32)
        array[:] = 1.0
    del segment, other, array
    assert descriptors() == before
    assert not named_files()


json_values = st.recursive(st.none() | st.integers() | st.text(max_size=20), st.lists, max_leaves=5)


@given(st.binary(max_size=200) | json_values.map(lambda value: json.dumps(value).encode()))
@settings(deadline=None, derandomize=True, database=None)
def test_any_other_bytes_are_no_token(data):
    with pytest.raises(CommunicationError, match="token"):
        attach_segment(data)


CHANGES = {
    "magic": "ringlet segment 0",
    "kind": "pipe",
    "bytes": -1,
    "path": "/dev/null\0",
    "inode": "1",
    "device": 1.5,
}


@pytest.mark.parametrize("field", CHANGES)
def test_a_changed_token_is_refused(kind, field):
    segment = create_segment(64, kind)
    fields = json.loads(segment.token)
    for changed in ({**fields, field: CHANGES[field]}, {k: v for k, v in fields.items() if k != field}):
        with pytest.raises(CommunicationError, match="token"):
            attach_segment(json.dumps(changed).encode())


def test_a_token_that_names_another_file_is_refused(kind, tmp_path):
    segment = create_segment(64, kind)
    other = tmp_path / "other"
    other.write_bytes(bytes(64))
    fields = json.loads(segment.token)
    with pytest.raises(CommunicationError, match="is not the shared memory"):
        attach_segment(json.dumps({**fields, "path": str(other)}).encode())
    with pytest.raises(CommunicationError, match="64 bytes, expected at least 65"):
        attach_segment(json.dumps({**fields, "bytes": 65}).encode())
    with pytest.raises(CommunicationError, match="machine"):
        attach_segment(json.dumps({**fields, "machine": "elsewhere"}).encode())
    assert other.read_bytes() == bytes(64)


def test_a_full_file_system_is_an_error_that_says_how_much_is_needed(monkeypatch, named_files):
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(CommunicationError, match=r"123,456 bytes .*No space left.* bytes are free"):
        create_segment(123_456, "file")
    assert not named_files()


def test_a_negative_size_is_refused():
    with pytest.raises(CommunicationError, match="-1 bytes"):
        create_segment(-1)


def test_where_anonymous_memory_cannot_be_attached_a_file_is_used(monkeypatch, named_files):
    real = attach_segment

    def refuse_anonymous(token: bytes):
        if b"anonymous" in token:
            raise CommunicationError("another process namespace")
        return real(token)

    monkeypatch.setattr(memory, "attach_segment", refuse_anonymous)
    tokens: list[bytes] = []
    members: list[memory.Segment | None] = []

    def tell(token: bytes) -> bytes:
        tokens.append(token)
        return token

    def others_ready(ready: bool) -> bool:
        """What the maker hears: a member has tried the token that was just told."""
        try:
            members.append(memory.attach_segment(tokens[-1]))
        except CommunicationError:
            return False
        return ready

    segment = share_segment(1000, "maker", tell, others_ready)
    assert [json.loads(token)["kind"] for token in tokens] == ["anonymous", "file"]
    assert segment is not None
    assert members[0] is not None
    segment.buffer[:] = 5
    assert members[0].buffer.sum() == 5000
    assert not named_files()


def test_where_nothing_can_be_shared_all_ranks_say_so():
    with pytest.raises(CommunicationError, match=r"cannot share 1000 bytes .*/dev/shm"):
        share_segment(1000, "member", lambda _: b"", lambda _: False)


# -- room -------------------------------------------------------------------------------------------------------------
@pytest.fixture
def small_folder(mount_disk):
    """A file system of 1 MB."""
    return mount_disk(1 << 20)


@pytest.mark.parametrize("can_reserve", [True, False])
def test_a_segment_in_a_file_has_its_room_or_is_refused(small_folder, monkeypatch, can_reserve):
    def unsupported(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    if not can_reserve:
        monkeypatch.setattr(os, "posix_fallocate", unsupported)
    with pytest.raises(OSError, match="No space left"):
        memory._create_file_in(small_folder, 2 << 20)
    assert not list(small_folder.iterdir())
    segment = memory._create_file_in(small_folder, 1 << 19)
    [path] = small_folder.iterdir()
    assert path.stat().st_blocks * 512 >= 1 << 19, "all of it is there before anybody writes"
    segment.buffer[:] = 1
    segment.seal()


def test_anonymous_memory_takes_no_room_before_it_is_used():
    before = _shared_kilobytes()
    segment = create_segment(256 << 20, "anonymous")
    assert _shared_kilobytes() - before < 128 << 10
    segment.buffer[: 1 << 20] = 1
    assert segment.buffer[: 2 << 20].sum() == 1 << 20


def test_where_the_system_lends_no_memory_all_of_it_is_found_at_once(monkeypatch):
    """As with ``vm.overcommit_memory`` = 2, which is of the whole machine: a test must not set it."""
    asked = []

    def full(_: int, offset: int, length: int) -> None:
        asked.append((offset, length))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(memory, "_commits_strictly", lambda: True)
    monkeypatch.setattr(os, "posix_fallocate", full)
    descriptors_before = descriptors()
    with pytest.raises(CommunicationError, match=r"cannot reserve 1,048,576 bytes .*bytes are free.*overcommit_memory"):
        create_segment(1 << 20, "anonymous")
    assert asked == [(0, 1 << 20)]
    assert descriptors() == descriptors_before
    monkeypatch.undo()
    monkeypatch.setattr(memory, "_commits_strictly", lambda: True)
    assert not create_segment(1 << 20, "anonymous").buffer.any()


def _shared_kilobytes() -> int:
    """Pages of this process that lie in shared memory and have been touched."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssShmem:"))
