"""Promise: a hostile or damaged file gives DataError only, and memory stays below twice its size plus 64 MiB."""

import gzip
import io
import os
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ringlet.data import bounded, load_dataset
from ringlet.data.binary_files import CifarFile, load_idx_pair, read_idx
from ringlet.data.images import read_image, read_mask
from ringlet.data.npz import NpzFile
from ringlet.errors import DataError

MEBIBYTE = 1 << 20
many = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def refuse(path: Path, read: Callable[[Path], object], match: str | None = None) -> None:
    """Reading raises DataError and allocates no more than promised."""
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=match):
            read(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= 2 * path.stat().st_size + 64 * MEBIBYTE


def read_npz(path: Path) -> None:
    file = NpzFile(path)
    for key in file.keys:
        file.array(key)


def npy_bytes(shape: str, descr: str = "<f8", data: bytes = b"") -> bytes:
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


def write_npz(path: Path, content: bytes, compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("x.npy", content)
    return path


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dimensions", [(2**31,) * 4, (2**32 - 1,), (60_000, 28, 28), (2**20, 2**20), (1,) * 8])
def test_idx_dimensions_beyond_the_file_are_refused(dimensions: tuple[int, ...], packed: bool, tmp_path: Path) -> None:
    content = bytes([0, 0, 8, len(dimensions)]) + struct.pack(f">{len(dimensions)}I", *dimensions)
    path = tmp_path / "x"
    path.write_bytes(gzip.compress(content) if packed else content)
    refuse(path, read_idx)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0",
        b"\0\0\x08",
        b"\0\0\x08\x03\0\0",
        b"\0\0\x77\x01\0\0\0\0",
        b"PK\3\4abcd",
        b"\0\0\x08\0",
        b"\0\0\x08\xff" + b"\1" * 2000,
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_idx_headers_that_are_none_are_refused(content: bytes, packed: bool, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(gzip.compress(content) if packed else content)
    refuse(path, read_idx)


def test_a_truncated_idx_file_says_expected_and_actual_bytes(tmp_path: Path, make_idx) -> None:
    path = tmp_path / "x"
    path.write_bytes(make_idx(np.zeros((4, 5), np.uint8))[:-1])
    refuse(path, read_idx, match="announces 32 bytes, but the file has 31")


def test_a_truncated_gzip_file_is_refused(tmp_path: Path, make_idx) -> None:
    path = tmp_path / "x"
    path.write_bytes(gzip.compress(make_idx(np.arange(200, dtype=np.uint8)))[:-30])
    refuse(path, read_idx)


def test_a_gzip_bomb_behind_a_small_header_is_not_unpacked(tmp_path: Path, make_idx) -> None:
    path = tmp_path / "x"
    path.write_bytes(gzip.compress(make_idx(np.zeros(10, np.uint8)) + bytes(300 * MEBIBYTE), compresslevel=1))
    refuse(path, read_idx, match="more content than its header announces")


def test_a_gzip_bomb_with_a_true_header_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x"
    count = 300 * MEBIBYTE
    path.write_bytes(gzip.compress(bytes([0, 0, 8, 1]) + struct.pack(">I", count) + bytes(count), compresslevel=1))
    refuse(path, read_idx, match="store it uncompressed")


def test_honest_content_beyond_the_allowance_goes_to_a_mapped_file(
    tmp_path: Path, make_idx, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded, "IN_MEMORY_ALLOWANCE", 1000)
    values = np.tile(np.random.default_rng(0).integers(0, 256, 5000, dtype=np.uint8), 8)
    path = tmp_path / "x"
    path.write_bytes(gzip.compress(make_idx(values)))
    array = read_idx(path)
    np.testing.assert_array_equal(array, values)
    assert not array.flags.owndata


def test_an_npz_that_declares_eight_tebibytes_is_refused(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "x.npz", npy_bytes("(1099511627776,)"))
    assert path.stat().st_size < 400
    refuse(path, read_npz, match="8,796,093,022,2")


def test_an_npz_whose_directory_lies_about_the_size_is_refused(tmp_path: Path) -> None:
    declared = 8 << 30
    content = npy_bytes(f"({declared // 8},)")
    path = write_npz(tmp_path / "x.npz", content, zipfile.ZIP_DEFLATED)
    raw = path.read_bytes()
    entry = raw.rfind(b"PK\x01\x02")
    true_size = struct.pack("<I", len(content))
    lie = struct.pack("<I", (declared + len(content)) & 0xFFFFFFFF)
    assert raw[entry + 24 : entry + 28] == true_size
    path.write_bytes(raw[: entry + 24] + lie + raw[entry + 28 :])
    refuse(path, read_npz)


def test_a_zip_bomb_is_refused(tmp_path: Path) -> None:
    content = npy_bytes(f"({300 * MEBIBYTE},)", "|u1", bytes(300 * MEBIBYTE))
    path = write_npz(tmp_path / "x.npz", content, zipfile.ZIP_DEFLATED)
    del content
    refuse(path, read_npz, match="store it uncompressed")


def test_an_archive_of_countless_members_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(20_000):
            archive.writestr(zipfile.ZipInfo(f"{number}.npy"), b"")
    refuse(path, read_npz, match="table of contents")


@pytest.mark.parametrize("descr", ["|O", "O", "<M8", "|V8", "|S10", "<U4", "<c8", "|O8", "i4,i4", "<f16", ""])
def test_types_other_than_numbers_are_refused(descr: str, tmp_path: Path) -> None:
    refuse(write_npz(tmp_path / "x.npz", npy_bytes("(1,)", descr, bytes(8))), read_npz, match="expected numbers")


def test_an_array_of_python_objects_is_refused_unopened(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.array([{}], dtype=object), y=np.zeros(1, int))
    refuse(tmp_path / "x.npz", lambda path: load_dataset("npz", path=path), match="can run code")


@pytest.mark.parametrize(
    "shape",
    [
        "(-1,)",
        "(1e3,)",
        "(nan,)",
        "5",
        "((1,),)",
        "(" + "1, " * 40 + ")",
        "(9" + "9" * 30 + ",)",
        "(2, 0x10)",
        "(" * 5000,
        "(" + "1" * 500 + "x)",
    ],
)
def test_malformed_shapes_are_refused(shape: str, tmp_path: Path) -> None:
    refuse(write_npz(tmp_path / "x.npz", npy_bytes(shape)), read_npz)


def test_an_encrypted_or_unusually_packed_member_is_refused(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "x.npz", npy_bytes("(1,)", data=bytes(8)), zipfile.ZIP_BZIP2)
    refuse(path, read_npz, match="unusual compression")


def test_a_pipe_or_folder_or_missing_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, tmp_path / "missing", Path("a\0b")):
        for read in (read_idx, NpzFile, CifarFile):
            with pytest.raises(DataError):
                read(path)


def test_an_image_of_implausible_size_is_refused_before_decoding(tmp_path: Path) -> None:
    import zlib

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 9000, 9000, 8, 2, 0, 0, 0)
    path = tmp_path / "x.png"
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    )
    refuse(path, lambda p: read_image(p, (3, 8, 8)), match="implausible")


def mutate(content: bytes, data: st.DataObject) -> bytes:
    """Flip bytes, cut or insert, mostly near the beginning or the end, where the structure is."""
    changed = bytearray(content)
    for _ in range(data.draw(st.integers(1, 4))):
        if not changed:
            break
        place = data.draw(st.integers(0, min(120, len(changed) - 1)))
        place = len(changed) - 1 - place if data.draw(st.booleans()) else place
        kind = data.draw(st.sampled_from(["set", "cut", "insert", "end"]))
        if kind == "set":
            changed[place] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
        elif kind == "cut":
            del changed[place : place + data.draw(st.integers(1, 8))]
        elif kind == "insert":
            changed[place:place] = data.draw(st.binary(min_size=1, max_size=8))
        else:
            del changed[place:]
    return bytes(changed)


def survives(path: Path, content: bytes, read: Callable[[Path], object]) -> None:
    """Either the content is still readable, or DataError says why not."""
    path.write_bytes(content)
    tracemalloc.start()
    try:
        read(path)
    except DataError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak <= 2 * len(content) + 64 * MEBIBYTE


def test_a_chunk_length_of_two_gibibytes_is_not_believed(tmp_path: Path, save_image) -> None:
    path = tmp_path / "x.png"
    save_image(path, np.zeros((12, 12), np.uint8))
    content = bytearray(path.read_bytes())
    content[content.index(b"IDAT") - 4] = 0x7F
    survives(path, bytes(content), lambda p: read_mask(p, (9, 9)))


@pytest.mark.parametrize("packed", [False, True])
@many
@given(data=st.data())
def test_mutated_idx_files_raise_nothing_else(packed: bool, data: st.DataObject, tmp_path: Path, make_idx) -> None:
    content = make_idx(np.arange(60, dtype=np.uint8).reshape(3, 4, 5))
    labels = tmp_path / "labels"
    labels.write_bytes(make_idx(np.zeros(3, np.uint8)))
    mutated = mutate(gzip.compress(content, mtime=0) if packed else content, data)
    survives(tmp_path / "x", mutated, lambda path: load_idx_pair(path, labels, 10).read(np.arange(3)))


@many
@given(data=st.data())
def test_mutated_cifar_files_raise_nothing_else(data: st.DataObject, tmp_path: Path) -> None:
    content = bytes([3] + [7] * 3072) * 2
    survives(tmp_path / "x", mutate(content, data), lambda path: CifarFile(path).read(np.array([0])))


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@settings(parent=many, max_examples=300)
@given(data=st.data())
def test_mutated_npz_files_raise_nothing_else(save, data: st.DataObject, tmp_path: Path) -> None:
    buffer = io.BytesIO()
    save(buffer, x=np.arange(60, dtype=np.uint8).reshape(3, 4, 5), y=np.arange(3))

    def read(path: Path) -> None:
        dataset = load_dataset("npz", path=path)
        dataset.train.read(np.arange(len(dataset.train)))

    survives(tmp_path / "x.npz", mutate(buffer.getvalue(), data), read)


@pytest.mark.parametrize("extension", ["png", "jpg", "gif"])
@settings(parent=many, max_examples=80)
@given(data=st.data())
def test_mutated_images_raise_nothing_else(extension: str, data: st.DataObject, tmp_path: Path, save_image) -> None:
    original = tmp_path / f"original.{extension}"
    if not original.exists():
        save_image(original, np.arange(144, dtype=np.uint8).reshape(12, 12))
    mutated = mutate(original.read_bytes(), data)
    survives(tmp_path / f"x.{extension}", mutated, lambda path: read_image(path, (3, 8, 8)))
    survives(tmp_path / f"x.{extension}", mutated, lambda path: read_mask(path, (8, 8)))
