"""A spec interpreted by PyTorch: the independent opinion that the parity tests compare with."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch.nn import functional

ACTIVATIONS = {
    "relu": functional.relu,
    "relu6": functional.relu6,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "arctanh": torch.atanh,
    "log_sigmoid": functional.logsigmoid,
    "softmax": lambda x: torch.softmax(x, 1),
}


class TorchReplica:
    """Takes the tensors of another replica and computes in float64 unless told otherwise.

    ``masks(index, shape)`` supplies dropout's keep / (1 - rate).
    """

    def __init__(self, spec, parameters, state, masks: Callable | None = None, dtype=torch.float64):
        self.spec = spec
        self.dtype = dtype
        self.parameters = {
            name: torch.tensor(value, dtype=dtype, requires_grad=True) for name, value in parameters.items()
        }
        self.state = {name: torch.tensor(value, dtype=dtype) for name, value in state.items()}
        self.masks = masks

    def forward(self, inputs, *, training):
        values = {}
        for index, node in enumerate(self.spec.nodes):
            sources = [values[name] for name in node.inputs]
            is_input = node.op == "input"
            value = torch.tensor(inputs, dtype=self.dtype) if is_input else self._node(index, node, sources, training)
            values[node.name] = value
        return values

    def loss_sum(self, values, loss, targets):
        output, last = values[self.spec.nodes[-1].name], self.spec.nodes[-1]
        targets = torch.as_tensor(targets)
        if loss == "categorical_cross_entropy":
            if last.op == "softmax":
                terms = functional.cross_entropy(values[last.inputs[0]], targets, reduction="none")
            else:
                terms = -torch.log(output.clamp(1e-7, 1 - 1e-7).gather(1, targets[:, None]))
            return terms.reshape(len(targets), -1).mean(1).sum()
        if loss == "bce_dice":
            return self.loss_sum(values, "binary_cross_entropy", targets) + self.loss_sum(values, "dice", targets)
        if not targets.is_floating_point():
            targets = torch.movedim(functional.one_hot(targets, output.shape[1]), -1, 1)
        targets = targets.to(output.dtype)
        if loss == "dice":
            axes = tuple(range(1, output.ndim))
            ratio = (2 * (output * targets).sum(axes) + 1) / (output.sum(axes) + targets.sum(axes) + 1)
            return (1 - ratio).sum()
        if loss == "soft_cross_entropy":
            logs = output.clamp(1e-7, 1 - 1e-7).log()
            logs = values[last.inputs[0]].log_softmax(1) if last.op == "softmax" else logs
            return -(targets * logs).sum(1).reshape(len(targets), -1).mean(1).sum()
        if loss == "binary_cross_entropy" and last.op == "sigmoid":
            terms = functional.binary_cross_entropy_with_logits(values[last.inputs[0]], targets, reduction="none")
        elif loss == "binary_cross_entropy":
            terms = functional.binary_cross_entropy(output.clamp(1e-7, 1 - 1e-7), targets, reduction="none")
        else:
            terms = (output - targets) ** 2 if loss == "mse" else (output - targets).abs()
        return terms.reshape(len(targets), -1).mean(1).sum()

    def loss_and_gradients(self, inputs, targets, loss, scale=None):
        for parameter in self.parameters.values():
            parameter.grad = None
        values = self.forward(inputs, training=True)
        total = self.loss_sum(values, loss, targets)
        (total * (1 / len(inputs) if scale is None else scale)).backward()
        gradients = {name: parameter.grad.numpy() for name, parameter in self.parameters.items()}
        return total.item(), gradients, values[self.spec.nodes[-1].name].detach().numpy()

    def predict(self, inputs):
        with torch.no_grad():
            return self.forward(inputs, training=False)[self.spec.nodes[-1].name].numpy()

    def _node(self, index, node, sources, training):
        attributes, x = node.attributes, sources[0]
        weight, bias = (self.parameters.get(f"{node.name}.{role}") for role in ("weight", "bias"))
        match node.op:
            case "dense":
                return functional.linear(x, weight, bias)
            case "conv2d":
                geometry = [attributes[name] for name in ("stride", "padding", "dilation", "groups")]
                return functional.conv2d(x, weight, bias, *geometry)
            case "conv2d_transpose":
                geometry = [attributes[name] for name in ("stride", "padding", "output_padding")]
                return functional.conv_transpose2d(x, weight, bias, *geometry)
            case "max_pool2d":
                geometry = [attributes[name] for name in ("kernel", "stride", "padding")]
                return functional.max_pool2d(x, *geometry, ceil_mode=attributes["ceil_mode"])
            case "avg_pool2d":
                geometry = [attributes[name] for name in ("kernel", "stride", "padding", "ceil_mode")]
                return functional.avg_pool2d(x, *geometry, count_include_pad=False)
            case "global_avg_pool2d":
                return x.mean((2, 3))
            case "global_max_pool2d":
                return x.amax((2, 3))
            case "batch_norm":
                return self._batch_norm(node, x, training)
            case "dropout":
                return x * torch.tensor(self.masks(index, x.shape), dtype=self.dtype) if training else x
            case "flatten":
                return x.flatten(1)
            case "add":
                return sum(sources[1:], sources[0])
            case "concat":
                return torch.cat(sources, 1)
            case "leaky_relu":
                return functional.leaky_relu(x, attributes["slope"])
            case _:
                return ACTIVATIONS[node.op](x)

    def _batch_norm(self, node, x, training):
        mean, variance = (self.state[f"{node.name}.{role}"] for role in ("running_mean", "running_var"))
        scale, shift = (self.parameters[f"{node.name}.{role}"] for role in ("scale", "shift"))
        momentum = 1 - node.attributes["momentum"]
        return functional.batch_norm(x, mean, variance, scale, shift, training, momentum, node.attributes["epsilon"])


def no_dropout(index, shape):
    return np.ones(tuple(shape))
