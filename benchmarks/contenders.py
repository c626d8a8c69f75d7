"""Who can take a training step: Ringlet, PyTorch eager and compiled, in float32 and bfloat16, in both layouts, and JAX.

Each runs in a process of its own (``benchmarks.served``), on as many cores as it has threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from benchmarks import cases
from benchmarks.cases import Case
from benchmarks.common import use_threads
from benchmarks.served import forget_peak, resident_bytes, serve
from benchmarks.steps import ringlet_bfloat16, ringlet_step, torch_step

OURS, OURS_BF16 = "Ringlet", "Ringlet bf16"
EAGER, COMPILED, EAGER_BF16, COMPILED_BF16, JAX = "eager", "compiled", "bf16", "bf16 compiled", "JAX"
LAYOUTS = ("contiguous", "channels last")
NUM_MEMORY_STEPS = 3
Step = Callable[[], Any]


@dataclass(frozen=True)
class Contender:
    """One way to take a step. ``kind`` is its column; kinds that have two layouts count with the faster."""

    kind: str
    make: Callable[[Case, int], Step]
    layout: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    exact: bool = True
    """Whether its first loss is that of float32."""
    compiles: bool = False
    """Whether its first step takes long, and uses memory that later ones do not."""

    pin_late: bool = False
    """Whether it may compile on all cores."""

    @property
    def name(self) -> str:
        """Kind and layout."""
        return f"{self.kind}, {self.layout}" if self.layout else self.kind


def _torch(kind: str, layout: str, *, compiled: bool, bfloat16: bool) -> Contender:
    def make(case: Case, _num_threads: int) -> Step:
        return torch_step(case, channels_last=layout == LAYOUTS[1], compiled=compiled, bfloat16=bfloat16)

    environment = {"TORCHINDUCTOR_COMPILE_THREADS": str(len(os.sched_getaffinity(0)))} if compiled else {}
    return Contender(kind, make, layout, environment, exact=not bfloat16, compiles=compiled, pin_late=compiled)


def _jax(layout: str) -> Contender:
    def make(case: Case, _num_threads: int) -> Step:
        from benchmarks.jax_models import jax_step

        return jax_step(case, channels_last=layout == LAYOUTS[1])

    return Contender(JAX, make, layout, {"JAX_PLATFORMS": "cpu"}, compiles=True)


def available() -> dict[str, Contender]:
    """All that can be measured here, by name; Ringlet first."""
    found = [Contender(OURS, ringlet_step)]
    dtype = ringlet_bfloat16()
    if dtype is not None:
        found.append(Contender(OURS_BF16, lambda case, threads: ringlet_step(case, threads, dtype=dtype), exact=False))
    if find_spec("torch"):
        kinds = ((EAGER, False, False), (EAGER_BF16, False, True), (COMPILED, True, False), (COMPILED_BF16, True, True))
        found += [
            _torch(kind, layout, compiled=compiled, bfloat16=bfloat16)
            for kind, compiled, bfloat16 in kinds
            for layout in LAYOUTS
        ]
    if find_spec("jax"):
        found += [_jax(layout) for layout in reversed(LAYOUTS)]
    return {contender.name: contender for contender in found}


def run(request: Mapping[str, Any]) -> None:
    """In its process: prepare and take the first step, then time steps when asked."""
    threads, case = int(request["threads"]), cases.make(request["model"], request["batch"])
    contender = available()[request["contender"]]

    def prepare() -> tuple[Step, dict[str, Any]]:
        use_threads(threads)
        if request["memory"]:
            first, step, peak = measured_memory(lambda case: contender.make(case, threads), case)
            return step, {"loss": first, "bytes": peak}
        step = contender.make(case, threads)
        return step, {"loss": float(step()), "bytes": None}

    serve(prepare, threads, pin_late=contender.pin_late)


def measured_memory(make: Callable[[Case], Step], case: Case) -> tuple[float, Step, int]:
    """The first loss, the step, and the bytes by which resident memory peaks above that of a tiny network.

    The tiny network loads the libraries. The peak is that of set-up and some steps: parameters, gradients, Adam's
    moments, activations and scratch memory.
    """
    tiny = Case("tiny", cases.zoo.create("simplecnn", input_shape=(1, 8, 8), num_classes=10), 8)
    make(tiny)()
    baseline = resident_bytes()
    forget_peak()
    step = make(case)
    first = float(step())
    for _ in range(NUM_MEMORY_STEPS - 1):
        step()
    return first, step, resident_bytes("VmHWM") - baseline
