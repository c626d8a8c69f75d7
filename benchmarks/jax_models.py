"""The same training step in JAX: a pure function of parameters and batch, compiled by ``jax.jit``; Adam by hand.

XLA chooses layouts inside a program, but convolutions on processors are faster when images come with their channels
last; weights stay as Ringlet has them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks.cases import Case
from benchmarks.steps import LEARNING_RATE
from ringlet.models.spec import ModelSpec, Node
from ringlet.operations.pooling import pool_pads

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-7
Arrays = dict[str, Any]


def jax_step(case: Case, *, channels_last: bool) -> Callable[[], float]:
    """A function that trains one step and gives its loss."""
    import jax
    import jax.numpy as jnp

    from ringlet.models.initializers import initial_values

    spec = case.spec
    parameters = {info.name: jnp.asarray(initial_values(info, 0, "float32")) for info in spec.parameters}
    state = {info.name: jnp.asarray(initial_values(info, 0, "float32")) for info in spec.state}
    inputs, targets = case.batch()
    if channels_last and inputs.ndim == 4:
        inputs = np.ascontiguousarray(np.moveaxis(inputs, 1, 3))
    network = Network(spec, channels_last=channels_last)

    def loss_of(parameters: Arrays, state: Arrays, inputs: Any, targets: Any, key: Any) -> tuple[Any, Arrays]:
        logits, state = network(parameters, state, inputs, key)
        return loss(case, logits, targets), state

    def update(training: tuple[Any, ...], inputs: Any, targets: Any) -> tuple[Any, tuple[Any, ...]]:
        parameters, state, first, second, step = training
        key = jax.random.fold_in(jax.random.key(0), step)
        gradient = jax.value_and_grad(loss_of, has_aux=True)
        (value, state), gradients = gradient(parameters, state, inputs, targets, key)
        step = step + 1
        rate = LEARNING_RATE * jnp.sqrt(1 - BETA2**step) / (1 - BETA1**step)
        first = jax.tree.map(lambda m, g: BETA1 * m + (1 - BETA1) * g, first, gradients)
        second = jax.tree.map(lambda v, g: BETA2 * v + (1 - BETA2) * g * g, second, gradients)
        parameters = jax.tree.map(lambda p, m, v: p - rate * m / (jnp.sqrt(v) + EPSILON), parameters, first, second)
        return value, (parameters, state, first, second, step)

    compiled = jax.jit(update, donate_argnums=0)
    zeros = jax.tree.map(jnp.zeros_like, parameters)
    training = [(parameters, state, zeros, jax.tree.map(jnp.zeros_like, parameters), jnp.float32(0))]
    x, t = jnp.asarray(inputs), jnp.asarray(targets)

    def step() -> float:
        value, training[0] = compiled(training[0], x, t)
        jax.block_until_ready(training[0])
        return float(value)

    return step


def loss(case: Case, logits: Any, targets: Any) -> Any:
    """The mean over the batch, from logits as PyTorch takes them."""
    import jax
    import jax.numpy as jnp

    if case.loss == "binary_cross_entropy":
        logits = jnp.moveaxis(logits, -1, 1) if logits.shape != targets.shape else logits
        return jnp.mean(jnp.maximum(logits, 0) - logits * targets + jnp.log1p(jnp.exp(-jnp.abs(logits))))
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), targets[:, None], 1)
    return -jnp.mean(chosen)


class Network:
    """A spec as a function of its tensors, in training mode; ends in logits."""

    def __init__(self, spec: ModelSpec, *, channels_last: bool) -> None:
        last = spec.nodes[-1]
        self._nodes = [node for node in spec.nodes[1:] if node is not last or node.op not in ("softmax", "sigmoid")]
        self._spec = spec
        self._channels_last = channels_last
        self._axis = -1 if channels_last else 1
        self._spatial = (1, 2) if channels_last else (2, 3)

    def __call__(self, parameters: Arrays, state: Arrays, inputs: Any, key: Any) -> tuple[Any, Arrays]:
        import jax

        values, state = {self._spec.nodes[0].name: inputs}, dict(state)
        for number, node in enumerate(self._nodes):
            arguments = [values[name] for name in node.inputs]
            tensors = {
                name.rpartition(".")[2]: value
                for name, value in (parameters | state).items()
                if name.rpartition(".")[0] == node.name
            }
            if node.op == "batch_norm":
                values[node.name], running = self._batch_norm(node, tensors, *arguments)
                state |= running
            elif node.op == "dropout":
                values[node.name] = _dropout(node, jax.random.fold_in(key, number), *arguments)
            else:
                values[node.name] = self._apply(node, tensors, arguments)
        return values[self._nodes[-1].name], state

    def _apply(self, node: Node, tensors: Mapping[str, Any], inputs: list[Any]) -> Any:
        import jax
        import jax.numpy as jnp

        x, attributes = inputs[0], node.attributes
        match node.op:
            case "dense":
                return x @ tensors["weight"].T + tensors.get("bias", 0)
            case "conv2d" | "conv2d_transpose":
                return self._convolution(node, tensors, x)
            case "max_pool2d":
                return self._pool(node, x, -jnp.inf, jax.lax.max)
            case "avg_pool2d":
                ones = self._pool(node, jnp.ones_like(x[:1]), 0.0, jax.lax.add)
                return self._pool(node, x, 0.0, jax.lax.add) / ones
            case "global_avg_pool2d":
                return x.mean(self._spatial)
            case "global_max_pool2d":
                return x.max(self._spatial)
            case "flatten":
                x = jnp.moveaxis(x, -1, 1) if self._channels_last and x.ndim == 4 else x
                return x.reshape(len(x), -1)
            case "add":
                return sum(inputs[1:], x)
            case "concat":
                return jnp.concatenate(inputs, self._axis if x.ndim == 4 else 1)
            case "leaky_relu":
                return jax.nn.leaky_relu(x, attributes["slope"])
            case _:
                return getattr(jax.nn, node.op)(x)

    def _convolution(self, node: Node, tensors: Mapping[str, Any], x: Any) -> Any:
        import jax

        attributes: Any = node.attributes
        kernel, stride, padding = (attributes[name] for name in ("kernel", "stride", "padding"))
        images = "NHWC" if self._channels_last else "NCHW"
        weight, options = tensors["weight"], {}
        if node.op == "conv2d_transpose":
            weight, weights = weight[:, :, ::-1, ::-1], "IOHW"
            extra = attributes["output_padding"]
            pads = [(k - 1 - p, k - 1 - p + e) for k, p, e in zip(kernel, padding, extra, strict=True)]
            options = {"lhs_dilation": stride}
            stride = (1, 1)
        else:
            weights, pads = "OIHW", [(p, p) for p in padding]
            options = {"rhs_dilation": attributes["dilation"], "feature_group_count": attributes["groups"]}
        numbers = (images, weights, images)
        y = jax.lax.conv_general_dilated(x, weight, stride, pads, dimension_numbers=numbers, **options)
        return y + self._by_channel(tensors["bias"]) if "bias" in tensors else y

    def _pool(self, node: Node, x: Any, initial: float, reduce: Any) -> Any:
        import jax

        shapes = self._spec.shapes
        pads = pool_pads(node.attributes, shapes[node.inputs[0]], shapes[node.name])
        sizes = (node.attributes["kernel"], node.attributes["stride"], pads)
        window, strides, padding = (self._around(size, 1 if size is not pads else (0, 0)) for size in sizes)
        return jax.lax.reduce_window(x, initial, reduce, window, strides, padding)

    def _around(self, spatial: Any, neutral: Any) -> tuple[Any, ...]:
        return (neutral, *spatial, neutral) if self._channels_last else (neutral, neutral, *spatial)

    def _batch_norm(self, node: Node, tensors: Mapping[str, Any], x: Any) -> tuple[Any, Arrays]:
        import jax

        attributes: Any = node.attributes
        axes = (0, *self._spatial) if x.ndim == 4 else (0,)
        mean, variance = x.mean(axes), x.var(axes)
        keep, num = attributes["momentum"], x.size // mean.size
        statistics = {"running_mean": mean, "running_var": variance * (num / max(num - 1, 1))}
        running = {
            f"{node.name}.{role}": keep * tensors[role] + (1 - keep) * jax.lax.stop_gradient(value)
            for role, value in statistics.items()
        }
        factor = tensors["scale"] * jax.lax.rsqrt(variance + attributes["epsilon"])
        shift = tensors["shift"] - mean * factor
        if x.ndim == 4:
            factor, shift = self._by_channel(factor), self._by_channel(shift)
        return x * factor + shift, running

    def _by_channel(self, values: Any) -> Any:
        return values if self._channels_last else values[:, None, None]


def _dropout(node: Node, key: Any, x: Any) -> Any:
    import jax
    import jax.numpy as jnp

    keep = 1.0 - float(node.attributes["rate"])  # type: ignore[arg-type]
    return jnp.where(jax.random.bernoulli(key, keep, x.shape), x / keep, 0.0)
