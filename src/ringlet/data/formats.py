"""Data sets by name: what each is, where it comes from, its options, and how it is loaded.

A format turns a request into the parts of a data set; size limit, resizing and validation split are applied to all of
them alike (:mod:`ringlet.data.registry`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal, final

from ringlet.component import Component, Problem, Registry, option, required
from ringlet.data import binary_files, normalization
from ringlet.data.normalization import Normalization
from ringlet.data.requests import Parts, Request
from ringlet.data.source import Task
from ringlet.errors import DataError, UsageError

TEN_DIGITS = tuple(str(digit) for digit in range(10))
FASHION_CLASSES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
_IDX_FILES = "train-images-idx3-ubyte and train-labels-idx1-ubyte, with or without .gz"
Origin = Literal["built-in", "downloadable", "your files", "plugin"]

DATASETS: Registry[type[DatasetFormat]] = Registry("data set", package="ringlet.data.formats", group="datasets")


class DatasetFormat(Component, ABC):
    """A data set by its name and options. The docstring is its line in ``ringlet datasets``."""

    registry: ClassVar[Registry[Any] | None] = DATASETS
    argument: ClassVar[str] = "path"
    task: ClassVar[Literal["classification", "segmentation", "either"]] = "either"
    origin: ClassVar[Origin] = "plugin"
    shape: ClassVar[tuple[int, ...] | None] = None
    """Of one input; None where the files decide."""
    num_classes: ClassVar[int | None] = None
    licence: ClassVar[str] = "yours"
    sizes_itself: ClassVar[bool] = False
    """Whether images come in the size that is asked for, and need not be resized."""

    path: str | None = option(None, "folder or file of the data set; default: the data cache", min_length=1)
    train_path: str | None = option(None, "folder of the training data, where it differs")
    test_path: str | None = option(None, "folder of the test data, where it differs")
    synthetic: bool = option(False, "random data of the data set's shape instead of its files")
    num_samples: int | None = option(None, "number of samples of synthetic or procedural data", ge=1)
    image_size: tuple[int, ...] | None = option(
        None, "height,width, or one number, to which images are resized", unit="pixels"
    )
    validation_split: float | None = option(
        None,
        "share of the training data kept for validation; default: 0.1, or 0 where the data have their own",
        ge=0,
        lt=1,
    )
    test_as_validation: bool = option(False, "validate on the test data")
    normalization: Literal["auto", "imagenet", "symmetric"] = option(
        "auto", "of inputs: the data set's, ImageNet's mean and deviation per colour, or values from -1 to 1"
    )

    @classmethod
    def prepare(cls, values: dict[str, Any]) -> dict[str, Any]:
        """One number stands for height and width; validation on test data holds nothing out."""
        size = values.get("image_size")
        number = size[0] if isinstance(size, tuple | list) and len(size) == 1 else size
        if isinstance(number, int) and not isinstance(number, bool):
            values = {**values, "image_size": (number, number)}
        if values.get("test_as_validation") is True and values.get("validation_split") is None:
            values = {**values, "validation_split": 0.0}
        return values

    def contradictions(self) -> Iterable[Problem]:
        """Sizes that are none, and two ways to validate."""
        size = self.image_size
        if size is not None and (len(size) != 2 or min(size) < 1):
            given = ",".join(map(str, size))
            yield Problem("image_size", f"expected height,width or one number, such as 128, received {given}")
        if self.test_as_validation and self.validation_split:
            yield Problem(
                "test_as_validation", f"it and validation_split = {self.validation_split} exclude each other: give one"
            )

    @property
    def label(self) -> str:
        """What the data set is called in messages: its name, and the path of one's own files."""
        return f"{self.name}:{self.path}" if self.origin == "your files" and self.path else self.name

    @abstractmethod
    def load(self, request: Request) -> Parts:
        """The parts, as found."""


@final
class GivenDataset(DatasetFormat):
    """A data set that a program has handed over as an object; only that program can load it."""

    name: ClassVar[str] = "given"
    is_listed: ClassVar[bool] = False
    title_given: str = required("what the program calls it", min_length=1)

    @property
    def label(self) -> str:
        """What the program calls it."""
        return self.title_given

    def load(self, request: Request) -> Parts:
        """Not here."""
        del request
        raise UsageError(
            f"data set '{self.label}' was given to the run by a program, as an object: start or resume it there"
        )


# -- built in ---------------------------------------------------------------------------------------------------------
@final
class Digits(DatasetFormat):
    """1,437 + 360 handwritten digits"""

    name: ClassVar[str] = "digits"
    task: ClassVar[Literal["classification", "segmentation", "either"]] = "classification"
    origin: ClassVar[Origin] = "built-in"
    shape: ClassVar[tuple[int, ...] | None] = (1, 8, 8)
    num_classes: ClassVar[int | None] = 10
    licence: ClassVar[str] = "CC BY 4.0"

    def load(self, request: Request) -> Parts:
        """Both parts."""
        from ringlet.data.builtin import load_digits

        del request
        train, test = load_digits()
        return Parts(train, test, class_names=TEN_DIGITS, normalization=normalization.DIGITS)


@final
class Shapes(DatasetFormat):
    """procedural shapes with masks, any size"""

    name: ClassVar[str] = "shapes"
    task: ClassVar[Literal["classification", "segmentation", "either"]] = "segmentation"
    origin: ClassVar[Origin] = "built-in"
    shape: ClassVar[tuple[int, ...] | None] = (3, 64, 64)
    num_classes: ClassVar[int | None] = 1
    licence: ClassVar[str] = "Apache-2.0"
    sizes_itself: ClassVar[bool] = True

    def load(self, request: Request) -> Parts:
        """``num_samples`` for training and a quarter of that for test."""
        from ringlet.data.builtin import CLASS_NAMES, ShapesSource

        shape = request.input_shape or (3, *(request.image_size or (64, 64)))
        count = 512 if request.num_samples is None else request.num_samples
        classes = request.num_classes or 1
        train = ShapesSource(shape, count, num_classes=classes, seed=request.seed)
        test = ShapesSource(shape, max(1, count // 4), num_classes=classes, seed=request.seed, first=count)
        return Parts(train, test, class_names=CLASS_NAMES[classes], complete=True)


@final
class Synthetic(DatasetFormat):
    """made-up data of any shape"""

    name: ClassVar[str] = "synthetic"
    task: ClassVar[Literal["classification", "segmentation", "either"]] = "classification"
    origin: ClassVar[Origin] = "built-in"
    licence: ClassVar[str] = "Apache-2.0"
    sizes_itself: ClassVar[bool] = True

    def load(self, request: Request) -> Parts:
        """``num_samples`` for training and a fifth of that for test."""
        from ringlet.data.builtin import SyntheticSource

        shape = request.input_shape or (1, *(request.image_size or (28, 28)))
        classes = 10 if request.num_classes is None else request.num_classes
        count = 10_000 if request.num_samples is None else request.num_samples
        train = SyntheticSource(shape, classes, count, seed=request.seed)
        test = SyntheticSource(shape, classes, max(1, count // 5), seed=request.seed, first=count)
        return Parts(train, test, complete=True)


# -- can be fetched ---------------------------------------------------------------------------------------------------
class Downloadable(DatasetFormat):
    """A data set that ``ringlet datasets fetch`` brings into the cache."""

    task: ClassVar[Literal["classification", "segmentation", "either"]] = "classification"
    origin: ClassVar[Origin] = "downloadable"


@final
class Mnist(Downloadable):
    """60,000 + 10,000 handwritten digits"""

    name: ClassVar[str] = "mnist"
    shape: ClassVar[tuple[int, ...] | None] = (1, 28, 28)
    num_classes: ClassVar[int | None] = 10

    def load(self, request: Request) -> Parts:
        """From idx files."""
        return _load_idx(request, 10, TEN_DIGITS, normalization.MNIST)


@final
class FashionMnist(Downloadable):
    """60,000 + 10,000 articles of clothing"""

    name: ClassVar[str] = "fashion-mnist"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"fashion": {}}
    shape: ClassVar[tuple[int, ...] | None] = (1, 28, 28)
    num_classes: ClassVar[int | None] = 10

    def load(self, request: Request) -> Parts:
        """From idx files."""
        return _load_idx(request, 10, FASHION_CLASSES, normalization.FASHION_MNIST)


@final
class Cifar10(Downloadable):
    """50,000 + 10,000 small photographs"""

    name: ClassVar[str] = "cifar10"
    shape: ClassVar[tuple[int, ...] | None] = (3, 32, 32)
    num_classes: ClassVar[int | None] = 10

    def load(self, request: Request) -> Parts:
        """From the binary version; incomplete folders serve."""
        return _load_cifar(request, "cifar10", binary_files.CIFAR10_CLASSES, normalization.CIFAR10)


@final
class Cifar100(Downloadable):
    """50,000 + 10,000 small photographs, fine labels"""

    name: ClassVar[str] = "cifar100"
    shape: ClassVar[tuple[int, ...] | None] = (3, 32, 32)
    num_classes: ClassVar[int | None] = 100

    def load(self, request: Request) -> Parts:
        """From the binary version."""
        return _load_cifar(request, "cifar100", (), normalization.CIFAR100)


# -- people's own files -----------------------------------------------------------------------------------------------
class OwnFiles(DatasetFormat):
    """Files of the user: ``NAME:PATH``."""

    origin: ClassVar[Origin] = "your files"


@final
class ImageNet(OwnFiles):
    """folders of npz shards with x and y"""

    name: ClassVar[str] = "imagenet"
    task: ClassVar[Literal["classification", "segmentation", "either"]] = "classification"

    def load(self, request: Request) -> Parts:
        """From the shards."""
        from ringlet.data.shards import load_parts

        return load_parts(request)


@final
class Idx(OwnFiles):
    """a folder of idx files of the MNIST family"""

    name: ClassVar[str] = "idx"
    task: ClassVar[Literal["classification", "segmentation", "either"]] = "classification"

    def load(self, request: Request) -> Parts:
        """From the folder."""
        return _load_idx(request, None, (), normalization.BYTES)


@final
class Npz(OwnFiles):
    """an npz file with images or features, and classes, labels, masks or values"""

    name: ClassVar[str] = "npz"
    targets: Task | None = option(None, "what the targets are; default: what they look like, which a remark says")

    def load(self, request: Request) -> Parts:
        """One file with several arrays, or one for training and one for test."""
        from ringlet.data.npz import load_parts

        return load_parts(request)


class Pictures(OwnFiles):
    """Files of images, which are brought to one size when they are read."""

    sizes_itself: ClassVar[bool] = True
    skip_broken: bool = option(False, "leave out images that cannot be read; all are decoded once to find them")


@final
class Folder(Pictures):
    """image files: a folder per class, or images with masks"""

    name: ClassVar[str] = "folder"

    def load(self, request: Request) -> Parts:
        """From the folder."""
        from ringlet.data.folders import load_folders

        return load_folders(request)


@final
class Masks(Pictures):
    """image files with mask files"""

    name: ClassVar[str] = "masks"
    task: ClassVar[Literal["classification", "segmentation", "either"]] = "segmentation"

    def load(self, request: Request) -> Parts:
        """From the folder."""
        from ringlet.data.folders import load_masks

        return load_masks(request)


@final
class Table(OwnFiles):
    """a CSV, Parquet or Arrow file: a row per sample"""

    name: ClassVar[str] = "table"
    task: ClassVar[Literal["classification", "segmentation", "either"]] = "classification"
    target: tuple[str, ...] | None = option(None, "columns to be predicted, comma-separated", min_length=1)
    targets: Task | None = option(None, "what the targets are; default: what they look like, which a remark says")
    ignore: tuple[str, ...] = option((), "columns that are left out, comma-separated")
    missing: Literal["refuse", "impute"] = option(
        "refuse", "missing values: refuse, or impute (the mean of numbers, no text of texts)"
    )

    @classmethod
    def prepare(cls, values: dict[str, Any]) -> dict[str, Any]:
        """One name stands for a list of one."""
        values = super().prepare(values)
        lists = {
            name: tuple(value.split(",")) for name, value in values.items() if name in _LISTS and isinstance(value, str)
        }
        return {**values, **lists}

    def load(self, request: Request) -> Parts:
        """From one file, from one for training and one for test, or from a folder with train, val and test."""
        from ringlet.data.tables import load_table

        return load_table(request, self.target or (), self.ignore, impute=self.missing == "impute")


_LISTS = ("target", "ignore")


def _load_idx(request: Request, classes: int | None, names: tuple[str, ...], constants: Normalization) -> Parts:
    train_folder, test_folder = request.folders(cached=request.name != "idx")
    pair = binary_files.find_idx_pair(train_folder, "train")
    if pair is None:
        raise request.missing(train_folder, _IDX_FILES)
    train = binary_files.load_idx_pair(*pair, request.num_classes or classes)
    test_pair = binary_files.find_idx_pair(test_folder, "test")
    _check_test_found(test_pair, request)
    test = binary_files.load_idx_pair(*test_pair, train.num_classes) if test_pair else None
    if train.values_dtype != "uint8":
        constants = normalization.Normalization()
    return Parts(train, test, class_names=names, normalization=constants)


def _load_cifar(
    request: Request, kind: Literal["cifar10", "cifar100"], names: tuple[str, ...], constants: Normalization
) -> Parts:
    train_folder, test_folder = request.folders(cached=True)
    train = binary_files.load_cifar_split(train_folder, "train", kind)
    if train is None:
        raise request.missing(train_folder, "data_batch_1.bin …" if kind == "cifar10" else "train.bin")
    test = binary_files.load_cifar_split(test_folder, "test", kind)
    _check_test_found(test, request)
    return Parts(
        train, test, class_names=names or binary_files.cifar100_class_names(train_folder), normalization=constants
    )


def _check_test_found(found: object | None, request: Request) -> None:
    if found is None and request.test_path is not None:
        raise DataError(
            f"no test data of '{request.name}' in {request.test_path}: check the test path, or leave it out"
        )
