"""What the pictures of a folder have in common, from the beginnings of their files: sizes, colours, transparency; and
which of them cannot be read.

The number of channels follows from all of them, and what must be said before training too. Of very many files, and of
files in an object store, some are looked at, evenly spread and always the same ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ringlet.data.bounded import open_header
from ringlet.data.broken import Broken, check_end
from ringlet.data.cache import RemotePath
from ringlet.data.images import has_transparency, is_grey, natural_shape, upright_size
from ringlet.errors import DataError

MAX_FILES = 5000
MAX_REMOTE_FILES = 16
_COLOURS = {1: "grey", 3: "colour", 4: "colour with transparency"}


@dataclass(frozen=True)
class Survey:
    """What was found in ``num_seen`` of ``num_files`` pictures."""

    num_files: int
    num_seen: int
    sizes: Counter[tuple[int, int]]
    """Width and height of the upright pictures."""
    num_grey: int
    num_transparent: int
    broken: tuple[Broken, ...] = ()
    """Files that cannot be read."""

    @property
    def channels(self) -> int:
        """One if all are grey, otherwise three."""
        return 1 if self.num_grey == self.sizes.total() else 3

    def remarks(self, shape: tuple[int, ...], *, size_given: bool) -> list[str]:
        """What becomes of pictures that differ from each other, when all are brought to ``shape``."""
        channels, height, width = shape
        total = self.sizes.total()
        of_seen = "" if self.num_seen == self.num_files else f" of the {self.num_seen:,} that were looked at"
        found = []
        if len(self.sizes) > 1:
            smallest, *_, largest = sorted(self.sizes, key=lambda size: (size[0] * size[1], size))
            chosen = "" if size_given else ", the size of the first one; --image-size chooses another"
            found.append(
                f"{total:,} pictures{of_seen} have {len(self.sizes):,} sizes (from {_times(smallest)} to "
                f"{_times(largest)}, width x height) and are resized to {_times((width, height))}{chosen}"
            )
        if 0 < self.num_grey < total:
            found.append(
                f"{self.num_grey:,} of {total:,} pictures{of_seen} are grey, the others have colours: all are read as "
                f"{_COLOURS[channels]}"
            )
        if self.num_transparent and channels != 4:
            found.append(f"{self.num_transparent:,} of {total:,} pictures{of_seen} have transparency, which is dropped")
        if of_seen:
            found.append(
                f"sizes and colours follow from {self.num_seen:,} of {self.num_files:,} pictures, evenly spread"
            )
        return found


def survey(paths: Sequence[Path], *, all_files: bool = False) -> Survey:
    """Look at the beginnings and ends of the files: of all of them, or of as many as take little time."""
    is_remote = bool(paths) and isinstance(paths[0], RemotePath)
    limit = len(paths) if all_files else MAX_REMOTE_FILES if is_remote else MAX_FILES
    picks = np.unique(np.linspace(0, len(paths) - 1, min(limit, len(paths))).astype(np.int64)).tolist()
    sizes: Counter[tuple[int, int]] = Counter()
    num_grey = num_transparent = 0
    broken = []
    for index in picks:
        try:
            with open_header(paths[index]) as image:
                check_end(paths[index], image.format)
                sizes[upright_size(image)] += 1
                num_grey += is_grey(image)
                num_transparent += has_transparency(image)
        except DataError as error:
            broken.append(Broken.of(paths[index], error))
    return Survey(len(paths), len(picks), sizes, num_grey, num_transparent, tuple(broken))


def common_shape(
    found: Survey, first_path: Path, input_shape: tuple[int, ...] | None, image_size: tuple[int, int] | None
) -> tuple[tuple[int, ...], list[str]]:
    """What all images become, to judge by a survey of them, and remarks about it.

    That is ``input_shape``, else the channels that suit all of them, at ``image_size`` or the size of the first.
    """
    if input_shape is not None and (len(input_shape) != 3 or input_shape[0] not in _COLOURS):
        raise DataError(f"images cannot have shape {input_shape}: expected (1, H, W), (3, H, W) or (4, H, W)")
    if input_shape is None and (image_size is None or not found.sizes):
        _, *first = natural_shape(first_path)  # an error if it cannot be read
        shape: tuple[int, ...] = (found.channels, *(image_size or first))
    else:
        shape = input_shape or (found.channels, *(image_size or ()))
    return shape, found.remarks(shape, size_given=input_shape is not None or image_size is not None)


def _times(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"
