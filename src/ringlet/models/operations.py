"""The table of operations: each one's attributes, number of inputs, shape, parameters and FLOPs.

This is the only place that knows what an operation means before any engine runs it. FLOPs are those of the forward
pass of one sample: two per multiply-add for convolutions and dense layers (bias not counted); for the others one per
element touched: pooling counts every element of every window, batch normalisation, activations and global pooling
each input element once, ``add`` each element per addition. Moving data (input, flatten, concat) and dropout, which
vanishes in inference, count zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

from ringlet.errors import SpecError, show
from ringlet.models.attributes import (
    MAX_CHANNELS,
    Check,
    Shape,
    by,
    check_extents,
    check_shape,
    choice,
    flag,
    integer,
    pair,
    real,
)

Attributes = Mapping[str, Any]
Shapes = Sequence[Shape]
Role = Literal["weight", "bias", "scale", "shift", "running_mean", "running_var"]

INITIALIZERS = ("glorot_uniform", "glorot_normal", "he_uniform", "he_normal", "lecun_uniform", "lecun_normal")
STATE_ROLES = ("running_mean", "running_var")
MAX_POOL_WINDOW = 255


@dataclass(frozen=True)
class TensorRule:
    """A tensor that an operation owns: its role, shape, how it starts and its fans."""

    role: Role
    shape: Shape
    initializer: str
    fan_in: int = 1
    fan_out: int = 1


def _no_tensors(attributes: Attributes, inputs: Shapes) -> Sequence[TensorRule]:  # noqa: ARG001
    return ()


def _no_flops(attributes: Attributes, inputs: Shapes, output: Shape) -> int:  # noqa: ARG001
    return 0


@dataclass(frozen=True)
class Operation:
    """One operation. ``multiplies`` marks the ones whose cost is multiply-adds: convolutions and dense layers."""

    name: str
    prefix: str
    infer: Callable[[Attributes, Shapes], Shape]
    attributes: Mapping[str, Check]
    min_inputs: int = 1
    max_inputs: int = 1
    tensors: Callable[[Attributes, Shapes], Sequence[TensorRule]] = _no_tensors
    flops: Callable[[Attributes, Shapes, Shape], int] = _no_flops
    multiplies: bool = False

    def check_attributes(self, given: Attributes) -> dict[str, Any]:
        """The attributes in canonical form and order; unknown, missing and wrong ones are errors."""
        unknown, missing = sorted(map(str, given.keys() - self.attributes)), sorted(self.attributes.keys() - given)
        if unknown or missing:
            problem = f"unknown attribute {show(unknown[0])}" if unknown else f"attribute '{missing[0]}' is missing"
            raise SpecError(f"{problem}; {self.name} takes {', '.join(self.attributes) or 'no attributes'}")
        checked = {}
        for name, check in self.attributes.items():
            try:
                checked[name] = check(given[name])
            except SpecError as error:
                raise SpecError(f"{name} {error}") from None
        return checked

    def check_inputs(self, num_inputs: int) -> None:
        """Refuse a wrong number of inputs."""
        if not self.min_inputs <= num_inputs <= self.max_inputs:
            wanted = str(self.min_inputs) if self.min_inputs == self.max_inputs else f"at least {self.min_inputs}"
            raise SpecError(f"{self.name} takes {wanted} input(s), got {num_inputs}")

    def output_shape(self, attributes: Attributes, inputs: Shapes) -> Shape:
        """The shape of the output, within sane limits."""
        shape = self.infer(attributes, inputs)
        try:
            check_extents(shape)
        except SpecError as error:
            raise SpecError(f"the output shape {error}") from None
        return shape


# -- shapes -----------------------------------------------------------------------------------------------------------
def _image(name: str, shape: Shape) -> Shape:
    if len(shape) != 3:
        raise SpecError(f"{name} needs an image (channels, height, width), got shape {shape}")
    return shape


def _same(attributes: Attributes, inputs: Shapes) -> Shape:  # noqa: ARG001
    return inputs[0]


def _window_misfit(window: Sequence[int], shape: Shape, padding: Sequence[int]) -> SpecError:
    padded = f" even with padding {by(padding)}" if any(padding) else ""
    return SpecError(
        f"{by(window)} window does not fit {by(shape[1:])} input{padded}; "
        "use a smaller window, more padding or larger images"
    )


def _dense_shape(attributes: Attributes, inputs: Shapes) -> Shape:
    if len(inputs[0]) != 1:
        raise SpecError(f"dense needs features (one axis), got shape {inputs[0]}; put a flatten before it")
    return (attributes["units"],)


def _conv2d_shape(attributes: Attributes, inputs: Shapes) -> Shape:
    channels, *extents = _image("conv2d", inputs[0])
    filters, groups = attributes["filters"], attributes["groups"]
    if channels % groups or filters % groups:
        raise SpecError(f"{groups} groups must divide the {channels} input channels and the {filters} filters")
    window = [
        dilation * (kernel - 1) + 1
        for kernel, dilation in zip(attributes["kernel"], attributes["dilation"], strict=True)
    ]
    sizes = [
        (extent + 2 * padding - reach) // stride + 1
        for extent, reach, padding, stride in zip(
            extents, window, attributes["padding"], attributes["stride"], strict=True
        )
    ]
    if min(sizes) < 1:
        raise _window_misfit(window, inputs[0], attributes["padding"])
    return (filters, *sizes)


def _conv2d_transpose_shape(attributes: Attributes, inputs: Shapes) -> Shape:
    _, *extents = _image("conv2d_transpose", inputs[0])
    stride, extra = attributes["stride"], attributes["output_padding"]
    if extra[0] >= stride[0] or extra[1] >= stride[1]:
        raise SpecError(f"output_padding {by(extra)} must be smaller than the stride {by(stride)}")
    sizes = [
        (extent - 1) * step - 2 * padding + kernel + more
        for extent, step, padding, kernel, more in zip(
            extents, stride, attributes["padding"], attributes["kernel"], extra, strict=True
        )
    ]
    if min(sizes) < 1:
        raise SpecError(
            f"padding {by(attributes['padding'])} leaves nothing of a {by(extents)} input; use less padding"
        )
    return (attributes["filters"], *sizes)


def pooled_extent(extent: int, kernel: int, stride: int, padding: int, *, ceil_mode: bool) -> int:
    """The number of windows along one axis; ``ceil_mode`` adds a cut one, unless it starts in the padding."""
    span = extent + 2 * padding - kernel + (stride - 1 if ceil_mode else 0)
    count = span // stride + 1
    if ceil_mode and (count - 1) * stride >= extent + padding:
        count -= 1
    return count


def _pool_shape(attributes: Attributes, inputs: Shapes) -> Shape:
    channels, *extents = _image("pooling", inputs[0])
    kernel, padding = attributes["kernel"], attributes["padding"]
    if any(2 * border > window for border, window in zip(padding, kernel, strict=True)):
        raise SpecError(f"padding {by(padding)} must be at most half of the {by(kernel)} window")
    sizes = [
        pooled_extent(*numbers, ceil_mode=attributes["ceil_mode"])
        for numbers in zip(extents, kernel, attributes["stride"], padding, strict=True)
    ]
    if min(sizes) < 1:
        raise _window_misfit(kernel, inputs[0], padding)
    return (channels, *sizes)


def _global_pool_shape(attributes: Attributes, inputs: Shapes) -> Shape:  # noqa: ARG001
    return _image("global pooling", inputs[0])[:1]


def _flatten_shape(attributes: Attributes, inputs: Shapes) -> Shape:  # noqa: ARG001
    return (prod(inputs[0]),)


def _add_shape(attributes: Attributes, inputs: Shapes) -> Shape:  # noqa: ARG001
    for shape in inputs:
        if shape != inputs[0]:
            raise SpecError(f"add needs equal shapes, got {inputs[0]} and {shape}")
    return inputs[0]


def _concat_shape(attributes: Attributes, inputs: Shapes) -> Shape:  # noqa: ARG001
    for shape in inputs:
        if shape[1:] != inputs[0][1:]:
            raise SpecError(f"concat joins channels, so the other extents must be equal; got {inputs[0]} and {shape}")
    return (sum(shape[0] for shape in inputs), *inputs[0][1:])


# -- parameters -------------------------------------------------------------------------------------------------------
def _with_bias(attributes: Attributes, weight: TensorRule, num_outputs: int) -> Sequence[TensorRule]:
    bias = TensorRule("bias", (num_outputs,), "zeros", weight.fan_in, weight.fan_out)
    return (weight, bias) if attributes["bias"] else (weight,)


def _dense_tensors(attributes: Attributes, inputs: Shapes) -> Sequence[TensorRule]:
    features, units = inputs[0][0], attributes["units"]
    weight = TensorRule("weight", (units, features), attributes["initializer"], features, units)
    return _with_bias(attributes, weight, units)


def _conv2d_tensors(attributes: Attributes, inputs: Shapes) -> Sequence[TensorRule]:
    filters, groups, kernel = attributes["filters"], attributes["groups"], attributes["kernel"]
    channels = inputs[0][0] // groups
    fans = channels * prod(kernel), filters // groups * prod(kernel)
    weight = TensorRule("weight", (filters, channels, *kernel), attributes["initializer"], *fans)
    return _with_bias(attributes, weight, filters)


def _conv2d_transpose_tensors(attributes: Attributes, inputs: Shapes) -> Sequence[TensorRule]:
    """``fan_in`` is the number of products in one output element: only every stride-th tap of the kernel meets it."""
    filters, kernel, channels = attributes["filters"], attributes["kernel"], inputs[0][0]
    taps = prod(-(-extent // stride) for extent, stride in zip(kernel, attributes["stride"], strict=True))
    fans = channels * taps, filters * prod(kernel)
    weight = TensorRule("weight", (channels, filters, *kernel), attributes["initializer"], *fans)
    return _with_bias(attributes, weight, filters)


def _batch_norm_tensors(attributes: Attributes, inputs: Shapes) -> Sequence[TensorRule]:  # noqa: ARG001
    shape = inputs[0][:1]
    return (
        TensorRule("scale", shape, "ones"),
        TensorRule("shift", shape, "zeros"),
        TensorRule("running_mean", shape, "zeros"),
        TensorRule("running_var", shape, "ones"),
    )


# -- FLOPs ------------------------------------------------------------------------------------------------------------
def _dense_flops(attributes: Attributes, inputs: Shapes, output: Shape) -> int:  # noqa: ARG001
    return 2 * prod(inputs[0]) * prod(output)


def _conv2d_flops(attributes: Attributes, inputs: Shapes, output: Shape) -> int:
    products: int = inputs[0][0] // attributes["groups"] * prod(attributes["kernel"])
    return 2 * products * prod(output)


def _conv2d_transpose_flops(attributes: Attributes, inputs: Shapes, output: Shape) -> int:  # noqa: ARG001
    products: int = attributes["filters"] * prod(attributes["kernel"])
    return 2 * products * prod(inputs[0])


def _pool_flops(attributes: Attributes, inputs: Shapes, output: Shape) -> int:  # noqa: ARG001
    area: int = prod(attributes["kernel"])
    return area * prod(output)


def _one_per_input(attributes: Attributes, inputs: Shapes, output: Shape) -> int:  # noqa: ARG001
    return prod(inputs[0])


def _add_flops(attributes: Attributes, inputs: Shapes, output: Shape) -> int:  # noqa: ARG001
    return (len(inputs) - 1) * prod(output)


# -- the table --------------------------------------------------------------------------------------------------------
_UNITS = integer(1, MAX_CHANNELS)
_TRAINED = {"bias": flag(), "initializer": choice(INITIALIZERS)}
_WINDOW = {"kernel": pair(1), "stride": pair(1), "padding": pair(0)}
_CONV2D = {"filters": _UNITS, **_WINDOW, "dilation": pair(1), "groups": _UNITS, **_TRAINED}
_CONV2D_TRANSPOSE = {"filters": _UNITS, **_WINDOW, "output_padding": pair(0), **_TRAINED}
_POOL = {**_WINDOW, "kernel": pair(1, MAX_POOL_WINDOW), "ceil_mode": flag()}
_BATCH_NORM = {"momentum": real(0, 1, below=True), "epsilon": real(0, 1, above=True)}
ACTIVATIONS = ("relu", "relu6", "sigmoid", "tanh", "arctanh", "log_sigmoid", "softmax")


def _input_shape(attributes: Attributes, inputs: Shapes) -> Shape:  # noqa: ARG001
    shape: Shape = attributes["shape"]
    return shape


def _elementwise(name: str, **attributes: Check) -> Operation:
    return Operation(name, name, _same, attributes, flops=_one_per_input)


_TABLE = (
    Operation("input", "input", _input_shape, {"shape": check_shape}, min_inputs=0, max_inputs=0),
    Operation(
        "dense", "dense", _dense_shape, {"units": _UNITS, **_TRAINED},
        tensors=_dense_tensors, flops=_dense_flops, multiplies=True,
    ),
    Operation(
        "conv2d", "conv", _conv2d_shape, _CONV2D,
        tensors=_conv2d_tensors, flops=_conv2d_flops, multiplies=True,
    ),
    Operation(
        "conv2d_transpose", "upconv", _conv2d_transpose_shape, _CONV2D_TRANSPOSE,
        tensors=_conv2d_transpose_tensors, flops=_conv2d_transpose_flops, multiplies=True,
    ),
    Operation("max_pool2d", "pool", _pool_shape, _POOL, flops=_pool_flops),
    Operation("avg_pool2d", "pool", _pool_shape, _POOL, flops=_pool_flops),
    Operation("global_avg_pool2d", "global_pool", _global_pool_shape, {}, flops=_one_per_input),
    Operation("global_max_pool2d", "global_pool", _global_pool_shape, {}, flops=_one_per_input),
    Operation("batch_norm", "norm", _same, _BATCH_NORM, tensors=_batch_norm_tensors, flops=_one_per_input),
    Operation("dropout", "dropout", _same, {"rate": real(0, 1, below=True)}),
    Operation("flatten", "flatten", _flatten_shape, {}),
    Operation("add", "add", _add_shape, {}, min_inputs=2, max_inputs=1 << 16, flops=_add_flops),
    Operation("concat", "concat", _concat_shape, {}, min_inputs=2, max_inputs=1 << 16),
    _elementwise("leaky_relu", slope=real(0, 1)),
    *(_elementwise(name) for name in ACTIVATIONS),
)  # fmt: skip
OPERATIONS: Mapping[str, Operation] = {operation.name: operation for operation in _TABLE}
"""Every operation by its name."""
