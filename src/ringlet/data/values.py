"""Arrays of any library as NumPy arrays: PyTorch, TensorFlow, JAX, pandas, Pillow, lists. None of them is imported.

What an object is follows from its methods, so that a library which a program does not use costs nothing, and one that
does not exist yet works if it follows the conventions (``__array__``, ``numpy()``, ``to_numpy()``).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ringlet.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

Channels: TypeAlias = Literal["first", "last"]
COLOUR_CHANNELS = (1, 3, 4)
"""How many channels pictures have; an axis of another length may be a height or a width."""
_CHUNK_BYTES = 16 << 20
_PLAIN_MODES = {1: "L", 3: "RGB", 4: "RGBA"}


def type_name(value: object) -> str:
    """How messages call the type of a value: ``torch.Tensor``, ``list``."""
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def is_instance_of(value: object, module: str, name: str) -> bool:
    """Whether ``value`` is of a class of a library, without importing it: what was not loaded has no instances."""
    kind: Any = sys.modules.get(module)
    for part in name.split("."):
        kind = getattr(kind, part, None)
    return isinstance(kind, type) and isinstance(value, kind)


def is_picture(value: object) -> bool:
    """Whether it is an image of Pillow."""
    return is_instance_of(value, "PIL.Image", "Image")


def is_array_like(value: object) -> bool:
    """Whether it is an array with at least one axis, or a list of numbers, of texts or of such lists."""
    if isinstance(value, list):
        return bool(value) and not isinstance(value[0], tuple | Mapping) and not is_picture(value[0])
    if isinstance(value, str | bytes | tuple | Mapping) or is_picture(value):
        return False
    shape = getattr(value, "shape", None)
    return shape is not None and len(shape) > 0 if _has_length(shape) else hasattr(value, "__array__")


def _has_length(shape: object) -> bool:
    try:
        return len(shape) >= 0  # type: ignore[arg-type]
    except (TypeError, ValueError):  # a shape of TensorFlow of unknown rank has none
        return False


def as_array(value: Any, what: str) -> NDArray[Any]:
    """``value`` as an array of numbers or texts, with the bytes of its owner where that is possible."""
    array = _converted(value, what)
    if isinstance(array, np.ma.MaskedArray):
        if np.ma.is_masked(array):
            raise DataError(f"{what}: {int(np.ma.getmaskarray(array).sum()):,} values are masked: fill them first")
        array = array.data
    if array.dtype.kind == "V" and array.dtype.name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        array = array.astype(np.float32)
    if array.dtype.kind == "O":
        array = _of_objects(array, what)
    if array.dtype.kind not in "biufUS":
        raise DataError(f"{what}: values of type {array.dtype}: expected numbers")
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _converted(value: Any, what: str) -> NDArray[Any]:
    if isinstance(value, np.ndarray | np.generic):
        return np.asanyarray(value)
    if is_picture(value):
        return picture_values(value)
    if isinstance(value, list | tuple):
        return _of_list(value, what)
    try:
        if hasattr(value, "detach"):  # of PyTorch: on another device, with gradients, of a type that NumPy lacks
            tensor = value.detach().cpu()
            return np.asarray(tensor.float() if "float8" in str(tensor.dtype) or _is_bfloat16(tensor) else tensor)
        for method in ("to_numpy", "numpy"):
            if hasattr(value, method):
                return np.asarray(getattr(value, method)())
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError, NotImplementedError) as error:
        raise DataError(f"{what}: {type_name(value)} cannot become an array ({error})") from error


def _is_bfloat16(tensor: Any) -> bool:
    return str(tensor.dtype) == "torch.bfloat16"


def _of_list(values: Sequence[Any], what: str) -> NDArray[Any]:
    """An array of a list of numbers, texts, lists, arrays or pictures, which must all have one shape."""
    if values and not isinstance(values[0], int | float | str | bool | list | tuple):
        rows = [as_array(value, f"{what}[{index}]") for index, value in enumerate(values)]
        other = next((index for index, row in enumerate(rows) if row.shape != rows[0].shape), None)
        if other is not None:
            raise DataError(
                f"{what}: item {other} has shape {rows[other].shape}, the first one {rows[0].shape}: expected one shape"
            )
        return np.stack(rows)
    try:
        return np.asarray(values)
    except ValueError as error:
        raise DataError(f"{what}: a list of unequal parts ({error}): expected one shape") from error


def _of_objects(array: NDArray[Any], what: str) -> NDArray[Any]:
    """What an array of Python objects holds, if these are texts or numbers alone, as pandas gives them."""
    if array.ndim >= 1 and array.size and all(isinstance(item, str) for item in array.flat):
        return array.astype(str)
    if array.ndim >= 1 and array.size and all(isinstance(item, int | float | np.number) for item in array.flat):
        return array.astype(np.float64 if any(isinstance(item, float | np.floating) for item in array.flat) else int)
    first = next((item for item in array.flat if not isinstance(item, int | float)), None)
    raise DataError(
        f"{what}: an array of Python objects, such as {type_name(first)}: expected numbers in one array. Parts of "
        "unequal shape must be brought to one shape first; a table with texts is given as a whole, with target="
    )


def picture_values(picture: Image, channels: int | None = None) -> NDArray[Any]:
    """Bytes of a picture of Pillow: (C, H, W), or (H, W) of a picture without colours if ``channels`` is None.

    Indices of palettes stay as they are then: they may be the classes of a mask.
    """
    if channels is not None:
        values = np.asarray(picture if picture.mode == _PLAIN_MODES[channels] else _in_mode(picture, channels))
        return values[None] if values.ndim == 2 else np.moveaxis(values, 2, 0)
    values = np.asarray(picture)
    if values.dtype == bool:
        return values.astype(np.uint8)
    return values if values.ndim == 2 else np.moveaxis(np.asarray(picture.convert("RGB")), 2, 0)


def _in_mode(picture: Image, channels: int) -> Image:
    from ringlet.data.images import is_sixteen_bit, to_grey

    return (to_grey(picture) if is_sixteen_bit(picture) else picture).convert(_PLAIN_MODES[channels])


# -- checks -----------------------------------------------------------------------------------------------------------
def chunks(values: NDArray[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
    """Some rows of an array at a time, each with the number of its first row."""
    num_rows = max(1, _CHUNK_BYTES // max(values[:1].nbytes, 1))
    for start in range(0, len(values), num_rows):
        yield start, values[start : start + num_rows]


def first_not_finite(values: NDArray[Any]) -> int | None:
    """The number of the first row with NaN or an infinity."""
    if values.dtype.kind != "f":
        return None
    for start, rows in chunks(values):
        bad = ~np.isfinite(rows)
        if bad.any():
            return start + int(bad.reshape(len(rows), -1).any(axis=1).argmax())
    return None


def check_inputs(values: NDArray[Any], what: str) -> None:
    """Refuse texts, no samples at all, and NaN; of memory-mapped files nothing is read."""
    if values.dtype.kind in "US":
        raise DataError(f"{what}: texts: expected numbers. A table with texts is given as a whole, with target=")
    if values.size == 0:
        raise DataError(f"{what}: shape {values.shape}: expected at least one sample")
    if not _is_mapped(values) and (row := first_not_finite(values)) is not None:
        raise DataError(f"{what}: sample {row} has values that are not finite: remove or fill them first")


def _is_mapped(values: NDArray[Any]) -> bool:
    base: Any = values
    while base is not None:
        if isinstance(base, np.memmap):
            return True
        base = getattr(base, "base", None)
    return False


def value_range(values: NDArray[Any], num_rows: int = 256) -> tuple[float, float]:
    """The smallest and the largest of the values of some rows, evenly spread."""
    picks = np.unique(np.linspace(0, len(values) - 1, min(num_rows, len(values))).astype(np.int64))
    some = values[picks]
    return float(some.min()), float(some.max())


def as_images(values: NDArray[Any], channels: Channels | None, what: str) -> tuple[NDArray[Any], Channels, list[str]]:
    """A view of inputs as (n, C, H, W) or (n, F), where its channels were, and remarks about what was understood.

    Of four axes the last counts channels if it has 1, 3 or 4 and the second does not; else the second does.
    """
    shape = values.shape
    if values.ndim == 1:
        values = values[:, None]
    if channels is not None and values.ndim != 4:
        raise DataError(f"{what}: shape {shape} has no axis of channels: leave channels = '{channels}' out")
    if values.ndim == 2:
        return values, "first", []
    if values.ndim == 3:
        return values[:, None], "first", [f"{what}: {_text(shape)} is taken as images of one channel"]
    if values.ndim != 4:
        raise DataError(f"{what}: shape {shape}: expected (n, h, w), (n, c, h, w), (n, h, w, c) or (n, f)")
    if channels is not None:
        return (np.moveaxis(values, 3, 1) if channels == "last" else values), channels, []
    first, last = shape[1] in COLOUR_CHANNELS, shape[3] in COLOUR_CHANNELS
    if last and not first:
        remark = f"{what}: {_text(shape)} is taken as (n, height, width, channels)"
        return np.moveaxis(values, 3, 1), "last", [remark]
    if first and not last:
        return values, "first", []
    why = "both ends may count channels" if last else "no axis has 1, 3 or 4"
    remark = f"{what}: {_text(shape)} is taken as (n, channels, height, width): {why}; channels='last' says otherwise"
    return values, "first", [remark]


def _text(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))})"
