"""The texts that the site does not build: links of README and its neighbours, pictures, forgotten places."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ringlet

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TEXTS = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
PLACEHOLDER = re.compile(r"^(?:.* )?[A-Z]{3,}_[A-Z_]{3,}$|@@|\bTODO\b|\bFIXME\b|\bTBD\b", re.MULTILINE)
DRAWN = ("batch-innermost", "database-scoring", "layers", "shard-tree", "shared-weights", "way-of-the-data")


def anchors(text: str) -> set[str]:
    """The names by which headings can be reached, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.+)$", CODE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    dead = []
    for link in LINK.findall(CODE.sub("", path.read_text(encoding="utf-8"))):
        target, _, anchor = link.partition("#")
        if ":" in target:
            continue
        file = path.parent / target if target else path
        known = file.suffix != ".md" or "reference" in file.parts or not file.is_file()
        if not file.exists() or (anchor and not known and anchor not in anchors(file.read_text(encoding="utf-8"))):
            dead.append(link)
    assert dead == []


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_was_left_to_be_filled_in(path: Path) -> None:
    assert PLACEHOLDER.findall(CODE.sub("", path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("script", ["diagrams.py", "update_docs.py"])
def test_tables_and_pictures_are_those_of_the_code(script: str) -> None:
    environment = os.environ | {"PYTHONPATH": str(Path(ringlet.__file__).parents[1])}
    command = [sys.executable, str(ROOT / "scripts" / script), "--check"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("name", DRAWN)
def test_a_picture_is_shown_and_needs_nothing_from_elsewhere(name: str) -> None:
    picture = (DOCS / "diagrams" / f"{name}.svg").read_text(encoding="utf-8")
    assert "prefers-color-scheme: dark" in picture
    assert set(re.findall(r"https?://[^\"' ]+", picture)) == {"http://www.w3.org/2000/svg"}
    assert any(f"diagrams/{name}.svg" in page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md"))
