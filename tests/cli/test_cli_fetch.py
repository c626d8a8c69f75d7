"""``ringlet datasets fetch`` against a local server: download, resumption, refusals, what is printed, exit codes."""

from __future__ import annotations

import _thread
import hashlib
from pathlib import Path
from typing import Any

import pytest

from ringlet.cli.display import errors_console
from ringlet.cli.progress import DownloadDisplay
from ringlet.data.catalogue import REMOTE, RemoteDataset, RemoteFile
from ringlet.errors import EXIT_INTERRUPTED

CONTENT = bytes(range(256)) * 8000


@pytest.fixture
def trial(http_server: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A server that holds the one file of a published data set 'trial'."""
    http_server.files["trial.bin"] = CONTENT
    file = RemoteFile("trial.bin", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())
    monkeypatch.setitem(REMOTE, "trial", RemoteDataset("trial", (http_server.url,), (file,), "none"))
    return http_server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the data set goes: the cache of these tests."""
    return tmp_path / "cache" / "datasets" / "trial"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_folder_is_the_result_and_piped_progress_is_plain_lines(ringlet, trial, folder):
    outcome = ringlet("datasets", "fetch", "trial")
    assert (outcome.code, outcome.stdout) == (0, f"{folder}\n")
    assert outcome.stderr == "trial.bin: 2.0 of 2.0 MB\n"
    assert (folder / "trial.bin").read_bytes() == CONTENT


def test_mnist_from_a_mirror_is_verified_listed_and_trained_on(ringlet, real_data, http_server):
    http_server.files = {path.name: path.read_bytes() for path in (real_data / "mnist").iterdir()}
    assert ringlet("datasets", "fetch", "mnist", "--base-url", http_server.url).code == 0
    assert "in the cache" in ringlet("datasets").stdout
    options = ("--dataset", "mnist", "--model", "simplecnn", "--num-epochs", "1", "--steps-per-epoch", "1")
    assert ringlet("train", *options, "--no-evaluate").code == 0


def test_a_second_fetch_says_that_all_is_there(ringlet, trial):
    ringlet("datasets", "fetch", "trial")
    outcome = ringlet("datasets", "fetch", "trial")
    assert (outcome.code, outcome.stderr) == (0, "note: trial is already complete in the cache\n")
    assert len(trial.ranges) == 1


def test_another_cache_directory_is_honoured(ringlet, trial):
    outcome = ringlet("datasets", "fetch", "trial", "--cache-dir", "elsewhere")
    assert outcome.stdout == "elsewhere/datasets/trial\n"
    assert names(Path("elsewhere/datasets/trial")) == ["trial.bin"]


def test_an_interrupted_fetch_keeps_what_has_arrived_and_goes_on_there(ringlet, trial, folder):
    trial.after_half = _thread.interrupt_main
    outcome = ringlet("datasets", "fetch", "trial")
    assert outcome.code == EXIT_INTERRUPTED
    assert outcome.stderr.startswith("interrupted: what has arrived is kept")
    part = folder / "trial.bin.part"
    arrived = part.stat().st_size if part.exists() else 0
    assert not (folder / "trial.bin").exists()

    trial.after_half = lambda: None
    assert ringlet("datasets", "fetch", "trial").code == 0
    assert trial.ranges == [None, f"bytes={arrived}-" if arrived else None]
    assert (folder / "trial.bin").read_bytes() == CONTENT


def test_a_broken_transfer_resumes_with_the_next_command(ringlet, trial, folder):
    trial.cut_after = 1000
    outcome = ringlet("datasets", "fetch", "trial")
    assert outcome.code == 1
    assert "ended after 3,000 of 2,048,000 bytes. Run the same command again to resume" in outcome.stderr
    trial.cut_after = None
    assert ringlet("datasets", "fetch", "trial").code == 0
    assert trial.ranges[-1] == "bytes=3000-"


def test_wrong_content_is_refused_with_both_digests_and_never_used(ringlet, trial, folder):
    trial.files["trial.bin"] = bytes(len(CONTENT))
    outcome = ringlet("datasets", "fetch", "trial")
    assert outcome.code == 1
    assert outcome.stdout == ""
    error = next(line for line in outcome.stderr.splitlines() if line.startswith("error: "))
    assert error.startswith("error: could not fetch trial.bin")
    assert hashlib.sha256(CONTENT).hexdigest() in error
    assert hashlib.sha256(bytes(len(CONTENT))).hexdigest() in error
    assert names(folder) == []


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("mnits",), 2, "unknown downloadable data set 'mnits'. Did you mean 'mnist'?"),
        (("trial", "--base-url", "file:///etc"), 2, "expected an address that starts with http:// or https://"),
        (("trial", "--base-url", "http://127.0.0.1:1/"), 1, "Connection refused"),
        (("trial", "--cache-dir", "/dev/null/x"), 1, "Set RINGLET_CACHE to a writable folder"),
    ],
)
def test_what_cannot_be_fetched_is_one_clear_message(ringlet, trial, arguments, code, message):
    outcome = ringlet("datasets", "fetch", *arguments)
    assert outcome.code == code
    assert outcome.stderr.startswith("error: ")
    assert message in outcome.stderr


def test_a_long_piped_download_says_every_few_seconds_how_far_it_is(capsys):
    times = iter(range(100))
    with DownloadDisplay(errors_console(), clock=lambda: next(times)) as progress:
        for done in range(1, 21):
            progress("big.bin", done * 1_000_000, 20_000_000)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "big.bin: 5.0 of 20.0 MB"
    assert lines[-1] == "big.bin: 20.0 of 20.0 MB"
    assert 4 <= len(lines) <= 6
