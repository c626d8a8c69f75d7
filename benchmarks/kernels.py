"""Convolution algorithms by layer shape, in GFLOP/s, beside PyTorch.

    python -m benchmarks.kernels [--threads 2] [--layers vgg]

Arithmetic is counted as direct convolution (two operations per multiply-add), so Winograd's algorithms can exceed the
machine's matrix product. PyTorch counts with the better of its two memory layouts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks.common import parser, print_machine, report, sgemm_gflops, use_threads
from ringlet.bench.timing import Variant, fastest, take_turns
from ringlet.kernels import load
from ringlet.kernels.contract import CONV_ALGORITHMS

PASSES = ("forward", "data", "weight")


@dataclass(frozen=True)
class Layer:
    """A square convolution of one network."""

    network: str
    channels: int
    filters: int
    size: int
    batch: int
    kernel: int = 3
    stride: int = 1
    padding: int = 1

    @property
    def out_size(self) -> int:
        return (self.size + 2 * self.padding - self.kernel) // self.stride + 1

    @property
    def gflop(self) -> float:
        return 2e-9 * self.batch * self.filters * self.channels * self.kernel**2 * self.out_size**2

    @property
    def label(self) -> str:
        stride = f"/{self.stride}" if self.stride > 1 else ""
        shape = f"{self.channels}->{self.filters} {self.kernel}x{self.kernel}{stride} on {self.size}x{self.size}"
        return f"{self.network} {shape}, batch {self.batch}"


LAYERS = (
    Layer("simplecnn", 1, 4, 28, 64, padding=0),
    Layer("simplecnn", 4, 8, 26, 64, padding=0),
    Layer("unet", 8, 8, 128, 8),
    Layer("unet", 32, 32, 32, 8),
    Layer("vgg", 64, 64, 32, 32),
    Layer("vgg", 128, 128, 16, 32),
    Layer("vgg", 256, 256, 8, 32),
    Layer("vgg", 512, 512, 4, 32),
    Layer("resnet", 64, 128, 32, 32, stride=2),
    Layer("resnet50", 256, 64, 8, 32, kernel=1, padding=0),
)


def main() -> None:
    """Measure and print."""
    options = parser(__doc__, num_rounds=3)
    options.add_argument("--layers", default="", help="only layers whose network contains this text")
    given = options.parse_args()
    use_threads(given.threads)
    print_machine(threads=given.threads, sgemm=f"{sgemm_gflops(given.threads):.0f} GFLOP/s")
    rows, results = [], []
    for layer in (layer for layer in LAYERS if given.layers in layer.network):
        for name in PASSES:
            speeds = _speeds(layer, name, given.rounds)
            rows.append((layer.label, name, *(f"{speeds[key]:.0f}" if key in speeds else "-" for key in _columns())))
            results.append({"layer": layer.label, "pass": name, "gflops": speeds})
    report(given, "kernels", ("layer", "pass", *_columns()), rows, num_keys=2, results=results)


def _columns() -> tuple[str, ...]:
    return (*CONV_ALGORITHMS, "PyTorch")


def _speeds(layer: Layer, name: str, num_rounds: int) -> dict[str, float]:
    ours = [Variant(algorithm, _ringlet(layer, name, algorithm)) for algorithm in _applicable(layer)]
    theirs = [
        Variant(str(layout), _torch(layer, name, layout)) for layout in (torch.contiguous_format, torch.channels_last)
    ]
    take_turns([*ours, *theirs], num_rounds, round_seconds=0.05)
    speeds = {entry.name: layer.gflop / entry.median for entry in ours}
    return speeds | {"PyTorch": layer.gflop / fastest(theirs).median}


def _applicable(layer: Layer) -> tuple[str, ...]:
    winograd = layer.kernel == 3 and layer.stride == 1
    return tuple(name for name in CONV_ALGORITHMS if winograd or not name.startswith("winograd"))


def _ringlet(layer: Layer, name: str, algorithm: str) -> Callable[[], object]:
    kernels, lanes = load(), layer.batch
    x = _aligned((layer.channels, layer.size, layer.size, lanes))
    y = _aligned((layer.filters, layer.out_size, layer.out_size, lanes))
    weight = _aligned((layer.filters, layer.channels, layer.kernel, layer.kernel))
    window: dict[str, Any] = {
        "stride": (layer.stride,) * 2,
        "padding": (layer.padding,) * 2,
        "dilation": (1, 1),
        "groups": 1,
        "algorithm": algorithm,
    }
    if name == "forward":
        return partial(kernels.conv2d_forward, x, weight, None, y, relu=False, **window)
    if name == "data":
        return partial(kernels.conv2d_backward_data, y, weight, x, accumulate=False, **window)
    return partial(kernels.conv2d_backward_weight, x, y, weight, **window)


def _torch(layer: Layer, name: str, layout: torch.memory_format) -> Callable[[], object]:
    x = torch.randn(layer.batch, layer.channels, layer.size, layer.size).contiguous(memory_format=layout)
    weight = torch.randn(layer.filters, layer.channels, layer.kernel, layer.kernel).contiguous(memory_format=layout)
    dy = torch.randn(layer.batch, layer.filters, layer.out_size, layer.out_size).contiguous(memory_format=layout)
    window = ([layer.stride] * 2, [layer.padding] * 2, [1, 1])
    if name == "forward":
        return partial(torch.conv2d, x, weight, None, *window)
    mask = [name == "data", name == "weight", False]
    return partial(torch.ops.aten.convolution_backward, dy, x, weight, None, *window, False, [0, 0], 1, mask)


def _aligned(shape: tuple[int, ...]) -> np.ndarray:
    """Ordinary numbers that begin at a cache line, as the buffers of a plan do."""
    size = 4 * int(np.prod(shape))
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    array = raw[start : start + size].view(np.float32).reshape(shape)
    array[...] = np.random.default_rng(0).normal(size=shape)
    return array


if __name__ == "__main__":
    main()
