"""One suite over the storage of this machine and over fsspec's memory file system; what is missing is said."""

from __future__ import annotations

import errno
import sys
from pathlib import Path
from typing import Any

import fsspec
import pytest

from ringlet.errors import UsageError
from ringlet.io import storage as storages
from ringlet.io.storage import Address, Storage, open_location, place_of


@pytest.fixture(params=["this machine", "object store", "file system"])
def storage(request: pytest.FixtureRequest, tmp_path: Path, bucket: str) -> Storage:
    """The last is this machine's again, reached by fsspec."""
    here = tmp_path / "store"
    places = {"this machine": here, "object store": f"{bucket}/store", "file system": f"local://{here}"}
    return open_location(places[request.param])


@pytest.fixture
def put(storage: Storage, tmp_path: Path) -> Any:
    """Store content under a name."""

    def put(name: str, content: bytes) -> None:
        source = tmp_path / "source"
        source.write_bytes(content)
        storage.put(source, name)

    put("kept", b"as it is")
    return put


# -- places -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("runs/a", Path("runs/a")),
        ("/x", Path("/x")),
        ("file:///x/y%20z", Path("/x/y z")),
        ("file://localhost/x", Path("/x")),
        (Path("runs/a"), Path("runs/a")),
        ("s3://bucket/run/", Address("s3://bucket/run")),
        ("GS://bucket", Address("gs://bucket")),
        ("hdfs:///user/me", Address("hdfs:///user/me")),
        (Path("s3://bucket/run"), Address("s3://bucket/run")),
        (Address("s3://a"), Address("s3://a")),
        ("c:/x", Path("c:/x")),
        ("s3:/x", Path("s3:/x")),
        ("notes: a/b", Path("notes: a/b")),
    ],
)
def test_addresses_and_paths_are_told_apart(text: Any, expected: Path | Address) -> None:
    assert place_of(text) == expected


def test_a_folder_that_looks_like_an_address_is_a_folder_if_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s3:/bucket").mkdir(parents=True)
    assert place_of(Path("s3:/bucket")) == Path("s3:/bucket")


def test_files_of_other_hosts_are_refused() -> None:
    with pytest.raises(UsageError, match=r"names a file of host 'server': expected file:///PATH"):
        place_of("file://server/x")


def test_addresses_have_names_and_parents_and_hide_passwords() -> None:
    address = Address("sftp://me:secret@host/a") / "b"
    assert (address.name, address.parent, str(address)) == (
        "b",
        Address("sftp://me:secret@host/a"),
        "sftp://***@host/a/b",
    )


def test_each_kind_of_place_has_its_storage(tmp_path: Path) -> None:
    assert open_location(tmp_path).place == tmp_path
    assert open_location(f"file://{tmp_path}").place == tmp_path
    assert open_location("memory://bucket").place == Address("memory://bucket")


# -- files ------------------------------------------------------------------------------------------------------------
def test_files_come_back(storage: Storage, put: Any, tmp_path: Path) -> None:
    put("a/b.bin", b"abc")
    assert storage.read("a/b.bin", 3) == b"abc"
    storage.fetch("a/b.bin", tmp_path / "back", 3)
    assert (tmp_path / "back").read_bytes() == b"abc"


def test_folders_are_listed_one_by_one(storage: Storage, put: Any) -> None:
    put("a/b.bin", b"abc")
    put("a/deep/c.bin", b"")
    assert {name: info.is_folder for name, info in storage.list().items()} == {"kept": False, "a": True}
    inside = storage.list("a")
    assert {name: (info.num_bytes, info.is_folder) for name, info in inside.items()} == {
        "b.bin": (3, False),
        "deep": (0, True),
    }
    assert inside["b.bin"].tag
    assert inside["b.bin"].time is not None
    assert storage.list("kept") == storage.list("missing") == {}


def test_a_file_is_replaced_and_its_tag_changes(storage: Storage, put: Any) -> None:
    put("a", b"old")
    before = storage.list()["a"].tag
    put("a", b"new")
    assert storage.read("a", 10) == b"new"
    assert storage.list()["a"].tag != before


def test_files_are_copied_and_deleted(storage: Storage, put: Any) -> None:
    storage.copy("kept", "other/copy")
    assert storage.read("other/copy", 100) == b"as it is"
    storage.delete("kept")
    storage.delete("kept")
    storage.delete_folder("other")
    assert sorted(storage.list()) == ["other"]
    storage.delete("other/copy")
    storage.delete_folder("other")
    storage.delete_folder("missing")
    assert storage.list() == {}


def test_files_that_are_not_there_are_an_error(storage: Storage, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        storage.read("missing", 10)
    with pytest.raises(FileNotFoundError):
        storage.fetch("missing", tmp_path / "back", 10)


def test_more_bytes_than_announced_are_refused(storage: Storage, put: Any, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="kept has more than 7 bytes"):
        storage.read("kept", 7)
    for num_bytes, found in ((7, "more"), (9, "8")):
        with pytest.raises(OSError, match=f"kept was listed with {num_bytes} bytes and has {found}"):
            storage.fetch("kept", tmp_path / "back", num_bytes)
    assert not (tmp_path / "back").exists()
    assert not list(tmp_path.glob(".*"))


def test_a_file_on_another_disk_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, rename = tmp_path / "source", Path.replace
    source.write_bytes(b"abc")

    def refuse(path: Path, target: Path) -> Path:
        if path == source:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        return rename(path, target)

    monkeypatch.setattr(Path, "replace", refuse)
    open_location(tmp_path).put(source, "a")
    assert (tmp_path / "a").read_bytes() == b"abc"


# -- what goes wrong --------------------------------------------------------------------------------------------------
def test_what_libraries_raise_becomes_an_error_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoCredentialsError(Exception):
        pass

    def refuse(*_: object, **__: object) -> None:
        raise NoCredentialsError("Unable to locate credentials")

    storage = open_location("memory://bucket")
    monkeypatch.setattr("fsspec.implementations.memory.MemoryFileSystem.ls", refuse)
    with pytest.raises(OSError, match="NoCredentialsError: Unable to locate credentials") as caught:
        storage.list()
    assert caught.value.strerror == "NoCredentialsError: Unable to locate credentials"


def test_without_fsspec_the_command_that_installs_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(
        UsageError, match=r'fsspec\) is not installed. Install it with: pip install "ringlet\[remote\]"'
    ):
        open_location("s3://bucket/run")


@pytest.mark.parametrize(("scheme", "package"), [("s3", "s3fs"), ("gs", "gcsfs"), ("smb", '"fsspec\\[smb\\]"')])
def test_without_the_package_of_a_protocol_its_command_is_told(
    monkeypatch: pytest.MonkeyPatch, scheme: str, package: str
) -> None:
    def missing(_url: str) -> None:
        raise ImportError(f"Install something to access {scheme}")

    monkeypatch.setattr(fsspec.core, "url_to_fs", missing)
    with pytest.raises(UsageError, match=f"'{scheme}://' cannot be used .*pip install {package}$"):
        open_location(f"{scheme}://bucket/run")


def test_unknown_protocols_are_refused() -> None:
    with pytest.raises(UsageError, match=r"'nosuch://bucket' is no place for files .*expected a path, or an address"):
        open_location("nosuch://bucket")


def test_times_of_all_kinds_are_read() -> None:
    assert storages._seconds("2026-01-01T00:00:00+00:00") == 1767225600.0
    assert storages._seconds("yesterday") is None
    assert storages._seconds(None) is None
