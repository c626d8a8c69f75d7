"""Logs, a served page and a browser; see ``watched`` and ``browser``."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import browser as browsers


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browsers.Browser]:
    """Headless Chromium; tests that need it are skipped where it is not installed."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("needs Chromium: on Debian, apt install chromium")
    running = browsers.Browser(program, tmp_path_factory.mktemp("profile"))
    yield running
    running.close()
