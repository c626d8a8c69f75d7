"""The data sets that are known by name: what each is, whether it is present, and where published ones come from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ringlet import plugins
from ringlet.data.cache import dataset_directory
from ringlet.data.formats import DATASETS, DatasetFormat, Origin
from ringlet.errors import UsageError


@dataclass(frozen=True)
class RemoteFile:
    """One file of a publisher; ``members`` are what an archive unpacks to: (path, size)."""

    name: str
    size: int
    sha256: str
    members: tuple[tuple[str, int], ...] = ()

    def is_present(self, folder: Path) -> bool:
        """Whether it, or what it unpacks to, is there with its size."""
        wanted = self.members or ((self.name, self.size),)
        return all((folder / path).is_file() and (folder / path).stat().st_size == size for path, size in wanted)


@dataclass(frozen=True)
class RemoteDataset:
    """A data set as published; the base addresses are tried in order."""

    name: str
    base_urls: tuple[str, ...]
    files: tuple[RemoteFile, ...]
    licence: str

    @property
    def num_bytes(self) -> int:
        """What is transferred in total."""
        return sum(file.size for file in self.files)

    def is_present(self, folder: Path) -> bool:
        """Whether all files are there with their sizes."""
        return all(file.is_present(folder) for file in self.files)


# -- what can be fetched, with the SHA-256 that each file must have ---------------------------------------------------
_IDX_FILES = tuple(f"{part}-{kind}-ubyte.gz" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1"))
_CIFAR10_MEMBERS = (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin")


def _idx_files(*facts: tuple[int, str]) -> tuple[RemoteFile, ...]:
    return tuple(RemoteFile(name, *found) for name, found in zip(_IDX_FILES, facts, strict=True))


REMOTE: dict[str, RemoteDataset] = {
    dataset.name: dataset
    for dataset in (
        RemoteDataset(
            "mnist",
            ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
            _idx_files(
                (9_912_422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
                (28_881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
                (1_648_877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
                (4_542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
            ),
            "CC BY-SA 3.0",
        ),
        RemoteDataset(
            "fashion-mnist",
            ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
            _idx_files(
                (26_421_880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
                (29_515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
                (4_422_102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
                (5_148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
            ),
            "MIT",
        ),
        RemoteDataset(
            "cifar10",
            ("https://www.cs.toronto.edu/~kriz/",),
            (
                RemoteFile(
                    "cifar-10-binary.tar.gz",
                    170_052_171,
                    "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
                    tuple((f"cifar-10-batches-bin/{name}", 30_730_000) for name in _CIFAR10_MEMBERS),
                ),
            ),
            "none stated by its publisher",
        ),
        RemoteDataset(
            "cifar100",
            ("https://www.cs.toronto.edu/~kriz/",),
            (
                RemoteFile(
                    "cifar-100-binary.tar.gz",
                    168_513_733,
                    "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
                    (("cifar-100-binary/train.bin", 153_700_000), ("cifar-100-binary/test.bin", 30_740_000)),
                ),
            ),
            "none stated by its publisher",
        ),
    )
}


# -- the list for people ----------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class CatalogueEntry:
    """One line of the list of data sets. ``shape`` and ``num_classes`` are None where the files decide."""

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
    """All data sets of Ringlet: what each is, and whether it is present."""
    return [_entry(found, cache_dir) for found in DATASETS.entries() if found.origin != "plugin"]


def plugin_entries() -> list[CatalogueEntry]:
    """Data sets that installed packages add; one that cannot be loaded says so in its description."""
    return [_plugged(name) for name in plugins.names("datasets")]


def _entry(found: type[DatasetFormat], cache_dir: Path | str | None) -> CatalogueEntry:
    about = (found.name, found.task, found.shape, found.num_classes, found.origin)
    if found.origin != "downloadable":
        return CatalogueEntry(*about, found.licence, found.summary(), True if found.origin == "built-in" else None)
    remote, folder = REMOTE[found.name], dataset_directory(found.name, cache_dir)
    present = remote.is_present(folder)
    return CatalogueEntry(*about, remote.licence, found.summary(), present, folder, remote.num_bytes)


def _plugged(name: str) -> CatalogueEntry:
    source = plugins.origin("datasets", name)
    try:
        found = DATASETS.find(name)
    except UsageError as error:
        return CatalogueEntry(name, "either", None, None, "plugin", f"see {source}", str(error))
    return CatalogueEntry(name, found.task, found.shape, found.num_classes, "plugin", f"see {source}", found.summary())
