"""Parameters with which a batch is far from every branch: float32 then takes the same ones as float64.

The gradient of a ReLU jumps where its input is 0, that of a maximum where two elements are equal. Two engines that
round differently may stand on different sides, and their gradients differ by much more than rounding. So a network is
computed here twice, in float64 and in float32, node by node. In front of every ReLU each channel is shifted by its bias
(or by the shift of its batch normalisation) so that the widest gap between its values lies around 0; a maximum is only
looked at. What is left is compared with the difference between the two computations, which is the rounding of float32.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ringlet.engines.dropout import dropout_key
from ringlet.kernels.reference.elements import keep_mask

THRESHOLDS = {"relu": (0.0,), "relu6": (0.0, 6.0), "leaky_relu": (0.0,)}
MAXIMA = ("max_pool2d", "global_max_pool2d")
TYPES = (np.float64, np.float32)
REACH = 0.3
"""How far a channel may be shifted, in units of its largest value."""
NUM_CANDIDATES = 64


class Network:
    """A network's training pass with ``parameters`` (float32, by name), which :meth:`clear` changes."""

    def __init__(self, spec, parameters, *, seed=0, step=0, shard=0):
        self.spec, self.parameters, self._place = spec, parameters, (seed, step, shard)
        self._nodes = {node.name: node for node in spec.nodes}
        self._uses = Counter(name for node in spec.nodes for name in node.inputs)
        self.margins = {}
        """Of each branching node: the distance to its branch, in units of the rounding of float32 there."""

    def clear(self, inputs):
        """Compute ``inputs`` and shift channels on the way."""
        values = {}
        for index, node in enumerate(self.spec.nodes):
            if node.op in THRESHOLDS:
                self._make_room(node, values)
            if node.op in MAXIMA:
                self._look_at_maxima(node, values)
            values[node.name] = [
                self._compute(index, node, [values[name][place] for name in node.inputs], inputs, dtype)
                for place, dtype in enumerate(TYPES)
            ]

    # -- branches -----------------------------------------------------------------------------------------------------
    def _make_room(self, node, values):
        precise, rounded = values[node.inputs[0]]
        lever = self._lever(self._nodes[node.inputs[0]])
        if lever is not None:
            old = self.parameters[lever]
            shifts = [best_shift(precise[:, channel].ravel(), THRESHOLDS[node.op]) for channel in range(old.size)]
            new = (old + np.array(shifts)).astype(np.float32)
            change = (new.astype(np.float64) - old).reshape(-1, *[1] * (precise.ndim - 2))
            precise += change
            rounded += change.astype(np.float32)
            self.parameters[lever] = new
        nearest = np.min([np.abs(precise - threshold) for threshold in THRESHOLDS[node.op]], axis=0)
        self.margins[node.name] = margin(nearest, precise - rounded)

    def _lever(self, node):
        """What shifts the channels of a node that nothing else reads."""
        if self._uses[node.name] > 1:
            return None
        role = "shift" if node.op == "batch_norm" else "bias"
        if f"{node.name}.{role}" in self.parameters:
            return f"{node.name}.{role}"
        if node.op in ("max_pool2d", "avg_pool2d", "add"):
            return next(filter(None, (self._lever(self._nodes[name]) for name in node.inputs)), None)
        return None

    def _look_at_maxima(self, node, values):
        precise, rounded = values[node.inputs[0]]
        windows = self._windows(node, precise, -np.inf)
        windows = windows.reshape(*windows.shape[:4], -1)
        if windows.shape[-1] == 1:
            return
        second, first = np.moveaxis(np.partition(windows, -2, axis=-1)[..., -2:], -1, 0)
        cut_off = first == second  # by a ReLU: nothing flows back to them
        self.margins[node.name] = margin(np.where(cut_off, np.inf, first - second), precise - rounded)

    # -- arithmetic ---------------------------------------------------------------------------------------------------
    def _compute(self, index, node, sources, inputs, dtype):
        own = {
            role: self.parameters[f"{node.name}.{role}"].astype(dtype)
            for role in ("weight", "bias", "scale", "shift")
            if f"{node.name}.{role}" in self.parameters
        }
        attributes, x = node.attributes, sources[0] if sources else None
        match node.op:
            case "input":
                return inputs.astype(dtype)
            case "dense":
                return x @ own["weight"].T + own.get("bias", dtype(0))
            case "conv2d":
                return convolve(x, own["weight"], attributes) + over_channels(own.get("bias", np.zeros(1, dtype)))
            case "conv2d_transpose":
                size = self.spec.shapes[node.name][1:]
                return spread(x, own["weight"], attributes, size) + over_channels(own.get("bias", np.zeros(1, dtype)))
            case "batch_norm":
                axes = (0, *range(2, x.ndim))
                mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
                shape = (-1, *[1] * (x.ndim - 2))
                centred = (x - mean) / np.sqrt(variance + dtype(attributes["epsilon"]))
                return centred * own["scale"].reshape(shape) + own["shift"].reshape(shape)
            case "max_pool2d" | "global_max_pool2d":
                return self._windows(node, x, -np.inf).max(axis=(4, 5)).reshape(len(x), *self.spec.shapes[node.name])
            case "avg_pool2d" | "global_avg_pool2d":
                counts = self._windows(node, np.ones_like(x[:1]), 0).sum(axis=(4, 5))
                pooled = self._windows(node, x, 0).sum(axis=(4, 5)) / counts
                return pooled.reshape(len(x), *self.spec.shapes[node.name])
            case "dropout":
                return self._drop(index, x, attributes["rate"])
            case "flatten":
                return x.reshape(len(x), -1)
            case "add":
                return sum(sources[1:], sources[0].copy())
            case "concat":
                return np.concatenate(sources, 1)
            case "relu":
                return np.maximum(x, 0)
            case "relu6":
                return np.clip(x, 0, 6)
            case "leaky_relu":
                return np.where(x > 0, x, dtype(attributes["slope"]) * x)
            case "sigmoid" | "softmax":  # last nodes: nothing branches after them
                return x
        raise NotImplementedError(node.op)

    def _windows(self, node, x, fill):
        """``(n, C, rows, columns, *kernel)``."""
        if node.op.startswith("global"):
            return x[:, :, None, None]
        kernel, stride, padding = (node.attributes[name] for name in ("kernel", "stride", "padding"))
        needed = [
            (count - 1) * step + size
            for count, step, size in zip(self.spec.shapes[node.name][1:], stride, kernel, strict=True)
        ]
        after = [
            max(total - before - extent, 0) for total, before, extent in zip(needed, padding, x.shape[2:], strict=True)
        ]
        borders = ((0, 0), (0, 0), *zip(padding, after, strict=True))
        padded = np.pad(x, borders, constant_values=fill)[:, :, : needed[0], : needed[1]]
        return sliding_window_view(padded, kernel, axis=(2, 3))[:, :, :: stride[0], :: stride[1]]

    def _drop(self, index, x, rate):
        """As the native kernel does: samples are the last axis there."""
        keep = keep_mask(x[0].size, len(x), rate, dropout_key(*self._place, index)).T.reshape(x.shape)
        return np.where(keep, x * x.dtype.type(1 / (1 - rate)), x.dtype.type(0))


def best_shift(values, thresholds):
    """The shift, within reach, that leaves the most room around all ``thresholds``; 0 if there is enough already."""
    ordered = np.unique(values)
    reach = REACH * max(np.abs(ordered).max(), 1e-3)
    edges = np.concatenate([[ordered[0] - 2 * reach], ordered, [ordered[-1] + 2 * reach]])
    middles, widths = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
    places = [np.flatnonzero(np.abs(middles - threshold) < reach) for threshold in thresholds]
    candidates = [
        thresholds[number] - middles[place[np.argsort(widths[place])[-NUM_CANDIDATES:]]]
        for number, place in enumerate(places)
    ]
    shifts = np.concatenate([[0.0], *candidates])
    room = np.full(len(shifts), np.inf)
    for threshold in thresholds:
        wanted = threshold - shifts
        right = np.clip(np.searchsorted(ordered, wanted), 1, len(ordered) - 1) if len(ordered) > 1 else None
        nearest = (
            np.abs(ordered[0] - wanted)
            if right is None
            else np.minimum(np.abs(ordered[right] - wanted), np.abs(ordered[right - 1] - wanted))
        )
        room = np.minimum(room, nearest)
    return shifts[np.argmax(room)]


def margin(distances, rounding):
    """The smallest ratio of the two, channel by channel."""
    axes = (0, *range(2, distances.ndim))
    return float((distances.min(axes) / np.maximum(np.abs(rounding).max((0, *range(2, rounding.ndim))), 1e-30)).min())


def over_channels(values):
    return values.reshape(-1, 1, 1)


def convolve(x, weight, attributes):
    stride, padding, dilation, groups = (attributes[name] for name in ("stride", "padding", "dilation", "groups"))
    padded = np.pad(x, ((0, 0), (0, 0), *((size, size) for size in padding)))
    reach = [step * (size - 1) + 1 for step, size in zip(dilation, weight.shape[2:], strict=True)]
    windows = sliding_window_view(padded, reach, axis=(2, 3))
    windows = windows[:, :, :: stride[0], :: stride[1], :: dilation[0], :: dilation[1]]
    parts = zip(np.split(windows, groups, axis=1), np.split(weight, groups), strict=True)
    return np.concatenate(
        [np.moveaxis(np.tensordot(part, own, ((1, 4, 5), (1, 2, 3))), -1, 1) for part, own in parts], axis=1
    )


def spread(x, weight, attributes, size):
    """A transposed convolution."""
    stride, padding = attributes["stride"], attributes["padding"]
    extents = [extent + 2 * before + step for extent, before, step in zip(size, padding, stride, strict=True)]
    out = np.zeros((len(x), weight.shape[1], *extents), x.dtype)
    rows, columns = x.shape[2:]
    for i in range(weight.shape[2]):
        for j in range(weight.shape[3]):
            part = out[:, :, i : i + stride[0] * rows : stride[0], j : j + stride[1] * columns : stride[1]]
            part += np.moveaxis(np.tensordot(x, weight[:, :, i, j], (1, 0)), -1, 1)
    return out[:, :, padding[0] : padding[0] + size[0], padding[1] : padding[1] + size[1]]
