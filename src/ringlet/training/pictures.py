"""Validation pictures: a few samples after every epoch, image, truth and prediction side by side.

The predictions are those of the validation pass itself, so nothing is computed twice: the rank that has a chosen sample
keeps its prediction, and one small sum over all ranks brings them together. Which samples are chosen depends on their
number alone, so they are the same in every epoch, after a resume and on any number of workers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ringlet.comm.contract import Communicator
from ringlet.data import Source
from ringlet.evaluation.sheets import Sample, draw_sheet
from ringlet.io.disk import Saving, write_whole
from ringlet.training.observers import RankObserver

_NAME = re.compile(r"epoch-(\d+)\.png")


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
