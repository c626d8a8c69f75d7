"""What all tests share: their order, which may be skipped, where the real data sets are, and a local HTTP server."""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import tomllib
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
NUM_THREADS = int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1)
LONG = (
    "keras",
    "tensorflow",
    "examples",
    "parallel",
    "torch",
    "engines",
    "docs",
    "horovod",
    "export",
    "study",
    "tuning",
    "launch",
    "faults",
)
"""Folders whose tests start other programs or load frameworks, so that one of them may take a minute."""
SHORT = ("kernels",)
"""Folders of thousands of tests that take a millisecond each: less than to hand one out."""


def pytest_configure() -> None:
    """Whoever starts tests in the background may ignore Ctrl-C, and all programs that tests start would do so too."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for other in (signal.SIGQUIT, signal.SIGHUP):
        if signal.getsignal(other) is signal.SIG_IGN:
            signal.signal(other, signal.SIG_DFL)


@pytest.hookimpl(tryfirst=True)  # before xdist looks for groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Several test processes end together if the long tests are handed out first and the short ones last."""
    for item in items:
        if _folder(item) in SHORT:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
    items.sort(key=_turn)


class Skips:
    """Skips that continuous integration accepts: ``allowed_skips.toml`` has tests, reasons and why that is no loss."""

    def __init__(self, path: Path) -> None:
        self._rules = tomllib.loads(path.read_text(encoding="utf-8"))["skip"]

    def is_expected(self, node: str, reason: str) -> bool:
        """Whether a rule names this test and this reason."""
        return any(fnmatchcase(node, rule["tests"]) and re.search(rule["reason"], reason) for rule in self._rules)

    def judge(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        """An unexpected skip is a failure: something that continuous integration should have is missing."""
        if not report.skipped or hasattr(report, "wasxfail"):
            return
        reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
        if not self.is_expected(report.nodeid, reason):
            report.outcome = "failed"
            report.longrepr = f"{reason}\nSkips are failures where CI is set, unless tests/allowed_skips.toml has them"


SKIPS = Skips(Path(__file__).with_name("allowed_skips.toml")) if os.environ.get("CI") else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Look at tests that skip themselves, …"""
    report = yield
    if SKIPS is not None:
        SKIPS.judge(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """… and at whole files of them."""
    report = yield
    if SKIPS is not None:
        SKIPS.judge(report)
    return report


def pytest_collection_finish() -> None:
    """Thousands of tests and their modules stay to the end: collections of garbage need not look at them each time."""
    gc.freeze()


def pytest_runtest_teardown() -> None:
    """How many threads the kernels have holds for a process: what a test has chosen must not slow down others."""
    kernels = sys.modules.get("ringlet.kernels.compiled")
    if kernels is not None:
        kernels.set_num_threads(NUM_THREADS)


def _turn(item: pytest.Item) -> int:
    folder = _folder(item)
    if folder in LONG:
        return LONG.index(folder)
    return len(LONG) + SHORT.index(folder) + 1 if folder in SHORT else len(LONG)


def _folder(item: pytest.Item) -> str:
    return item.path.relative_to(REPOSITORY / "tests").parts[0]


def _data_root() -> Path | None:
    candidates = [os.environ.get("RINGLET_TEST_DATA"), REPOSITORY.parent / "shared" / "data"]
    return next((Path(path) for path in candidates if path and Path(path).is_dir()), None)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data sets (mnist, cifar-10-batches-bin, carvana, nuclei); the test is skipped without it."""
    root = _data_root()
    if root is None:
        pytest.skip("needs real data sets: set RINGLET_TEST_DATA to a folder with mnist/, cifar-10-batches-bin/, …")
    return root


@pytest.fixture
def mount_disk() -> Iterator[Callable[[int], Path]]:
    """Makes file systems of so many bytes, in memory; the test is skipped where that is not allowed.

    They are not below the folder of the test: a test process that is killed would leave a folder that none can remove.
    """
    mounted: list[Path] = []

    def mount(num_bytes: int) -> Path:
        path = Path(tempfile.mkdtemp(prefix="ringlet-disk-"))
        command = ["mount", "-t", "tmpfs", "-o", f"size={num_bytes}", "tmpfs", str(path)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        except OSError as error:
            pytest.skip(f"cannot mount a small file system: {error}")
        if done.returncode != 0:
            pytest.skip(f"cannot mount a small file system: {done.stderr.strip()}")
        mounted.append(path)
        return path

    yield mount
    for path in mounted:
        subprocess.run(["umount", "-l", str(path)], timeout=30, check=True)
        path.rmdir()


class Server:
    """A local HTTP server with the habits of good and bad servers."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.ranges: list[str | None] = []
        self.honours_range = True
        self.cut_after: int | None = None
        self.status: int | None = None
        self.after_half: Callable[[], None] = lambda: None
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                owner.answer(self)

            def log_message(self, *arguments: object) -> None: ...

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/sub/"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        wanted = handler.headers.get("Range")
        self.ranges.append(wanted)
        content = self.files.get(handler.path.removeprefix("/sub/"))
        if content is None or self.status is not None:
            handler.send_error(self.status or 404)
            return
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.honours_range else 0
        handler.send_response(206 if start else 200)
        if start:
            handler.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        handler.send_header("Content-Length", str(len(content) - start))
        handler.end_headers()
        body = content[start:][: self.cut_after]
        handler.wfile.write(body[: len(body) // 2])
        self.after_half()
        with suppress(ConnectionError):  # the client may have gone
            handler.wfile.write(body[len(body) // 2 :])

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def bucket() -> Iterator[str]:
    """The address of an empty bucket of an object store in memory."""
    import fsspec

    address = f"memory://{uuid.uuid4().hex}"
    yield address
    with suppress(FileNotFoundError):
        fsspec.filesystem("memory").rm(address, recursive=True)


@pytest.fixture
def http_server() -> Iterator[Server]:
    """A server on a free port of this machine: ``url``, and ``files`` to be served by name."""
    running = Server()
    yield running
    running.close()
