"""Validation pictures: a few samples after every epoch, image, truth and prediction side by side.

The predictions are those of the validation pass itself, so nothing is computed twice: the rank that has a chosen sample
keeps its prediction, and one small sum over all ranks brings them together. Which samples are chosen depends on their
number alone, so they are the same in every epoch, after a resume and on any number of workers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

from ringlet.comm.contract import Communicator
from ringlet.data import Source
from ringlet.io.disk import Saving, write_whole
from ringlet.training.metrics import iou
from ringlet.training.observers import RankObserver

if TYPE_CHECKING:
    from PIL.Image import Image


_NAME = re.compile(r"epoch-(\d+)\.png")
SMALLEST, LARGEST = 128, 256
"""Panels are enlarged, or pixels left out, until their longer side lies between these."""
GAP, LINE = 6, 16
INK, PAPER = (30, 30, 30), (255, 255, 255)
COLOURS = np.array(
    [
        (0, 0, 0), (230, 159, 0), (86, 180, 233), (0, 158, 115), (240, 228, 66), (0, 114, 178), (213, 94, 0),
        (204, 121, 167), (255, 255, 255),
    ],
    np.uint8,
)  # fmt: skip
"""Classes: black for the background, then colours that everyone can tell apart (Okabe and Ito, 2008)."""

Panel = NDArray[np.uint8]


@final
class ValidationPictures(RankObserver):
    """Writes ``epoch-0001.png``, … into ``folder``, by rank 0 only. A disk that is full does not end the training."""

    def __init__(
        self, source: Source, num_pictures: int, comm: Communicator, folder: Path, say: Callable[[str], None]
    ) -> None:
        self._source, self._comm, self._folder, self._saving = source, comm, folder, Saving(say)
        self._indices = evenly_spaced(len(source), num_pictures)
        self._rows = {index: row for row, index in enumerate(self._indices.tolist())}
        self._masks = np.zeros((len(self._indices), *source.input_shape[1:]), np.float32)
        self._samples: list[Sample] = []

    def after_step(self) -> None:
        """Nothing is drawn within an epoch."""

    def take_outputs(self, indices: NDArray[np.int64], outputs: NDArray[Any]) -> None:
        """Keep what was predicted for the chosen samples among these."""
        for place, index in enumerate(indices.tolist()):
            row = self._rows.get(index)
            if row is not None:
                self._masks[row] = predicted_mask(outputs[place])

    def after_validation(self, epoch: int) -> None:
        """Bring the predictions together and write the picture. Every rank must call."""
        self._comm.allreduce(self._masks, out=self._masks)
        if self._comm.rank == 0:
            self._saving.attempt("picture", lambda: self._write(epoch))
        self._masks.fill(0)

    def after_epoch(self, *, is_best: bool) -> None:
        """The picture is there already."""

    def finish(self) -> None:
        """Every picture is there already."""

    def abandon(self) -> None:
        """Nothing is under way."""

    def _write(self, epoch: int) -> None:
        self._samples = self._samples or self._read()
        self._folder.mkdir(exist_ok=True)
        sheet = draw_sheet(self._samples, list(self._masks), self._source.num_classes, f"epoch {epoch}")
        target = self._folder / f"epoch-{epoch:04d}.png"
        write_whole(target, lambda file: sheet.save(file, format="PNG", compress_level=1), durable=False)

    def _read(self) -> list[Sample]:
        inputs, targets = self._source.read(self._indices)
        truths = targets.reshape(len(targets), *targets.shape[-2:])
        return [Sample(*parts) for parts in zip(self._indices.tolist(), inputs, truths, strict=True)]


def evenly_spaced(num_samples: int, num_chosen: int) -> NDArray[np.int64]:
    """Up to ``num_chosen`` places from the first to the last of ``num_samples``: neighbours are often alike."""
    return np.unique(np.linspace(0, num_samples - 1, min(num_chosen, num_samples)).astype(np.int64))


def predicted_mask(output: NDArray[Any]) -> NDArray[Any]:
    """One number per pixel ``(H, W)``: the probability of the object, or of several classes the most likely one."""
    mask: NDArray[Any] = output[0] if len(output) == 1 else output.argmax(axis=0)
    return mask


def remove_pictures_after(folder: Path, epoch: int) -> None:
    """Remove the pictures of later epochs, which a run that resumes from this one draws again."""
    for path in pictures_after(folder, epoch):
        path.unlink()


def pictures_after(folder: Path, epoch: int) -> list[Path]:
    """The pictures of later epochs."""
    found = ((path, _NAME.fullmatch(path.name)) for path in (folder.iterdir() if folder.is_dir() else ()))
    return [path for path, match in found if match is not None and int(match[1]) > epoch]


@dataclass(frozen=True)
class Sample:
    """A sample as the data set has it: ``image (C, H, W)``, and ``truth (H, W)`` of 0 and 1 or of classes."""

    index: int
    image: NDArray[Any]
    truth: NDArray[Any]


def draw_sheet(samples: list[Sample], masks: list[NDArray[Any]], num_classes: int, title: str) -> Image:
    """All samples beneath each other; ``masks`` are probabilities ``(H, W)``, or classes if there are several."""
    import PIL.Image
    import PIL.ImageDraw

    rows = [
        (image_panel(sample.image), mask_panel(sample.truth, num_classes), mask_panel(mask, num_classes))
        for sample, mask in zip(samples, masks, strict=True)
    ]
    height, width = rows[0][0].shape[:2]
    size = (3 * (width + GAP) + GAP, LINE + len(rows) * (height + LINE) + GAP)
    sheet = PIL.Image.new("RGB", size, PAPER)
    pen = PIL.ImageDraw.Draw(sheet)
    for column, heading in enumerate((f"image, {title}", "truth", "prediction")):
        pen.text((GAP + column * (width + GAP), 2), heading, fill=INK)
    for row, (sample, mask, panels) in enumerate(zip(samples, masks, rows, strict=True)):
        top = LINE + row * (height + LINE)
        for column, panel in enumerate(panels):
            sheet.paste(PIL.Image.fromarray(panel), (GAP + column * (width + GAP), top))
        overlap = overlap_of(mask, sample.truth, num_classes)
        pen.text((GAP, top + height + 2), f"sample {sample.index}", fill=INK)
        pen.text((GAP + 2 * (width + GAP), top + height + 2), f"IoU {overlap:.3f}", fill=INK)
    return sheet


def image_panel(image: NDArray[Any]) -> Panel:
    """An image ``(C, H, W)`` as colours: three channels as they are, without a fourth; otherwise the first as grey.

    Floating values are stretched from their smallest to their largest one.
    """
    planes = image[:3] if len(image) in (3, 4) else np.repeat(image[:1], 3, axis=0)
    if planes.dtype != np.uint8:
        low, high = float(planes.min()), float(planes.max())
        planes = np.clip((planes - low) * (255 / max(high - low, 1e-30)), 0, 255).astype(np.uint8)
    return fitted(np.moveaxis(planes, 0, 2))


def mask_panel(mask: NDArray[Any], num_classes: int) -> Panel:
    """Probabilities as shades of grey, classes in their colours."""
    if num_classes > 1:
        return fitted(COLOURS[mask.astype(np.int64) % len(COLOURS)])
    grey = np.rint(np.clip(np.nan_to_num(mask), 0, 1) * 255).astype(np.uint8)
    return fitted(np.repeat(grey[:, :, None], 3, axis=2))


def fitted(panel: Panel) -> Panel:
    """A panel of a size that can be looked at: whole pixels are repeated or left out."""
    longer = max(panel.shape[:2])
    times, step = -(-SMALLEST // longer), -(-longer // LARGEST)
    return np.ascontiguousarray(panel[::step, ::step].repeat(times, axis=0).repeat(times, axis=1))


def overlap_of(mask: NDArray[Any], truth: NDArray[Any], num_classes: int) -> float:
    """Intersection over union of one sample, as the metric has it."""
    if num_classes == 1:
        return iou(mask[None, None], truth[None, None])[0]
    channels = np.arange(num_classes).reshape(-1, 1, 1)
    return iou((mask == channels)[None].astype(np.float32), truth.astype(np.int64)[None])[0]
