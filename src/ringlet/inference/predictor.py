"""Predictor: a trained network for use in programs and databases.

>>> with Predictor("runs/cars", threads=2) as predictor:  # doctest: +SKIP
...     for result in predictor.predict(["a.jpg", "b.jpg"]):
...         print(result.name, result.label, result.probability, result.error)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, TypeAlias, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from ringlet.data import bounded
from ringlet.data.bounded import check_num_pixels
from ringlet.data.images import STRIP_PIXELS, resized_rows
from ringlet.errors import DataError, UsageError
from ringlet.evaluation.views import averaged, views_of
from ringlet.inference.artifact import Artifact, Outputs
from ringlet.inference.description import Description
from ringlet.inference.preprocessing import Size
from ringlet.launch.resources import usable_cores

THRESHOLD = 0.5
_NOT_FINITE = "the network's outputs are not finite numbers: its weights are damaged, or training has diverged"


@dataclass(frozen=True)
class Prediction:
    """The result for one picture. If ``error`` is not None, everything else but ``name`` is None."""

    name: str
    """The path, or what else the caller called it."""
    class_index: int | None = None
    """Classification: the most probable class."""
    label: str | None = None
    """Of that class; of several labels those from the threshold on, with commas; of values the values, with commas."""
    probability: float | None = None
    """Of that class; of several labels the largest."""
    probabilities: NDArray[np.float32] | None = field(default=None, repr=False)
    """Of all classes or labels."""
    values: NDArray[np.float32] | None = field(default=None, repr=False)
    """Regression: what is predicted, ``(K,)`` or of every pixel of the network's size ``(K, H, W)``."""
    mask: NDArray[np.uint8] | None = field(default=None, repr=False)
    """Segmentation: the class of every pixel, (height, width) of the picture; 0 is background."""
    share: float | None = None
    """Segmentation: the share of pixels that are not background."""
    shares: NDArray[np.float64] | None = field(default=None, repr=False)
    """Segmentation: the share of pixels of every class, the background first."""
    error: str | None = None
    """What was wrong with the picture."""
    labels: tuple[str, ...] = field(default=(), repr=False)
    """The names of all classes."""

    def top(self, count: int) -> list[tuple[str, float]]:
        """The ``count`` most probable labels with their probabilities, most probable first; of equal ones the first."""
        if self.probabilities is None:
            return []
        order = np.argsort(-self.probabilities, kind="stable")[:count].tolist()
        return [(self.labels[index], float(self.probabilities[index])) for index in order]

    def named_shares(self) -> dict[str, float]:
        """Segmentation: the share of pixels of every class by its name; those of equal names are added up."""
        found: dict[str, float] = {}
        for label, share in zip(self.labels, () if self.shares is None else self.shares.tolist(), strict=False):
            found[label] = found.get(label, 0.0) + share
        return found


class Interpreter:
    """Turns a network's outputs into predictions."""

    def __init__(self, description: Description, threshold: float) -> None:
        self._description = description
        self._threshold = threshold
        self._labels = tuple(description.label(index) for index in range(description.num_classes))

    def __call__(self, name: str, outputs: Outputs, size: Size) -> Prediction:
        """The prediction for a picture of ``size`` from ``outputs`` of one sample."""
        if not np.isfinite(outputs).all():
            return Prediction(name, error=f"{name}: {_NOT_FINITE}")
        if self._description.task == "segmentation":
            return self._mask(name, outputs, size)
        if self._description.task == "regression":
            return self._values(name, outputs)
        return self._labels_of(name, outputs) if self._description.task == "multilabel" else self._class(name, outputs)

    def _labels_of(self, name: str, outputs: Outputs) -> Prediction:
        found = [label for label, output in zip(self._labels, outputs, strict=True) if output >= self._threshold]
        best = float(outputs.max())
        return Prediction(name, None, ", ".join(found), best, outputs, labels=self._labels)

    def _values(self, name: str, outputs: Outputs) -> Prediction:
        shown = outputs.shape == (len(outputs),)
        text = ", ".join(map(str, outputs)) if shown else f"{'x'.join(map(str, outputs.shape))} values"
        return Prediction(name, label=text, values=outputs, labels=self._labels)

    def _class(self, name: str, outputs: Outputs) -> Prediction:
        if len(outputs) == 1:
            outputs = np.array([1 - outputs[0], outputs[0]], np.float32)
            index = int(outputs[1] >= self._threshold)
        else:
            index = int(outputs.argmax())
        return Prediction(name, index, self._labels[index], float(outputs[index]), outputs, labels=self._labels)

    def _mask(self, name: str, outputs: Outputs, size: Size) -> Prediction:
        """Probabilities brought to the picture's size first, then decided: edges stay smooth."""
        mask: NDArray[Any] = np.zeros(size, np.uint8 if len(outputs) <= 256 else np.uint16)
        if len(outputs) == 1:
            for rows, plane in resized_rows(outputs[0], size):
                mask[rows] = plane >= self._threshold
        else:
            best = np.full(size, -np.inf, np.float32)
            for index, output in enumerate(outputs):
                for rows, plane in resized_rows(output, size):
                    mask[rows][plane > best[rows]] = index
                    np.maximum(best[rows], plane, out=best[rows])
        share, shares = float((mask != 0).mean()), shares_of(mask, len(self._labels))
        return Prediction(name, mask=mask, share=share, shares=shares, labels=self._labels)


def shares_of(mask: NDArray[Any], num_classes: int) -> NDArray[np.float64]:
    """The share of pixels of every class; counted strip by strip, since counting takes eight bytes for each pixel."""
    counts, num_rows = np.zeros(num_classes, np.int64), max(1, STRIP_PIXELS // max(1, mask.shape[1]))
    for top in range(0, len(mask), num_rows):
        counts += np.bincount(mask[top : top + num_rows].ravel(), minlength=num_classes)
    return counts / max(mask.size, 1)


Picture: TypeAlias = "str | Path | bytes | bytearray | memoryview | NDArray[Any]"
"""A path, the content of an image file, or an array of stored values."""

Result = TypeVar("Result")

BATCH_SIZE = 32
MAX_BATCH_SIZE = 1 << 16
MAX_THREADS = 4096


@dataclass(frozen=True)
class Named:
    """A picture and what to call it in results."""

    name: str
    picture: Picture | Callable[[], Picture]
    """Or a function that gives it, called by the thread that decodes it: so pictures that wait take no memory."""
    problem: str = ""
    """What is known to be wrong with it: it becomes the error of its prediction."""


@final
class Predictor:
    """Pictures in, predictions out; every thread may call it at any time.

    ``model`` is a run directory, a model file, an exported artifact, or an :class:`~ringlet.inference.Artifact` (whose
    content may be in memory). Pictures are decoded and computed ``batch_size`` at a time on ``threads`` threads
    (default: all cores); with one thread, on the caller's own. ``threshold`` is from where on a pixel, or a network
    with a single output, says yes. ``tta`` averages the outputs over views of each picture: ``flip`` (mirrored),
    ``flips`` (also upside down) or ``shift`` (moved by two pixels each way).

    An export to PyTorch is a program: naming its ``.py`` file runs it with all rights of the caller, so name only those
    you trust. Nothing else that can be named runs code, whatever lies beside it or in its folder.

    What is wrong with one picture is in the ``error`` of its prediction; exceptions are for what concerns all.
    """

    def __init__(
        self,
        model: str | Path | Artifact,
        *,
        threads: int | None = None,
        batch_size: int = BATCH_SIZE,
        threshold: float = THRESHOLD,
        tta: str | None = None,
    ) -> None:
        self.threads = _within("threads", usable_cores() if threads is None else threads, MAX_THREADS)
        self.batch_size = _within("batch_size", batch_size, MAX_BATCH_SIZE)
        if not 0.0 <= threshold <= 1.0:
            raise UsageError(f"threshold = {threshold}: expected a number from 0 to 1")
        self.artifact = model if isinstance(model, Artifact) else Artifact.find(model)
        self._runtime = self.artifact.open(threads=self.threads, batch_size=self.batch_size)
        self._interpret = Interpreter(self._runtime.description, threshold)
        self._views = () if tta is None else views_of(tta, self.description.preprocessing.input_shape)
        self._lock = Lock()
        self._workers: ThreadPoolExecutor | None = None
        self._closed = False

    @property
    def description(self) -> Description:
        """What the artifact says about itself: network, task, labels, preprocessing."""
        return self._runtime.description

    def predict(self, pictures: Picture | Iterable[Picture | Named]) -> list[Prediction]:
        """One prediction for every picture, in order.

        ``pictures`` is one picture or several: paths, contents of image files (``bytes``), arrays of stored values
        (H, W, C) or (C, H, W), or one array of many of them. Arrays hold values as the training data had them,
        mostly bytes.
        """
        return self.map(_itself, pictures)

    def map(
        self, function: Callable[[Prediction], Result], pictures: Picture | Iterable[Picture | Named]
    ) -> list[Result]:
        """What ``function`` makes of each prediction, on the thread that has computed it."""
        items = self._listed(pictures)
        share = -(-len(items) // self.threads)
        return list(self._stream(function, items, max(1, min(self.batch_size, share))))

    def stream(self, pictures: Iterable[Picture | Named]) -> Iterator[Prediction]:
        """Predictions for any number of pictures, which are asked for as they are needed; close it to leave early."""
        return self._stream(_itself, (_named(index, item) for index, item in enumerate(pictures)), self.batch_size)

    def decode(self, content: bytes, name: str = "image") -> tuple[NDArray[Any], Size]:
        """What the network takes of the content of an image file, (H, W, C), and the picture's own height and width.

        The size in a header is checked before anything is allocated; whatever is wrong is a DataError.
        """
        return self.description.preprocessing.decode(bytes(content), name)

    def outputs(self, values: NDArray[Any]) -> NDArray[np.float32]:
        """The network's bare outputs (n, …) for stored values (n, H, W, C) of its input size."""
        return self._averaged(np.ascontiguousarray(values, self.description.preprocessing.dtype))

    def close(self) -> None:
        """End all threads and free the network; the predictor cannot be used any more."""
        with self._lock:
            self._closed = True
            workers, self._workers = self._workers, None
        if workers is not None:
            workers.shutdown()
        self._runtime.close()

    def __enter__(self) -> Predictor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _listed(self, pictures: Picture | Iterable[Picture | Named]) -> list[Named]:
        if isinstance(pictures, str | Path | bytes | bytearray | memoryview | Named):
            pictures = [pictures]
        elif isinstance(pictures, np.ndarray):
            many = pictures.ndim > len(self.description.preprocessing.input_shape)
            pictures = list(pictures) if many else [pictures]
        return [_named(index, item) for index, item in enumerate(pictures)]

    def _stream(self, function: Callable[[Prediction], Result], items: Iterable[Named], size: int) -> Iterator[Result]:
        """Results in the order of the items, several batches at once if there are several threads and batches."""
        self._require_open()
        rest = iter(items)
        batches = iter(lambda: list(islice(rest, size)), [])
        first = list(islice(batches, 2 if self.threads > 1 else 0))
        if len(first) == 2:
            yield from self._on_all_threads(function, chain(first, batches))
            return
        for batch in chain(first, batches):
            yield from self._results(function, batch)

    def _on_all_threads(
        self, function: Callable[[Prediction], Result], batches: Iterable[list[Named]]
    ) -> Iterator[Result]:
        """A few batches ahead of the one that is asked for."""
        pending: deque[Future[list[Result]]] = deque()
        try:
            for batch in batches:
                pending.append(self._pool().submit(self._results, function, batch))
                if len(pending) > 2 * self.threads:
                    yield from pending.popleft().result()
            while pending:
                yield from pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()

    def _results(self, function: Callable[[Prediction], Result], batch: Sequence[Named]) -> list[Result]:
        return [function(prediction) for prediction in self._predict(batch)]

    def _predict(self, batch: Sequence[Named]) -> Iterator[Prediction]:
        """Decode and compute one batch on this thread; a mask of a picture's size is made when it is asked for."""
        values: list[NDArray[Any]] = []
        sizes: list[Size | DataError] = []
        for item in batch:
            try:
                decoded, size = self._values(item)
            except DataError as error:
                sizes.append(error)
            else:
                values.append(decoded)
                sizes.append(size)
        outputs = iter(self._averaged(np.stack(values)) if values else ())
        for item, found in zip(batch, sizes, strict=True):
            if isinstance(found, DataError):
                yield Prediction(item.name, error=str(found))
            else:
                yield self._interpret(item.name, next(outputs), found)

    def _values(self, item: Named) -> tuple[NDArray[Any], Size]:
        """Stored values and the picture's size."""
        if item.problem:
            raise DataError(item.problem)
        preprocessing = self.description.preprocessing
        picture = item.picture() if callable(item.picture) else item.picture
        if isinstance(picture, str | Path):
            with bounded.open_file(Path(picture)) as file:
                return self._decoded(file.read(), item.name)
        if isinstance(picture, bytes | bytearray | memoryview):
            return self._decoded(bytes(picture), item.name)
        if isinstance(picture, np.ndarray):
            return preprocessing.fit(preprocessing.channels_last(picture, item.name), item.name)
        raise DataError(f"{item.name}: is {type(picture).__name__}: expected a path, bytes or an array")

    def _decoded(self, content: bytes, name: str) -> tuple[NDArray[Any], Size]:
        values, size = self.description.preprocessing.decode(content, name)
        if self.description.task == "segmentation":
            check_num_pixels(size[::-1], name)  # its mask will have as many, even if it was decoded at a fraction
        return values, size

    def _averaged(self, values: NDArray[Any]) -> NDArray[np.float32]:
        """Outputs, of all views if there are several."""
        if not self._views:
            return self._run(values)
        return averaged(self._views, values, lambda _, shown: self._run(shown), (1, 2))

    def _run(self, values: NDArray[Any]) -> NDArray[np.float32]:
        self._require_open()
        return self._runtime.run(values)

    def _pool(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._workers is None:
                self._workers = ThreadPoolExecutor(self.threads, thread_name_prefix="ringlet-predict")
            return self._workers

    def _require_open(self) -> None:
        if self._closed:
            raise UsageError("the predictor is closed: make a new one")


def _itself(prediction: Prediction) -> Prediction:
    return prediction


def _named(index: int, item: Picture | Named) -> Named:
    if isinstance(item, Named):
        return item
    return Named(str(item) if isinstance(item, str | Path) else f"image {index}", item)


def _within(name: str, value: int, limit: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value <= limit:
        raise UsageError(f"{name} = {value!r}: expected a whole number from 1 to {limit}")
    return int(value)
