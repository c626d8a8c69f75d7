"""Every public name is in the reference and says what it is; read from the sources, without importing a framework."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

griffe = pytest.importorskip("griffe")

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
PACKAGES = {
    "ringlet": "ringlet.md",
    "ringlet.torch": "torch.md",
    "ringlet.torch.elastic": "torch.md",
    "ringlet.keras": "keras.md",
    "ringlet.keras.callbacks": "keras.md",
    "ringlet.keras.elastic": "keras.md",
    "ringlet.tensorflow": "tensorflow.md",
    "ringlet.tensorflow.elastic": "tensorflow.md",
    "ringlet.database": "database.md",
    "ringlet.elastic": "elastic.md",
    "ringlet.evaluation": "evaluation.md",
    "ringlet.trackers": "trackers.md",
}


@cache
def package() -> griffe.Module:
    """Ringlet as its sources describe it."""
    loader = griffe.GriffeLoader(search_paths=[str(ROOT / "src")], allow_inspection=False)
    found = loader.load("ringlet")
    loader.resolve_aliases(implicit=True, external=False)
    return found


def public_names(name: str) -> list[str]:
    """What ``__all__`` of a module holds."""
    module = package() if name == "ringlet" else package()[name.removeprefix("ringlet.")]
    assert module.exports, f"{name} has no __all__"
    return sorted(str(entry) for entry in module.exports)


@pytest.mark.parametrize("name", PACKAGES)
def test_the_reference_has_every_public_name_once(name: str) -> None:
    page = (REFERENCE / PACKAGES[name]).read_text(encoding="utf-8")
    listed = [entry for entry in re.findall(r"^::: (\S+)$", page, re.MULTILINE) if entry.rpartition(".")[0] == name]
    assert sorted(listed) == [f"{name}.{entry}" for entry in public_names(name)]


@pytest.mark.parametrize("name", PACKAGES)
def test_every_public_name_has_a_docstring(name: str) -> None:
    module = package() if name == "ringlet" else package()[name.removeprefix("ringlet.")]
    bare = []
    for entry in public_names(name):
        found = module.members[entry]
        target = found.final_target if found.is_alias else found
        members = target.members.items() if target.is_class else ()
        methods = [key for key, member in members if not key.startswith("_") and member.is_function]
        bare += [entry] if not target.docstring else []
        bare += [f"{entry}.{key}" for key in methods if not target.members[key].docstring]
    assert bare == []
