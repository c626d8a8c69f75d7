"""The loaders by name: each turns a request into the parts of a data set."""

from __future__ import annotations

from typing import Literal

from ringlet.data import binary_files, builtin, normalization
from ringlet.data.builtin import SyntheticSource
from ringlet.data.normalization import Normalization
from ringlet.data.requests import Loader, Parts, Request
from ringlet.errors import DataError

TEN_DIGITS = tuple(str(digit) for digit in range(10))
FASHION_CLASSES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
_IDX_FILES = "train-images-idx3-ubyte and train-labels-idx1-ubyte, with or without .gz"


def load_digits(_: Request) -> Parts:
    """Built-in digits, 8x8."""
    train, test = builtin.load_digits()
    return Parts(train, test, class_names=TEN_DIGITS, normalization=normalization.DIGITS)


def load_shapes(request: Request) -> Parts:
    """Built-in shapes with masks: ``num_samples`` for training and a quarter of that for test."""
    from ringlet.data.builtin import CLASS_NAMES, ShapesSource

    shape = request.input_shape or (3, *(request.image_size or (64, 64)))
    count = 512 if request.num_samples is None else request.num_samples
    classes = request.num_classes or 1
    train = ShapesSource(shape, count, num_classes=classes, seed=request.seed)
    test = ShapesSource(shape, max(1, count // 4), num_classes=classes, seed=request.seed, first=count)
    return Parts(train, test, class_names=CLASS_NAMES[classes], complete=True)


def load_synthetic(request: Request) -> Parts:
    """Synthetic data of any shape: ``num_samples`` for training and a fifth of that for test."""
    shape = request.input_shape or (1, *(request.image_size or (28, 28)))
    classes = 10 if request.num_classes is None else request.num_classes
    count = 10_000 if request.num_samples is None else request.num_samples
    train = SyntheticSource(shape, classes, count, seed=request.seed)
    test = SyntheticSource(shape, classes, max(1, count // 5), seed=request.seed, first=count)
    return Parts(train, test, complete=True)


def load_mnist(request: Request) -> Parts:
    """MNIST from idx files."""
    return _load_idx(request, 10, TEN_DIGITS, normalization.MNIST)


def load_fashion_mnist(request: Request) -> Parts:
    """Fashion-MNIST from idx files."""
    return _load_idx(request, 10, FASHION_CLASSES, normalization.FASHION_MNIST)


def load_idx(request: Request) -> Parts:
    """Any folder of idx files of the MNIST family."""
    return _load_idx(request, None, (), normalization.BYTES)


def load_cifar10(request: Request) -> Parts:
    """CIFAR-10, binary version; incomplete folders serve."""
    return _load_cifar(request, "cifar10", binary_files.CIFAR10_CLASSES, normalization.CIFAR10)


def load_cifar100(request: Request) -> Parts:
    """CIFAR-100, binary version, fine labels."""
    return _load_cifar(request, "cifar100", (), normalization.CIFAR100)


def load_npz(request: Request) -> Parts:
    """One npz file with several arrays, or one for training and one for test."""
    from ringlet.data.npz import load_parts

    return load_parts(request)


def load_imagenet(request: Request) -> Parts:
    """Folders of npz shards, each with x and y."""
    from ringlet.data.shards import load_parts

    return load_parts(request)


def load_folder(request: Request) -> Parts:
    """Image files: a folder per class, or images with masks."""
    from ringlet.data.folders import load_folders

    return load_folders(request)


def load_masks(request: Request) -> Parts:
    """Image files with masks."""
    from ringlet.data.folders import load_masks

    return load_masks(request)


LOADERS: dict[str, Loader] = {
    "digits": load_digits,
    "shapes": load_shapes,
    "synthetic": load_synthetic,
    "mnist": load_mnist,
    "fashion-mnist": load_fashion_mnist,
    "cifar10": load_cifar10,
    "cifar100": load_cifar100,
    "imagenet": load_imagenet,
    "idx": load_idx,
    "npz": load_npz,
    "folder": load_folder,
    "masks": load_masks,
}


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
