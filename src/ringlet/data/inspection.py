"""A look at a whole data set before training: what there is of what, and what is wrong with it.

Everything is read: every picture is decoded, every sample compared with all others. Samples count as the same if their
files have the same bytes, or, where a sample has no file of its own, if its inputs have.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.data.balance import imbalance
from ringlet.data.bounded import open_header, open_image
from ringlet.data.broken import Broken
from ringlet.data.formats import DATASETS, DatasetFormat
from ringlet.data.images import EXTENSIONS, orientation, upright_size
from ringlet.data.requests import Parts, Request
from ringlet.data.source import Source, Task, files_of, labels_of
from ringlet.data.table_files import ENDINGS
from ringlet.errors import DataError, UsageError

PART_NAMES = ("train", "validation", "test")
_MAX_MASK_VALUES = 16
_BATCH = 256


def _ignore(*_: int) -> None: ...


@dataclass(frozen=True)
class Part:
    """One part of the data."""

    num_samples: int
    class_counts: tuple[int, ...] = ()
    """By class; of masks in how many samples a class occurs; empty where there are no classes."""


@dataclass
class PictureFacts:
    """What the image files have in common and what not."""

    sizes: Counter[str] = field(default_factory=Counter)
    """Width x height of upright pictures."""
    modes: Counter[str] = field(default_factory=Counter)
    formats: Counter[str] = field(default_factory=Counter)
    num_turned: int = 0
    """Pictures whose EXIF orientation turns them."""
    mask_values: Counter[str] = field(default_factory=Counter)
    """The values that masks hold, as stored."""


@dataclass(frozen=True)
class Duplicate:
    """Samples that are the same."""

    samples: tuple[str, ...]
    parts: tuple[str, ...]
    classes: tuple[str, ...]

    @property
    def leaks(self) -> bool:
        """Whether training sees what another part is to test."""
        return "train" in self.parts and len(set(self.parts)) > 1


@dataclass(frozen=True)
class Inspection:
    """All that was found; :meth:`findings` says it in words."""

    name: str
    task: Task
    input_shape: tuple[int, ...]
    class_names: tuple[str, ...]
    parts: dict[str, Part]
    pictures: PictureFacts | None
    broken: tuple[Broken, ...]
    duplicates: tuple[Duplicate, ...]
    not_read: dict[str, int]
    """Files that are no samples, by their endings."""
    remarks: tuple[str, ...]

    def class_name(self, index: int) -> str:
        """The name of a class, or its number; of masks of an object the first is the background."""
        if self.task == "segmentation" and len(self.class_names) == 1:
            return ("background", *self.class_names)[index]
        return self.class_names[index] if index < len(self.class_names) else str(index)

    def findings(self) -> list[str]:
        """What the user should know, the worst first."""
        found = list(self.remarks)
        leaks = [one for one in self.duplicates if one.leaks]
        torn = [one for one in self.duplicates if len(set(one.classes)) > 1]
        if self.broken:
            found.insert(0, f"{len(self.broken):,} files cannot be read, such as {self.broken[0].path}")
        if leaks:
            where = " and ".join(leaks[0].samples[:2])
            found.insert(0, f"{len(leaks):,} samples are in training and in another part, such as {where}")
        if torn:
            where = " and ".join(torn[0].samples[:2])
            found.append(f"{len(torn):,} samples occur with different classes, such as {where}")
        copies = sum(len(one.samples) - 1 for one in self.duplicates)
        if copies:
            found.append(f"{copies:,} samples are exact copies of others")
        return [*found, *self._imbalance(), *self._of_files()]

    def _imbalance(self) -> list[str]:
        counts = self.parts["train"].class_counts
        return imbalance(counts, self.class_names) if self.task == "classification" else []

    def _of_files(self) -> list[str]:
        found = []
        if self.pictures is not None and self.pictures.num_turned:
            found.append(f"{self.pictures.num_turned:,} pictures are turned upright, as their EXIF orientation says")
        if self.not_read:
            listed = ", ".join(f"{count:,} {ending or 'without ending'}" for ending, count in self.not_read.items())
            found.append(f"files that are not read: {listed}")
        return found

    def to_dict(self) -> dict[str, Any]:
        """Plain values, complete."""
        pictures = None
        if self.pictures is not None:
            facts = vars(self.pictures).items()
            pictures = {name: dict(value) if isinstance(value, Counter) else value for name, value in facts}
        return {
            "name": self.name,
            "task": self.task,
            "input_shape": list(self.input_shape),
            "classes": [self.class_name(index) for index in range(len(self.parts["train"].class_counts))],
            "parts": {name: asdict(part) for name, part in self.parts.items()},
            "pictures": pictures,
            "broken": [asdict(one) for one in self.broken],
            "duplicates": [{**asdict(one), "leaks": one.leaks} for one in self.duplicates],
            "not_read": self.not_read,
            "findings": self.findings(),
        }


def format_of(text: str, **options: Any) -> DatasetFormat:
    """The data set that a name, ``KIND:PATH`` or a bare path means."""
    path = Path(text).expanduser()
    kind = text.partition(":")[0]
    if not DATASETS.knows(kind) and path.exists():
        ending = path.suffix.lower()
        kind = "folder" if path.is_dir() else "table" if ending in ENDINGS else "npz"
        given: dict[str, Any] = {"path": str(path)}
    else:
        kind, given = DATASETS.split(text)
    found: DatasetFormat = DATASETS.create(kind, **given, **_known(kind, options))
    return found


def _known(kind: str, options: dict[str, Any]) -> dict[str, Any]:
    """Options that were given; one that this kind of data does not have is an error, but for skip_broken."""
    fields = DATASETS.find(kind).model_fields
    given = {name: value for name, value in options.items() if value is not None}
    if "skip_broken" not in fields:
        given.pop("skip_broken", None)
    if unknown := next((name for name in given if name not in fields), None):
        raise UsageError(f"data of the kind '{kind}' have no option '{unknown}': leave it out")
    return given


def inspect(
    chosen: DatasetFormat, *, num_classes: int | None = None, progress: Callable[[int, int], None] = _ignore
) -> tuple[Inspection, Parts]:
    """Look at all samples of a data set; ``progress`` is told how many of how many. Gives its parts too."""
    size = chosen.image_size
    request = Request(
        chosen.name,
        path=None if chosen.path is None else Path(chosen.path).expanduser(),
        train_path=None if chosen.train_path is None else Path(chosen.train_path).expanduser(),
        test_path=None if chosen.test_path is None else Path(chosen.test_path).expanduser(),
        num_classes=num_classes,
        num_samples=chosen.num_samples,
        image_size=None if size is None else (size[0], size[1]),
        skip_broken=True,
        task=getattr(chosen, "targets", None),
    )
    parts = chosen.load(request)
    sources = {name: source for name in PART_NAMES if (source := getattr(parts, name)) is not None}
    if parts.validation is parts.test:
        sources.pop("test", None)
    look = _Look(parts, progress, sum(map(len, sources.values())))
    reports = {name: look.part(name, source) for name, source in sources.items()}
    train = parts.train
    return Inspection(
        chosen.label,
        train.task,
        train.input_shape,
        parts.class_names,
        reports,
        look.pictures if look.has_files else None,
        parts.broken,
        tuple(look.duplicates()),
        _not_read(request, look),
        tuple(remark for remark in parts.remarks if not remark.startswith("skip_broken:")),
    ), parts


class _Look:
    """Goes through the samples of all parts."""

    def __init__(self, parts: Parts, progress: Callable[[int, int], None], total: int) -> None:
        self._parts, self._progress, self._num_done, self._total = parts, progress, 0, total
        self._seen: dict[bytes, list[tuple[str, str, str]]] = defaultdict(list)
        self.pictures, self.has_files = PictureFacts(), False
        self.files: set[Path] = set()

    def part(self, name: str, source: Source) -> Part:
        """Count the samples of a part and remember what they are."""
        known = labels_of(source)
        counts = np.zeros(max(source.num_classes, 2) if source.task == "segmentation" else source.num_classes, np.int64)
        for start in range(0, len(source), _BATCH):
            indices = np.arange(start, min(start + _BATCH, len(source)))
            by_file = bool(files_of(source, start))
            inputs, targets = (None, None) if by_file and known is not None else source.read(indices)
            for place, index in enumerate(indices.tolist()):
                target = None if targets is None else targets[place]
                classes = _classes_of(source.task, known[index] if known is not None else target)
                counts[classes] += 1
                label = self._label(classes) if source.task == "classification" else ""
                digest = self._file(source, index) if by_file else _digest(inputs[place])  # type: ignore[index]
                sample = str(files_of(source, index)[0]) if by_file else f"{name}[{index}]"
                self._seen[digest].append((sample, name, label))
            self._num_done += len(indices)
            self._progress(self._num_done, self._total)
        has_classes = source.task != "regression"
        return Part(len(source), tuple(counts.tolist()) if has_classes else ())

    def duplicates(self) -> Iterator[Duplicate]:
        """Samples that are the same, the largest groups first."""
        groups = sorted((group for group in self._seen.values() if len(group) > 1), key=len, reverse=True)
        for group in groups:
            samples, parts, classes = zip(*group, strict=True)
            yield Duplicate(samples, parts, classes)

    def _label(self, classes: NDArray[np.int64]) -> str:
        index, names = int(classes[0]), self._parts.class_names
        return names[index] if index < len(names) else str(index)

    def _file(self, source: Source, index: int) -> bytes:
        self.has_files = True
        image, *masks = files_of(source, index)
        self.files.update((image, *masks))
        facts = self.pictures
        with open_header(image) as header:
            width, height = upright_size(header)
            facts.sizes[f"{width}x{height}"] += 1
            facts.modes[header.mode] += 1
            facts.formats[str(header.format)] += 1
            facts.num_turned += orientation(header) != 1
        for mask in masks:
            facts.mask_values[_mask_values(mask)] += 1
        return hashlib.sha256(image.read_bytes()).digest()


def _classes_of(task: Task, target: Any) -> NDArray[np.int64]:
    """Which classes a sample has."""
    if task == "classification":
        return np.array([int(target)])
    if task == "multilabel":
        return np.flatnonzero(target)
    if task == "segmentation":
        return np.unique(target).astype(np.int64)
    return np.empty(0, np.int64)


def _digest(values: NDArray[Any]) -> bytes:
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).digest()


def _mask_values(path: Path) -> str:
    """The values that a mask file holds, as a text."""
    try:
        with open_image(path) as image:
            values = np.unique(np.asarray(image))
            mode = image.mode
    except (DataError, OSError, ValueError):  # a mask that training reads in strips may be too large for one piece
        return "unknown"
    if len(values) > _MAX_MASK_VALUES:
        return f"{mode}: {len(values)} values from {values.min()} to {values.max()}"
    return f"{mode}: {', '.join(str(value) for value in values.astype(np.int64).tolist())}"


def _not_read(request: Request, look: _Look) -> dict[str, int]:
    """Files beneath the data set's folders that are no samples, by their endings."""
    if not look.has_files:
        return {}
    endings: Counter[str] = Counter()
    for base in {folder for folder in request.folders() if folder.is_dir()}:
        for place, folders, files in os.walk(base):
            folders[:] = [name for name in folders if not name.startswith(".")]
            for name in files:
                path = Path(place, name)
                if not name.startswith(".") and path not in look.files and not _is_broken(path, look):
                    endings[path.suffix.lower()] += 1
    return dict(endings.most_common())


def _is_broken(path: Path, look: _Look) -> bool:
    return path.suffix.lower() in EXTENSIONS and any(one.path == str(path) for one in look._parts.broken)
