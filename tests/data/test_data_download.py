import hashlib
import io
import tarfile
from pathlib import Path
from typing import Any

import pytest

from ringlet.data import load_dataset
from ringlet.data.cache import cache_directory
from ringlet.data.catalogue import REMOTE, RemoteDataset, RemoteFile, catalogue
from ringlet.data.download import extract_tar, fetch, fetch_remote
from ringlet.errors import DataError, UnknownNameError, UsageError

CONTENT = bytes(range(256)) * 4000


@pytest.fixture
def server(http_server: Any) -> Any:
    http_server.files["data.bin"] = CONTENT
    return http_server


def described(
    content: bytes = CONTENT, name: str = "data.bin", members: tuple[tuple[str, int], ...] = ()
) -> RemoteDataset:
    file = RemoteFile(name, len(content), hashlib.sha256(content).hexdigest(), members)
    return RemoteDataset("trial", ("http://127.0.0.1:1/",), (file,), "none")


def test_a_file_arrives_whole_with_progress(server: Any, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    folder = fetch_remote(described(), tmp_path / "new", base_url=server.url, progress=lambda *step: seen.append(step))
    assert (folder / "data.bin").read_bytes() == CONTENT
    assert [path.name for path in folder.iterdir()] == ["data.bin"]
    assert seen[-1] == ("data.bin", len(CONTENT), len(CONTENT))
    assert described().is_present(folder)


def test_what_is_there_and_intact_is_not_fetched_again(server: Any, tmp_path: Path) -> None:
    fetch_remote(described(), tmp_path, base_url=server.url)
    fetch_remote(described(), tmp_path, base_url=server.url)
    assert len(server.ranges) == 1


def test_a_damaged_file_of_the_right_size_is_fetched_again(server: Any, tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(bytes(len(CONTENT)))
    fetch_remote(described(), tmp_path, base_url=server.url)
    assert (tmp_path / "data.bin").read_bytes() == CONTENT


def test_an_interrupted_transfer_resumes_where_it_ended(server: Any, tmp_path: Path) -> None:
    (tmp_path / "data.bin.part").write_bytes(CONTENT[:1000])
    fetch_remote(described(), tmp_path, base_url=server.url)
    assert server.ranges == ["bytes=1000-"]
    assert (tmp_path / "data.bin").read_bytes() == CONTENT


def test_a_server_that_ignores_ranges_restarts_the_file(server: Any, tmp_path: Path) -> None:
    server.honours_range = False
    (tmp_path / "data.bin.part").write_bytes(CONTENT[:1000])
    fetch_remote(described(), tmp_path, base_url=server.url)
    assert (tmp_path / "data.bin").read_bytes() == CONTENT


def test_a_part_of_something_else_is_replaced(server: Any, tmp_path: Path) -> None:
    (tmp_path / "data.bin.part").write_bytes(b"x" * 1000)
    fetch_remote(described(), tmp_path, base_url=server.url)
    assert server.ranges == ["bytes=1000-", None]
    assert (tmp_path / "data.bin").read_bytes() == CONTENT


def test_a_part_that_is_too_long_is_dropped(server: Any, tmp_path: Path) -> None:
    (tmp_path / "data.bin.part").write_bytes(CONTENT + b"more")
    fetch_remote(described(), tmp_path, base_url=server.url)
    assert (tmp_path / "data.bin").read_bytes() == CONTENT


def test_a_body_that_ends_early_is_continued(server: Any, tmp_path: Path) -> None:
    server.cut_after = 600_000
    fetch_remote(described(), tmp_path, base_url=server.url)
    assert server.ranges == [None, "bytes=600000-"]
    assert (tmp_path / "data.bin").read_bytes() == CONTENT


def test_a_body_that_always_ends_early_keeps_the_part_for_later(server: Any, tmp_path: Path) -> None:
    server.cut_after = 1000
    with pytest.raises(DataError, match=r"3,000 of 1,024,000 bytes.*again to resume"):
        fetch_remote(described(), tmp_path, base_url=server.url)
    assert not (tmp_path / "data.bin").exists()
    server.cut_after = None
    fetch_remote(described(), tmp_path, base_url=server.url)
    assert server.ranges[-1] == "bytes=3000-"


def test_wrong_content_is_never_renamed(server: Any, tmp_path: Path) -> None:
    server.files["data.bin"] = b"y" * len(CONTENT)
    with pytest.raises(DataError, match=r"wrong content: SHA-256 [0-9a-f]{64}, expected"):
        fetch_remote(described(), tmp_path, base_url=server.url)
    assert list(tmp_path.iterdir()) == []
    assert len(server.ranges) == 1


def test_a_body_longer_than_expected_is_cut_off(server: Any, tmp_path: Path) -> None:
    server.files["data.bin"] = CONTENT * 3
    with pytest.raises(DataError, match="more than the expected 1,024,000 bytes"):
        fetch_remote(described(), tmp_path, base_url=server.url)
    assert not (tmp_path / "data.bin").exists()


@pytest.mark.parametrize("status", [404, 403, 416, 500])
def test_a_refusal_is_reported_with_its_status(status: int, server: Any, tmp_path: Path) -> None:
    server.status = status
    with pytest.raises(DataError, match=f"HTTP {status}"):
        fetch_remote(described(), tmp_path, base_url=server.url)


def test_an_unreachable_server_is_reported(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"could not fetch data\.bin.*refused"):
        fetch_remote(described(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_next_address_is_tried_when_the_first_fails(server: Any, tmp_path: Path) -> None:
    first = described()
    both = RemoteDataset("trial", ("http://127.0.0.1:1/", server.url), first.files, "none")
    fetch_remote(both, tmp_path)
    assert (tmp_path / "data.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("address", ["file:///etc/", "ftp://host/", "/etc/", "gopher://x/"])
def test_only_web_addresses_are_fetched(address: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="http"):
        fetch_remote(described(), tmp_path, base_url=address)


def test_an_unknown_data_set_suggests_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="mnist"):
        fetch("mnits", cache_dir=tmp_path)


def test_a_folder_that_cannot_be_made_is_reported(server: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="RINGLET_CACHE"):
        fetch_remote(described(), tmp_path / "file" / "sub", base_url=server.url)


def tar_bytes(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for info, content in members:
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def entry(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def test_an_archive_is_unpacked_and_removed(server: Any, tmp_path: Path) -> None:
    packed = tar_bytes((entry("folder/a.bin"), b"abc"), (entry("folder/b.bin"), b"defg"))
    server.files["pack.tar.gz"] = packed
    remote = described(packed, "pack.tar.gz", (("folder/a.bin", 3), ("folder/b.bin", 4)))
    for _ in range(2):
        fetch_remote(remote, tmp_path, base_url=server.url)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a.bin", "b.bin", "folder"]
    assert len(server.ranges) == 1
    assert remote.is_present(tmp_path)


@pytest.mark.parametrize(
    "bad",
    [
        entry("../outside"),
        entry("a/../../outside"),
        entry("/absolute"),
        entry("link", tarfile.SYMTYPE, "/etc/passwd"),
        entry("hard", tarfile.LNKTYPE, "good.bin"),
        entry("pipe", tarfile.FIFOTYPE),
        entry("device", tarfile.CHRTYPE),
    ],
    ids=lambda info: info.name,
)
def test_an_archive_with_a_hostile_member_leaves_nothing_behind(bad: tarfile.TarInfo, tmp_path: Path) -> None:
    archive = tmp_path / "x.tar.gz"
    archive.write_bytes(tar_bytes((entry("good.bin"), b"abc"), (bad, b"")))
    with pytest.raises(DataError, match="refused"):
        extract_tar(archive, tmp_path / "target" / "inner", 1000)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["inner", "target", "x.tar.gz"]


def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "x.tar.gz"
    archive.write_bytes(tar_bytes((entry("bomb"), bytes(10_000_000))))
    with pytest.raises(DataError, match="more than 1,000,000 bytes"):
        extract_tar(archive, tmp_path / "target", 1_000_000)
    assert list((tmp_path / "target").iterdir()) == []


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "x.tar.gz"
    archive.write_bytes(tar_bytes((entry("a"), bytes(5000)))[:-20])
    with pytest.raises(DataError, match="cannot unpack"):
        extract_tar(archive, tmp_path / "target", 1_000_000)


def test_the_pins_fit_the_real_files(real_data: Path) -> None:
    for file in REMOTE["mnist"].files:
        content = (real_data / "mnist" / file.name).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (file.size, file.sha256)
    sizes = dict(REMOTE["cifar10"].files[0].members)
    assert (
        sizes["cifar-10-batches-bin/test_batch.bin"]
        == (real_data / "cifar-10-batches-bin/test_batch.bin").stat().st_size
    )


def test_fetched_mnist_is_loaded_by_name_alone(
    real_data: Path, server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RINGLET_CACHE", str(tmp_path))
    server.files = {path.name: path.read_bytes() for path in (real_data / "mnist").iterdir()}
    folder = fetch("mnist", base_url=server.url)
    assert folder == tmp_path / "datasets" / "mnist"
    assert len(load_dataset("mnist").train) == 60_000
    assert next(entry.present for entry in catalogue() if entry.name == "mnist")


def test_the_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("RINGLET_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_directory() == tmp_path / ".cache" / "ringlet"
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_directory() == Path("/xdg/ringlet")
    monkeypatch.setenv("RINGLET_CACHE", "/own")
    assert cache_directory() == Path("/own")
