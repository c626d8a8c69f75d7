"""Plain functions that write a graph.

``x = image_input((1, 28, 28)); x = relu(conv2d(x, 4, kernel=3)); …; build("mine", x)``. Every function takes the
tensors it works on and returns the new one. Shapes are inferred at once, so a mistake is reported by the line that
made it. Nodes are named by their kind and a counter (``conv1``, ``relu1``, …) unless ``name=`` says otherwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ringlet.errors import SpecError, show
from ringlet.models.spec import ModelSpec, Node, operation_of
from ringlet.operations import OPERATIONS
from ringlet.operations.attributes import Shape, is_integer

Pair = tuple[int, int]
Window = int | Sequence[int]
Padding = Literal["same", "valid"] | int | Sequence[int]
DEFAULT_INITIALIZER = "glorot_uniform"


@dataclass(eq=False)
class Graph:
    """The nodes written so far and their shapes."""

    nodes: list[Node] = field(default_factory=list)
    shapes: dict[str, Shape] = field(default_factory=dict)
    counters: Counter[str] = field(default_factory=Counter)

    def append(self, op: str, inputs: Sequence[str], attributes: dict[str, Any], name: str | None) -> Tensor:
        """Add a node and return its output."""
        node = Node(self._free_name(op) if name is None else name, op, tuple(inputs), attributes)
        if node.name in self.shapes:
            raise SpecError(f"node '{node.name}' is defined twice; names must be unique")
        try:
            shape = node.operation.output_shape(node.attributes, [self.shapes[source] for source in inputs])
        except SpecError as error:
            raise SpecError(f"node '{node.name}': {error}") from None
        self.nodes.append(node)
        self.shapes[node.name] = shape
        return Tensor(self, node.name, shape)

    def _free_name(self, op: str) -> str:
        operation = operation_of(op)
        prefix = operation.prefix or operation.name
        while True:
            self.counters[prefix] += 1
            name = f"{prefix}{self.counters[prefix]}"
            if name not in self.shapes:
                return name


@dataclass(frozen=True, eq=False)
class Tensor:
    """A handle on a node's output while a graph is being written."""

    graph: Graph = field(repr=False)
    name: str
    shape: Shape


def image_input(shape: Sequence[int], *, name: str = "input") -> Tensor:
    """Start a graph: the shape of one sample, ``(channels, height, width)`` or ``(features,)``."""
    return Graph().append("input", (), {"shape": shape}, name)


def build(name: str, output: Tensor) -> ModelSpec:
    """The finished network; ``output`` must be the last tensor made and everything before it must be used."""
    graph = _graph(output)
    if graph.nodes[-1].name != output.name:
        raise SpecError(
            f"the output '{output.name}' is not the last node: '{graph.nodes[-1].name}' was added after it; "
            "remove what the output does not need"
        )
    return ModelSpec(name, tuple(graph.nodes))


def apply(op: str, *tensors: Tensor, name: str | None = None, **attributes: Any) -> Tensor:
    """Any operation by its name, also one of a plugin, with all its attributes."""
    graphs = {_graph(tensor) for tensor in tensors}
    if len(graphs) > 1:
        raise SpecError(f"{op}: its inputs belong to different graphs; start from one image_input")
    if not graphs:
        raise SpecError(f"{op} takes at least one input")
    return graphs.pop().append(op, [tensor.name for tensor in tensors], attributes, name)


# -- layers with parameters -------------------------------------------------------------------------------------------
def dense(
    x: Tensor, units: int, *, bias: bool = True, initializer: str = DEFAULT_INITIALIZER, name: str | None = None
) -> Tensor:
    """A fully connected layer on features."""
    return apply("dense", x, name=name, units=units, bias=bias, initializer=initializer)


def conv2d(
    x: Tensor,
    filters: int,
    *,
    kernel: Window,
    stride: Window = 1,
    padding: Padding = "valid",
    dilation: Window = 1,
    groups: int = 1,
    bias: bool = True,
    initializer: str = DEFAULT_INITIALIZER,
    name: str | None = None,
) -> Tensor:
    """A convolution; ``padding`` is "valid" (none), "same" (the input's size divided by the stride) or numbers."""
    return apply(
        "conv2d", x, name=name, filters=filters, kernel=_pair(kernel), stride=_pair(stride),
        padding=_padding(padding, kernel, dilation), dilation=_pair(dilation), groups=groups, bias=bias,
        initializer=initializer,
    )  # fmt: skip


def depthwise_conv2d(x: Tensor, *, kernel: Window, **options: Any) -> Tensor:
    """A convolution of each channel with its own kernel: as many groups and filters as channels."""
    return conv2d(x, x.shape[0], kernel=kernel, groups=x.shape[0], **options)


def conv2d_transpose(
    x: Tensor,
    filters: int,
    *,
    kernel: Window,
    stride: Window = 1,
    padding: Window = 0,
    output_padding: Window = 0,
    bias: bool = True,
    initializer: str = DEFAULT_INITIALIZER,
    name: str | None = None,
) -> Tensor:
    """The transpose of a convolution: enlarges images by the stride."""
    return apply(
        "conv2d_transpose", x, name=name, filters=filters, kernel=_pair(kernel), stride=_pair(stride),
        padding=_pair(padding), output_padding=_pair(output_padding), bias=bias, initializer=initializer,
    )  # fmt: skip


def batch_norm(x: Tensor, *, momentum: float = 0.9, epsilon: float = 1e-5, name: str | None = None) -> Tensor:
    """Normalise each channel over the batch; ``momentum`` is the share kept of the old running statistics."""
    return apply("batch_norm", x, name=name, momentum=momentum, epsilon=epsilon)


# -- layers without parameters ----------------------------------------------------------------------------------------
def max_pool2d(
    x: Tensor, kernel: Window, *, stride: Window | None = None, padding: Padding = 0, ceil_mode: bool = False,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """The maximum of each window; the stride defaults to the window."""
    return _pool("max_pool2d", x, kernel, stride, padding, ceil_mode, name)


def avg_pool2d(
    x: Tensor, kernel: Window, *, stride: Window | None = None, padding: Padding = 0, ceil_mode: bool = False,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """The mean of each window, padding not counted; the stride defaults to the window."""
    return _pool("avg_pool2d", x, kernel, stride, padding, ceil_mode, name)


def global_avg_pool2d(x: Tensor, *, name: str | None = None) -> Tensor:
    """The mean of each channel."""
    return apply("global_avg_pool2d", x, name=name)


def global_max_pool2d(x: Tensor, *, name: str | None = None) -> Tensor:
    """The maximum of each channel."""
    return apply("global_max_pool2d", x, name=name)


def dropout(x: Tensor, rate: float, *, name: str | None = None) -> Tensor:
    """Zero a share ``rate`` of the elements in training and scale the rest."""
    return apply("dropout", x, name=name, rate=rate)


def flatten(x: Tensor, *, name: str | None = None) -> Tensor:
    """An image as features, in the order channel, row, column."""
    return apply("flatten", x, name=name)


def add(*tensors: Tensor, name: str | None = None) -> Tensor:
    """The sum of tensors of equal shape."""
    return apply("add", *tensors, name=name)


def concat(*tensors: Tensor, name: str | None = None) -> Tensor:
    """Tensors joined along their channels."""
    return apply("concat", *tensors, name=name)


# -- activations ------------------------------------------------------------------------------------------------------
def activation(x: Tensor, kind: str, *, name: str | None = None) -> Tensor:
    """An activation without attributes, by its name."""
    if not (known := operation_of(kind)).is_activation or known.attributes:
        plain = [name for name, found in OPERATIONS.items() if found.is_activation and not found.attributes]
        raise SpecError(f"unknown activation {show(kind)}; known: {', '.join(plain)}")
    return apply(kind, x, name=name)


def relu(x: Tensor, *, name: str | None = None) -> Tensor:
    """``max(x, 0)``."""
    return apply("relu", x, name=name)


def leaky_relu(x: Tensor, *, slope: float = 0.01, name: str | None = None) -> Tensor:
    """``x`` if positive, else ``slope * x``."""
    return apply("leaky_relu", x, name=name, slope=slope)


def relu6(x: Tensor, *, name: str | None = None) -> Tensor:
    """``min(max(x, 0), 6)``."""
    return apply("relu6", x, name=name)


def sigmoid(x: Tensor, *, name: str | None = None) -> Tensor:
    """``1 / (1 + exp(-x))``."""
    return apply("sigmoid", x, name=name)


def tanh(x: Tensor, *, name: str | None = None) -> Tensor:
    """The hyperbolic tangent."""
    return apply("tanh", x, name=name)


def arctanh(x: Tensor, *, name: str | None = None) -> Tensor:
    """The inverse hyperbolic tangent."""
    return apply("arctanh", x, name=name)


def log_sigmoid(x: Tensor, *, name: str | None = None) -> Tensor:
    """``log(sigmoid(x))``."""
    return apply("log_sigmoid", x, name=name)


def softmax(x: Tensor, *, name: str | None = None) -> Tensor:
    """Probabilities over channels or features."""
    return apply("softmax", x, name=name)


# -- helpers ----------------------------------------------------------------------------------------------------------
def _graph(tensor: object) -> Graph:
    if not isinstance(tensor, Tensor):
        raise SpecError(f"expected a tensor made by a builder function, got {show(tensor)}")
    return tensor.graph


def _pool(
    op: str, x: Tensor, kernel: Window, stride: Window | None, padding: Padding, ceil_mode: bool, name: str | None
) -> Tensor:
    return apply(
        op, x, name=name, kernel=_pair(kernel), stride=_pair(kernel if stride is None else stride),
        padding=_padding(padding, kernel, 1), ceil_mode=ceil_mode,
    )  # fmt: skip


def _pair(value: Window) -> Any:
    """A number as a pair; what is neither is left for the attribute's check to refuse."""
    return (value, value) if is_integer(value) else value


def _padding(padding: Padding, kernel: Window, dilation: Window) -> Any:
    if not isinstance(padding, str):
        return _pair(padding)
    if padding == "valid":
        return (0, 0)
    if padding != "same":
        raise SpecError(f"padding must be 'same', 'valid', a number or two numbers, got {show(padding)}")
    extents, steps = _pair(kernel), _pair(dilation)
    if not all(isinstance(numbers, (list, tuple)) and len(numbers) == 2 for numbers in (extents, steps)):
        return (0, 0)  # the check of kernel or dilation refuses this node with a better message
    reach = [step * (extent - 1) for extent, step in zip(extents, steps, strict=True)]
    if any(span % 2 for span in reach):
        raise SpecError(f"padding 'same' needs an odd window, got {show(extents)}; give the padding as numbers")
    return tuple(span // 2 for span in reach)
