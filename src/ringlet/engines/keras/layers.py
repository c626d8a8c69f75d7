"""Operations of a spec as layers and operations of Keras, for the engine and for exports.

Images are (n, H, W, C), the only layout that TensorFlow has on processors, or (n, C, H, W), that of PyTorch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, final

import keras as typed_keras
import numpy as np
from numpy.typing import NDArray

from ringlet.kernels.contract import ARCTANH_LIMIT
from ringlet.models.attributes import Shape
from ringlet.models.pooling import Pads, pool_pads

keras: Any = typed_keras
"""It comes without types."""

Value = Any
"""A symbolic tensor of Keras."""

_LIMIT = 1 - 2 * float(np.finfo(np.float32).eps)
_NO_PADS: Pads = ((0, 0), (0, 0))


@dataclass(frozen=True)
class Form:
    """What there is to know about one operation to write it."""

    name: str
    op: str
    attributes: Mapping[str, Any]
    source: Shape
    """Of the first input, channels first and without the batch, as in the specs."""
    shape: Shape
    """Of the output."""
    bias: bool = False


@dataclass(frozen=True)
class Arrangement:
    """How Keras lays out a weight of the specs: taken as an array of ``shape``, with its axes in another order."""

    shape: Shape
    axes: tuple[int, ...]

    def apply(self, weight: Any, library: Any) -> Any:
        """The weight as Keras has it; ``library`` is ``numpy`` or ``keras.ops``."""
        return library.transpose(library.reshape(weight, self.shape), self.axes)


@contextmanager
def image_layout(*, channels_first: bool) -> Iterator[None]:
    """Within: layers are made for images (n, C, H, W) or (n, H, W, C), whatever Keras is set to."""
    usual = keras.config.image_data_format()
    keras.config.set_image_data_format("channels_first" if channels_first else "channels_last")
    try:
        yield
    finally:
        keras.config.set_image_data_format(usual)


@final
class LayerWriter:
    """Writes one functional model, within :func:`image_layout`; one method per operation that is more than a layer.

    ``initializer`` of weights is for models that get theirs in another way. ``taken`` are names that no layer may have.
    """

    def __init__(
        self, dtype: str, *, channels_first: bool, initializer: str | None = None, taken: Iterable[str] = ()
    ) -> None:
        self._dtype, self._initializer, self._channels_first = dtype, initializer, channels_first
        self._names = set(taken)
        self.weighted: dict[str, tuple[Any, Arrangement]] = {}
        """The layers that have a weight, and how they have it, by the names of their operations."""

    def write(self, form: Form, inputs: Sequence[Value]) -> Value:
        """The operation applied to values."""
        if form.op == "add":
            return keras.layers.Add(**self._options(form))(list(inputs))
        if form.op == "concat":
            return keras.layers.Concatenate(self._axis, **self._options(form))(list(inputs))
        write: Callable[[Form, Value], Value] | None = getattr(self, f"_{form.op}", None)
        if write is not None:
            return write(form, inputs[0])
        return keras.layers.Activation(form.op, **self._options(form))(inputs[0])

    def name(self, name: str) -> str:
        """A name that Keras takes and no other layer has."""
        plain = plain_name(name, self._names)
        self._names.add(plain)
        return plain

    @property
    def _axis(self) -> int:
        """That of the channels."""
        return 1 if self._channels_first else -1

    def _options(self, form: Form) -> dict[str, Any]:
        return {"dtype": self._dtype, "name": self.name(form.name)}

    def _start(self, role: str = "kernel") -> dict[str, Any]:
        return {} if self._initializer is None else {f"{role}_initializer": self._initializer}

    def _weighted(self, form: Form, made: Any, arrangement: Arrangement, value: Value) -> Value:
        self.weighted[form.name] = made, arrangement
        return made(value)

    def _dense(self, form: Form, value: Value) -> Value:
        units = form.attributes["units"]
        made = keras.layers.Dense(units, use_bias=form.bias, **self._start(), **self._options(form))
        return self._weighted(form, made, Arrangement((units, *form.source), (1, 0)), value)

    def _conv2d(self, form: Form, value: Value) -> Value:
        attributes, kernel = form.attributes, form.attributes["kernel"]
        value = self._padded(value, tuple((padding, padding) for padding in attributes["padding"]))
        filters, groups, stride, dilation = (attributes[name] for name in ("filters", "groups", "stride", "dilation"))
        taken_later = max(stride) > 1 and max(dilation) > 1  # Keras has no layer that does both
        options = {
            "strides": (1, 1) if taken_later else stride,
            "dilation_rate": dilation,
            "use_bias": form.bias,
            **self._options(form),
        }
        channels = form.source[0] // groups
        if groups > 1 and channels == 1 and stride[0] == stride[1] and dilation == (1, 1):
            multiplier = filters // groups
            made = keras.layers.DepthwiseConv2D(
                kernel, depth_multiplier=multiplier, **self._start("depthwise"), **options
            )
            arrangement = Arrangement((groups, multiplier, *kernel), (2, 3, 0, 1))
        else:
            made = keras.layers.Conv2D(filters, kernel, groups=groups, **self._start(), **options)
            arrangement = Arrangement((filters, channels, *kernel), (2, 3, 1, 0))
        result = self._weighted(form, made, arrangement, value)
        if not taken_later:
            return result
        steps = slice(None, None, stride[0]), slice(None, None, stride[1])
        return result[:, :, *steps] if self._channels_first else result[:, *steps]

    def _conv2d_transpose(self, form: Form, value: Value) -> Value:
        """Without padding, then cut to size: Keras pads transposed convolutions by rules of its own."""
        attributes, extents = form.attributes, form.source[1:]
        if any(
            extra > padding for extra, padding in zip(attributes["output_padding"], attributes["padding"], strict=True)
        ):
            value = self._padded(value, ((0, 1), (0, 1)))  # there nothing but the bias comes out
            extents = tuple(extent + 1 for extent in extents)
        filters, kernel, stride = (attributes[name] for name in ("filters", "kernel", "stride"))
        made = keras.layers.Conv2DTranspose(
            filters, kernel, strides=stride, use_bias=form.bias, **self._start(), **self._options(form)
        )
        arrangement = Arrangement((form.source[0], filters, *kernel), (2, 3, 1, 0))
        result = self._weighted(form, made, arrangement, value)
        crops = tuple(
            (padding, (extent - 1) * step + max(window, step) - padding - wanted)
            for extent, step, window, padding, wanted in zip(
                extents, stride, kernel, attributes["padding"], form.shape[1:], strict=True
            )
        )
        return keras.layers.Cropping2D(crops, dtype=self._dtype)(result) if crops != _NO_PADS else result

    def _padded(self, value: Value, pads: Pads | tuple[tuple[int, int], ...]) -> Value:
        if all(pair == (0, 0) for pair in pads):
            return value
        return keras.layers.ZeroPadding2D(pads, dtype=self._dtype)(value)

    def _max_pool2d(self, form: Form, value: Value) -> Value:
        pads = pool_pads(form.attributes, form.source, form.shape)
        if pads != _NO_PADS:
            lowest = float(np.finfo(np.float32).min)
            around = ((0, 0), (0, 0), *pads) if self._channels_first else ((0, 0), *pads, (0, 0))
            value = keras.ops.pad(value, around, constant_values=lowest)
        return self._window(keras.layers.MaxPooling2D, form, value)

    def _avg_pool2d(self, form: Form, value: Value) -> Value:
        """The mean of whole windows, times the share of each that lies inside the image, the other way round."""
        pads = pool_pads(form.attributes, form.source, form.shape)
        result = self._window(keras.layers.AveragePooling2D, form, self._padded(value, pads))
        if pads == _NO_PADS:
            return result
        kernels, strides = form.attributes["kernel"], form.attributes["stride"]
        shares = [
            _inverse_shares(extent, count, kernel, stride, pair[0])
            for extent, count, kernel, stride, pair in zip(
                form.source[1:], form.shape[1:], kernels, strides, pads, strict=True
            )
        ]
        factors = np.multiply.outer(*shares).astype(self._dtype)
        return result * (factors[None, None] if self._channels_first else factors[None, :, :, None])

    def _window(self, kind: Any, form: Form, value: Value) -> Value:
        return kind(form.attributes["kernel"], form.attributes["stride"], **self._options(form))(value)

    def _global_avg_pool2d(self, form: Form, value: Value) -> Value:
        return keras.layers.GlobalAveragePooling2D(**self._options(form))(value)

    def _global_max_pool2d(self, form: Form, value: Value) -> Value:
        return keras.layers.GlobalMaxPooling2D(**self._options(form))(value)

    def _flatten(self, form: Form, value: Value) -> Value:
        """Features in the order of the specs: channels first."""
        source = form.source
        if len(source) == 3 and source[0] > 1 and source[1] * source[2] > 1 and not self._channels_first:
            value = keras.layers.Permute((3, 1, 2), dtype=self._dtype)(value)
        return keras.layers.Flatten("channels_last", **self._options(form))(value)  # takes the axes as they are

    def _softmax(self, form: Form, value: Value) -> Value:
        return keras.layers.Softmax(self._axis, **self._options(form))(value)

    def _leaky_relu(self, form: Form, value: Value) -> Value:
        return keras.layers.LeakyReLU(negative_slope=form.attributes["slope"], **self._options(form))(value)

    def _arctanh(self, form: Form, value: Value) -> Value:  # noqa: ARG002
        """The arguments and results that the native engine allows: nothing becomes infinite."""
        inside = keras.ops.clip(value, -_LIMIT, _LIMIT)
        return keras.ops.clip(keras.ops.arctanh(inside), -ARCTANH_LIMIT, ARCTANH_LIMIT)


def plain_name(name: str, taken: Iterable[str] = ()) -> str:
    """A name that Keras takes and none of ``taken``: the slash is reserved."""
    plain = re.sub(r"[^A-Za-z0-9_.-]", "-", name)
    while plain in taken:
        plain += "_"
    return plain


def _inverse_shares(extent: int, count: int, kernel: int, stride: int, padding: int) -> NDArray[np.float64]:
    """Along one axis: the size of a window over how much of it lies inside the image."""
    start = np.arange(count) * stride - padding
    inside = np.minimum(start + kernel, extent) - np.maximum(start, 0)
    return np.asarray(kernel / inside, np.float64)
