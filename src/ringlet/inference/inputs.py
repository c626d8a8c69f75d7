"""What is to be predicted: image files, folders, npz files, lists of paths; in a fixed order, read when needed."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from ringlet.data import bounded
from ringlet.data.folders import locate
from ringlet.data.images import EXTENSIONS
from ringlet.data.npz import NpzFile, with_channels_first
from ringlet.data.table_files import ENDINGS
from ringlet.data.table_schema import Schema
from ringlet.data.tables import Columns
from ringlet.errors import DataError
from ringlet.inference.predictor import Named

STDIN, LIST_PREFIX = "-", "@"
MASK_ENDING, OVERLAY_ENDING = "_mask", "_overlay"
"""What the names of masks and overlays end in, before their extension."""
_WRITTEN = (MASK_ENDING, OVERLAY_ENDING)


@dataclass(frozen=True)
class Input:
    """One picture: how it is called, what files made from it are called (no extension), and where it is."""

    name: str
    output: str
    path: Path | None = None
    array: NpzImages | TableRows | None = None
    index: int = 0
    problem: str = ""
    """Why there is nothing to predict."""

    def named(self) -> Named:
        """The picture as a predictor takes it."""
        if self.problem:
            return Named(self.name, b"", self.problem)
        if self.array is not None:
            return Named(self.name, self.array.image(self.index))
        return Named(self.name, self.path if self.path is not None else self.name)


@dataclass
class Listing:
    """All pictures in order, and remarks about what was left out."""

    inputs: list[Input] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


class TableRows:
    """The rows of a table as inputs of a network that has learned from one."""

    def __init__(self, path: Path, schema: Schema) -> None:
        self._values = schema.filled(schema.inputs(Columns.of_file(path).values, str(path)))
        self.count = len(self._values)

    def image(self, index: int) -> NDArray[Any]:
        """The inputs of one row."""
        values: NDArray[Any] = self._values[index]
        return values


class NpzImages:
    """The images of an npz file; ``input_shape`` decides which axis is which, as in training."""

    def __init__(self, path: Path, input_shape: tuple[int, ...]) -> None:
        self.path, self._input_shape = path, input_shape
        self._file = NpzFile(path)
        key = self._file.find_inputs()
        if key is None:
            raise DataError(
                f"{path} holds {', '.join(self._file.keys)[:200] or 'no arrays'}: expected images, x, data or inputs, "
                "or a single array"
            )
        self._key = key
        self.count = (self._file.header(key)[1] or (0,))[0]

    @cached_property
    def _values(self) -> NDArray[Any]:
        return with_channels_first(self._file.array(self._key), self._input_shape, f"{self.path}[{self._key}]")

    def image(self, index: int) -> NDArray[Any]:
        """Stored values (C, H, W) of one image, or its features."""
        values: NDArray[Any] = self._values[index]
        return values


def shown(path: Path) -> str:
    """A path as text that every file format takes, whatever bytes its name has."""
    return str(path).encode("utf-8", "backslashreplace").decode("utf-8")


def list_inputs(
    sources: Sequence[str],
    input_shape: tuple[int, ...],
    stdin: Callable[[], Iterable[str]] | None = None,
    table: Schema | None = None,
) -> Listing:
    """Everything that ``sources`` name, in their order; folders recursively, sorted by path.

    ``-`` stands for the lines of ``stdin``, ``@FILE`` for those of a file: one path each. What does not exist is listed
    too, with its problem; if there is nothing else, that is an error. In folders, masks beside their images (and what
    an earlier prediction wrote) are left out. ``table`` says what the rows of a table are to the network.
    """
    listing = Listing()
    for source in _with_lines(sources, stdin):
        _append(listing, source, input_shape, table)
    if all(item.problem for item in listing.inputs):
        first = listing.inputs[0].problem if listing.inputs else "the inputs name no image"
        raise DataError(f"there is nothing to predict: {first}")
    listing.inputs = _with_unique_outputs(listing.inputs)
    return listing


def _with_lines(sources: Sequence[str], stdin: Callable[[], Iterable[str]] | None) -> Iterator[str]:
    for source in sources:
        if source == STDIN and stdin is not None:
            yield from _paths(stdin())
        elif source.startswith(LIST_PREFIX):
            yield from _paths(_lines(Path(source.removeprefix(LIST_PREFIX))))
        else:
            yield source


def _paths(lines: Iterable[str]) -> Iterator[str]:
    return (line.rstrip("\r\n") for line in lines if line.strip())


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise DataError(f"cannot read the list of paths '{path}': {reason}") from None


def _append(listing: Listing, source: str, input_shape: tuple[int, ...], table: Schema | None) -> None:
    path = Path(source)
    try:
        if path.is_dir():
            found, num_left_out = _in_folder(path)
            if num_left_out:
                listing.remarks.append(f"left out {num_left_out:,} masks and overlays in '{source}'")
        elif path.suffix.lower() == ".npz":
            found = _in_arrays(path, NpzImages(path, input_shape))
        elif path.suffix.lower() in ENDINGS and table is not None:
            found = _in_arrays(path, TableRows(path, table))
        else:
            bounded.file_size(path)
            found = [Input(shown(path), path.stem, path)]
    except (DataError, ValueError) as error:  # a ValueError for a zero byte in the path
        found = [Input(shown(path), "image", problem=str(error))]
    listing.inputs += found


def _in_arrays(path: Path, images: NpzImages | TableRows) -> list[Input]:
    digits = len(str(max(images.count - 1, 0)))
    return [
        Input(f"{shown(path)}[{index}]", f"{path.stem}-{index:0{digits}d}", array=images, index=index)
        for index in range(images.count)
    ]


def _in_folder(root: Path) -> tuple[list[Input], int]:
    """The images beneath a folder by path, and how many masks and overlays were left out."""
    found: list[Input] = []
    num_left_out = 0
    for place, folders, files in os.walk(root):
        folder = Path(place)
        images = sorted(name for name in files if Path(name).suffix.lower() in EXTENSIONS and not name.startswith("."))
        located = locate(folder)
        masks = located.masks.name if located.masks != located.images and located.masks.parent == folder else None
        if masks in folders:
            folders.remove(masks)
            num_left_out += sum(len(names) for _, _, names in os.walk(folder / masks))
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        stems = {Path(name).stem for name in images}
        kept = [name for name in images if not _is_written(Path(name).stem, stems)]
        num_left_out += len(images) - len(kept)
        paths = (folder / name for name in kept)
        found += [Input(shown(path), path.relative_to(root).with_suffix("").as_posix(), path) for path in paths]
    if not found:
        raise DataError(f"no images in folder '{shown(root)}': expected files that end in {', '.join(EXTENSIONS)}")
    return sorted(found, key=lambda item: item.name), num_left_out


def _is_written(stem: str, stems: set[str]) -> bool:
    """Whether a name is that of a mask or overlay whose image lies beside it."""
    return any(stem.endswith(ending) and stem.removesuffix(ending) in stems for ending in _WRITTEN)


def _with_unique_outputs(inputs: list[Input]) -> list[Input]:
    """Of pictures whose results would get the same name: with the extension, and if that does not help a number."""
    counts = Counter(item.output for item in inputs)
    taken: set[str] = set()
    result = []
    for item in inputs:
        output = item.output
        if counts[output] > 1 and item.path is not None and item.path.suffix:
            output = f"{output}_{item.path.suffix[1:]}"
        unique, number = output, 1
        while unique in taken:
            number += 1
            unique = f"{output}-{number}"
        taken.add(unique)
        result.append(replace(item, output=unique))
    return result
