"""The list of data sets for people: what each is, whether it is built in, can be fetched, and is present."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ringlet import plugins
from ringlet.data.cache import dataset_directory
from ringlet.data.download import is_present
from ringlet.data.remote import REMOTE
from ringlet.errors import UsageError

Origin = Literal["built-in", "downloadable", "your files", "plugin"]


@dataclass(frozen=True)
class CatalogueEntry:
    """One line of the list. ``shape`` and ``num_classes`` are None where the files decide."""

    name: str
    task: str
    shape: tuple[int, ...] | None
    num_classes: int | None
    origin: Origin
    licence: str
    description: str
    present: bool | None = None  # None where it depends on the path given
    path: Path | None = None
    num_bytes: int = 0  # of the download


def catalogue(cache_dir: Path | str | None = None) -> list[CatalogueEntry]:
    """All data sets, built-in ones first."""
    return [
        _built_in("digits", "classification", (1, 8, 8), 10, "CC BY 4.0", "1,437 + 360 handwritten digits"),
        _built_in("shapes", "segmentation", (3, 64, 64), 1, "Apache-2.0", "procedural shapes with masks, any size"),
        _built_in("synthetic", "classification", None, None, "Apache-2.0", "made-up data of any shape"),
        _fetched("mnist", (1, 28, 28), 10, "60,000 + 10,000 handwritten digits", cache_dir),
        _fetched("fashion-mnist", (1, 28, 28), 10, "60,000 + 10,000 articles of clothing", cache_dir),
        _fetched("cifar10", (3, 32, 32), 10, "50,000 + 10,000 small photographs", cache_dir),
        _fetched("cifar100", (3, 32, 32), 100, "50,000 + 10,000 small photographs, fine labels", cache_dir),
        _own("imagenet", "classification", "folders of npz shards with x and y"),
        _own("idx", "classification", "a folder of idx files of the MNIST family"),
        _own("npz", "either", "an npz file with images and labels or masks"),
        _own("folder", "either", "image files: a folder per class, or images with masks"),
        _own("masks", "segmentation", "image files with mask files"),
    ]


def plugin_entries() -> list[CatalogueEntry]:
    """Data sets that installed packages add; one that cannot be loaded says so in its description."""
    return [_plugged(name) for name in plugins.names("datasets")]


def _plugged(name: str) -> CatalogueEntry:
    try:
        words = (plugins.load("datasets", name).__doc__ or "").strip().partition("\n")[0]
    except UsageError as error:
        words = str(error)
    source = plugins.origin("datasets", name)
    return CatalogueEntry(name, "either", None, None, "plugin", f"see {source}", words or f"from {source}")


def _built_in(
    name: str, task: str, shape: tuple[int, ...] | None, num_classes: int | None, licence: str, description: str
) -> CatalogueEntry:
    return CatalogueEntry(name, task, shape, num_classes, "built-in", licence, description, present=True)


def _fetched(
    name: str, shape: tuple[int, ...], num_classes: int, description: str, cache_dir: Path | str | None
) -> CatalogueEntry:
    remote, folder = REMOTE[name], dataset_directory(name, cache_dir)
    return CatalogueEntry(
        name,
        "classification",
        shape,
        num_classes,
        "downloadable",
        remote.licence,
        description,
        present=is_present(remote, folder),
        path=folder,
        num_bytes=remote.num_bytes,
    )


def _own(name: str, task: str, description: str) -> CatalogueEntry:
    return CatalogueEntry(name, task, None, None, "your files", "yours", description)
