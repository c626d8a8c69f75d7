"""Content that is unpacked into a temporary file, where there is no room: an error with numbers, never a signal."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import ringlet

SMALL = 8 << 20
"""Bytes of the directory for temporary files."""


@pytest.fixture
def small_tmpdir(mount_disk: Callable[[int], Path]) -> Path:
    """A directory for temporary files with little room; a file system of its own."""
    return mount_disk(SMALL)


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """An archive of 2 MB with 60 MB of images, more than is unpacked into memory."""
    images = np.zeros((60, 1000, 1000), np.uint8)
    images[:, :, :30] = np.random.default_rng(0).integers(0, 256, (60, 1000, 30), dtype=np.uint8)
    path = tmp_path / "images.npz"
    np.savez_compressed(path, x_train=images, y_train=np.arange(60) % 10)
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo("x_train.npy")
    assert info.file_size > 2 * info.compress_size + (48 << 20), "it is unpacked into a file"
    return path


def read(path: Path, tmpdir: Path) -> subprocess.CompletedProcess[str]:
    """What a process prints that adds up all images."""
    program = """
import sys, numpy as np
from pathlib import Path
from ringlet.data.npz import NpzFile
from ringlet.errors import DataError
try:
    print(int(NpzFile(Path(sys.argv[1])).array("x_train").sum(dtype=np.int64)))
except DataError as error:
    print(error)
"""
    environment = {**os.environ, "TMPDIR": str(tmpdir), "PYTHONPATH": str(Path(ringlet.__file__).parents[1])}
    command = [sys.executable, "-c", program, str(path)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)


def test_too_little_room_is_an_error_that_says_how_much_is_needed(packed: Path, small_tmpdir: Path) -> None:
    done = read(packed, small_tmpdir)
    assert done.returncode == 0, f"ended with {done.returncode}: {done.stderr}"
    assert "60,000,000 bytes are needed" in done.stdout
    assert f"in {small_tmpdir}" in done.stdout
    assert "bytes are free" in done.stdout
    assert "set TMPDIR" in done.stdout
    assert not list(small_tmpdir.iterdir())


def test_with_room_it_is_unpacked(packed: Path, tmp_path: Path) -> None:
    done = read(packed, tmp_path)
    with np.load(packed) as arrays:
        assert done.stdout.strip() == str(int(arrays["x_train"].sum(dtype=np.int64))), done.stderr
