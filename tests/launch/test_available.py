"""How much memory can be had: of the machine, of control groups of both versions, of the groups around them."""

from __future__ import annotations

from pathlib import Path

from ringlet.launch.resources import available_bytes, total_bytes

MACHINE = "MemTotal:       16000 kB\nMemFree:         1000 kB\nMemAvailable:    8000 kB\n"


def places(folder: Path, groups: str, files: dict[str, str]) -> tuple[Path, Path, Path]:
    (folder / "groups").write_text(groups)
    (folder / "meminfo").write_text(MACHINE)
    for name, text in files.items():
        path = folder / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "root", folder / "groups", folder / "meminfo"


def test_without_control_groups_the_machine_counts(tmp_path: Path) -> None:
    assert available_bytes(*places(tmp_path, "", {})) == 8000 << 10
    assert available_bytes(*places(tmp_path, "0::/a\n", {"a/memory.max": "max\n", "a/memory.current": "5\n"})) == (
        8000 << 10
    )


def test_nothing_is_known_without_files(tmp_path: Path) -> None:
    assert available_bytes(tmp_path / "no", tmp_path / "no", tmp_path / "no") is None
    assert total_bytes(tmp_path / "no", tmp_path / "no") == total_bytes(tmp_path / "other", tmp_path / "no")


def test_a_group_of_version_2_limits_what_is_left(tmp_path: Path) -> None:
    files = {
        "a/b/memory.max": f"{4 << 20}\n",
        "a/b/memory.current": f"{3 << 20}\n",
        "a/b/memory.stat": f"anon 7\ninactive_file {1 << 20}\n",
    }
    found = places(tmp_path, "0::/a/b\n", files)
    assert available_bytes(*found) == 2 << 20
    assert total_bytes(*found[:2]) == 4 << 20


def test_the_tightest_of_the_groups_around_a_process_counts(tmp_path: Path) -> None:
    files = {"a/memory.max": f"{2 << 20}\n", "a/memory.current": f"{1 << 20}\n"}
    files |= {"a/b/memory.max": "max\n", "a/b/memory.current": "1\n"}
    assert available_bytes(*places(tmp_path, "0::/a/b\n", files)) == 1 << 20


def test_a_group_of_version_1_whose_path_is_that_of_the_host_is_the_root_of_the_container(tmp_path: Path) -> None:
    files = {
        "memory/memory.limit_in_bytes": f"{6 << 20}\n",
        "memory/memory.usage_in_bytes": f"{5 << 20}\n",
        "memory/memory.stat": f"inactive_file 1\ntotal_inactive_file {2 << 20}\n",
    }
    found = places(tmp_path, "4:memory:/docker/0a1b\n0::/\n", files)
    assert available_bytes(*found) == 3 << 20
    assert total_bytes(*found[:2]) == 6 << 20


def test_a_group_that_is_over_its_limit_has_nothing_left(tmp_path: Path) -> None:
    files = {"memory.max": "100\n", "memory.current": "300\n"}
    assert available_bytes(*places(tmp_path, "0::/\n", files)) == 0
