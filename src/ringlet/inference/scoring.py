"""Predicting many pictures: one plain record each, for segmentation its files, and tables of records."""

from __future__ import annotations

import csv
import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ringlet.data.images import STRIP_PIXELS, decode_image
from ringlet.data.palette import COLOURS, painted
from ringlet.errors import DataError, UsageError
from ringlet.inference.inputs import MASK_ENDING, OVERLAY_ENDING, Input, shown
from ringlet.inference.predictor import Named, Prediction, Predictor
from ringlet.io.disk import replacing
from ringlet.libraries import require

if TYPE_CHECKING:
    from PIL.Image import Image


Record = dict[str, Any]
"""``file`` first and ``error`` last; what does not apply is None."""


@dataclass(frozen=True)
class Scorer:
    """What to do with every picture.

    ``top_k`` classes are recorded. Masks go to ``folder``, if there is one, and with ``overlay`` pictures with the mask
    painted over them too.
    """

    predictor: Predictor
    top_k: int = 1
    folder: Path | None = None
    overlay: bool = False

    def score(self, inputs: Sequence[Input], progress: Callable[[int], None] = lambda _: None) -> Iterator[Record]:
        """One record per input, in order; ``progress`` is told after each how many are done."""
        pending: dict[int, Named] = {}
        predictions = self.predictor.stream(self._named(inputs, pending))
        jobs = ((inputs[index], pending.pop(index), result) for index, result in enumerate(predictions))
        for index, record in enumerate(self._recorded(jobs)):
            yield record
            progress(index + 1)

    def _recorded(self, jobs: Iterable[tuple[Input, Named, Prediction]]) -> Iterator[Record]:
        """Records in order; files are written by as many threads as predict."""
        threads = self.predictor.threads
        if self.folder is None or threads == 1:
            yield from (self._record(*job) for job in jobs)
            return
        waiting: deque[Future[Record]] = deque()
        with ThreadPoolExecutor(threads, thread_name_prefix="ringlet-write") as writers:
            for job in jobs:
                waiting.append(writers.submit(self._record, *job))
                if len(waiting) > 2 * threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()

    def _named(self, inputs: Sequence[Input], pending: dict[int, Named]) -> Iterator[Named]:
        """The pictures, kept until their results are written: an overlay needs its picture again."""
        for index, item in enumerate(inputs):
            try:
                pending[index] = item.named()
            except DataError as error:
                pending[index] = Named(item.name, b"", problem=str(error))
            yield pending[index]

    def _record(self, item: Input, named: Named, prediction: Prediction) -> Record:
        if self.predictor.description.task != "segmentation":
            return self._class_record(prediction)
        record: Record = dict.fromkeys(("file", "width", "height", "share", "shares", "mask", "overlay", "error"))
        record |= {"file": prediction.name, "error": prediction.error}
        if prediction.mask is None:
            return record
        height, width = prediction.mask.shape
        record |= {"width": width, "height": height, "share": prediction.share, "shares": prediction.named_shares()}
        if self.folder is not None:
            record |= self._write(self.folder, item, named, prediction)
        return record

    def _class_record(self, prediction: Prediction) -> Record:
        record: Record = {
            "file": prediction.name,
            "class": prediction.class_index,
            "label": prediction.label,
            "probability": prediction.probability,
        }
        if self.top_k > 1:
            top = prediction.top(self.top_k)
            record["top"] = [{"label": label, "probability": probability} for label, probability in top]
        return record | {"error": prediction.error}

    def _write(self, folder: Path, item: Input, named: Named, prediction: Prediction) -> Record:
        """Write the files of one picture; the names of what was written."""
        mask, classes = prediction.mask, self.predictor.description.num_classes
        assert mask is not None
        places = {"mask": folder / f"{item.output}{MASK_ENDING}.png"}
        try:
            write_image(places["mask"], mask_image(mask, classes))
            if self.overlay:
                places["overlay"] = folder / f"{item.output}{OVERLAY_ENDING}.png"
                write_overlay(places["overlay"], self._picture(named, mask.shape), mask)
        except OSError as error:
            raise DataError(f"cannot write to '{folder}': {error.strerror or error}") from error
        return {kind: shown(place) for kind, place in places.items()}

    def _picture(self, named: Named, size: tuple[int, ...]) -> Any:
        preprocessing = self.predictor.description.preprocessing
        picture = named.picture
        if isinstance(picture, np.ndarray):
            picture = preprocessing.channels_last(picture, named.name)
        elif not isinstance(picture, bytes):
            picture = Path(str(picture))
        return full_picture(picture, (size[0], size[1]), preprocessing.white, named.name)


# -- tables: CSV, JSON or Parquet, by the ending of the name ----------------------------------------------------------
ENDINGS = (".csv", ".json", ".parquet")
_TOP, _SHARES = "top", "shares"


def check_table(path: Path) -> None:
    """Refuse a file that could not be written in the end."""
    if path.suffix.lower() not in ENDINGS:
        raise UsageError(f"'{path}' is no table: expected a name that ends in {', '.join(ENDINGS)}")
    if path.is_dir():
        raise UsageError(f"'{path}' is a folder: expected the name of a file")
    if not path.parent.is_dir():
        raise UsageError(f"cannot write '{path}': folder '{path.parent}' does not exist. Make it first")
    if path.suffix.lower() == ".parquet":
        require("pyarrow.parquet")


def write_table(path: Path, records: Sequence[Record], top_k: int = 1) -> None:
    """Write all records; the file is there completely or not at all."""
    try:
        with replacing(path) as draft:
            if path.suffix.lower() == ".json":
                draft.write_text(json.dumps(list(records), indent=1, allow_nan=False) + "\n", encoding="utf-8")
            elif path.suffix.lower() == ".csv":
                _write_csv(draft, [flat(record, top_k) for record in records])
            else:
                _write_parquet(draft, [flat(record, top_k) for record in records])
    except OSError as error:
        raise DataError(f"cannot write '{path}': {error.strerror or error}") from error


def flat(record: Record, top_k: int) -> Record:
    """A record without lists: the second best class is ``label_2`` with ``probability_2``, and so on.

    The share of each class of a mask is in the column ``share: NAME``.
    """
    result = {name: value for name, value in record.items() if name not in (_TOP, _SHARES, "error")}
    result |= {f"share: {name}": value for name, value in (record.get(_SHARES) or {}).items()}
    for place in range(2, top_k + 1):
        entries = record.get(_TOP) or []
        entry = entries[place - 1] if place <= len(entries) else {"label": None, "probability": None}
        result |= {f"{name}_{place}": value for name, value in entry.items()}
    return result | {"error": record["error"]}


def _write_csv(path: Path, rows: list[Record]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, _columns(rows), restval="")
        writer.writeheader()
        writer.writerows(rows)


def _columns(rows: list[Record]) -> list[str]:
    """The columns of all rows, ``error`` last: pictures that could not be read have fewer."""
    names = dict.fromkeys(name for row in rows for name in row)
    return [*(name for name in names if name != "error"), "error"] if rows else ["file", "error"]


def _kind(column: str) -> str:
    """What a column holds: ``probability_2`` a probability, ``share: car`` a share."""
    return column.partition(":")[0] if column.startswith("share:") else re.sub(r"_[0-9]+$", "", column)


def _write_parquet(path: Path, rows: list[Record]) -> None:
    arrow: Any = require("pyarrow")
    kinds = {
        "class": arrow.int64(),
        "width": arrow.int64(),
        "height": arrow.int64(),
        "share": arrow.float64(),
        "probability": arrow.float64(),
    }
    names = _columns(rows)
    schema = arrow.schema([(name, kinds.get(_kind(name), arrow.string())) for name in names])
    require("pyarrow.parquet").write_table(arrow.Table.from_pylist(rows, schema=schema), path)


# -- pictures: masks, and overlays with the mask painted over ---------------------------------------------------------
_STRENGTH = 0.45
_WHITE = 255


def mask_image(mask: NDArray[Any], num_classes: int) -> Image:
    """A mask (H, W) as a picture: black and white for one class, else a palette (16 bit grey beyond 256 classes)."""
    import PIL.Image

    if num_classes <= 2:
        return PIL.Image.fromarray((mask != 0).astype(np.uint8) * _WHITE)
    image = PIL.Image.fromarray(mask)
    if mask.dtype == np.uint8:
        image.putpalette(COLOURS.tobytes())
    return image


def write_overlay(path: Path, picture: NDArray[np.uint8], mask: NDArray[Any]) -> None:
    """Write the picture (H, W, 3) with the mask's classes tinted and their outlines drawn."""
    import PIL.Image

    edge, result = outline(mask), np.empty_like(picture)
    num_rows = max(1, STRIP_PIXELS // max(1, mask.shape[1]))
    for top in range(0, len(mask), num_rows):  # or numbers with fractions would take a dozen times as much memory
        rows = slice(top, top + num_rows)
        strength = np.where(edge[rows], 1.0, np.where(mask[rows] != 0, _STRENGTH, 0.0)).astype(np.float32)[:, :, None]
        result[rows] = np.rint(picture[rows] * (1 - strength) + painted(mask[rows]) * strength).astype(np.uint8)
    write_image(path, PIL.Image.fromarray(result))


def outline(mask: NDArray[Any]) -> NDArray[np.bool_]:
    """Pixels of an object with a neighbour of another class; wider for larger pictures."""
    edge = np.zeros(mask.shape, bool)
    for step in range(1, 1 + max(1, min(mask.shape) // 400)):
        edge[step:] |= mask[step:] != mask[:-step]
        edge[:-step] |= mask[step:] != mask[:-step]
        edge[:, step:] |= mask[:, step:] != mask[:, :-step]
        edge[:, :-step] |= mask[:, step:] != mask[:, :-step]
    return np.asarray(edge & (mask != 0))


def full_picture(picture: Path | bytes | NDArray[Any], size: tuple[int, int], white: float, name: str) -> Any:
    """The whole picture as RGB bytes (H, W, 3): from its file, its content, or stored values (H, W, C)."""
    if isinstance(picture, Path | bytes):
        content = picture.read_bytes() if isinstance(picture, Path) else picture
        return decode_image(content, (3, *size), name)[0]
    scaled = np.clip(np.rint(picture * (_WHITE / white)), 0, _WHITE).astype(np.uint8)
    return np.repeat(scaled, 3, axis=2) if scaled.shape[2] == 1 else scaled[:, :, :3]


def write_image(path: Path, image: Image) -> None:
    """Write a PNG file, completely or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, durable=False) as draft:
        image.save(draft, format="PNG", compress_level=1)
