"""A compiled network: flat lists of bound kernel calls over one arena.

Compilation: fuse nodes, place values, emit symbolic calls (forward, loss, backward; and inference), give every storage
its bytes by lifetime, choose convolution algorithms, bind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ringlet.engines.contract import FlatTensors
from ringlet.engines.heads import Head, TargetEncoder, loss_head
from ringlet.engines.native.binding import Action, BoundCall, Range, StepContext, backward_parts, bind, final_ranges
from ringlet.engines.native.buffers import Arena, assign_offsets, lifetimes, peak_bytes
from ringlet.engines.native.placement import fuse, place_values
from ringlet.engines.native.tuning import CONVOLUTIONS, Tuner
from ringlet.kernels.bfloat16 import parameter_dtype
from ringlet.kernels.contract import Kernels
from ringlet.losses import Loss
from ringlet.models.spec import ModelSpec
from ringlet.operations.native import Call, Emitter, FusedNode, NativeNode, Storage, new_tensor


@dataclass(frozen=True)
class Tensors:
    """The flat tensors that a plan reads and writes."""

    parameters: FlatTensors
    gradients: FlatTensors
    state: FlatTensors


@dataclass(frozen=True)
class Program:
    """Calls in order with the places of their storages."""

    calls: tuple[Call, ...]
    offsets: dict[Storage, int]
    num_bytes: int
    peak_bytes: int
    """Most bytes alive at once: the least that any layout needs."""


class Plan:
    """A network ready to run: lists of actions over one arena, and the context that they read.

    Training and inference share the arena: they never run at the same time. Each is tuned and bound when it is first
    used, so a replica that only predicts neither measures backward kernels nor touches the memory of a training step.
    """

    def __init__(self, writer: _ProgramWriter, kernels: Kernels, *, exact: bool, tuning: str) -> None:
        self.context = StepContext(writer.encoder)
        self._kernels = kernels
        self._tuner = Tuner(kernels, writer.dtype, exact=exact, tuning=tuning)
        self._gradients = writer.tensors.gradients.flat
        self._programs = {
            "training": _lay_out(writer.training_calls()),
            "inference": _lay_out(writer.inference_calls()),
        }
        self._arena = Arena(max(program.num_bytes for program in self._programs.values()))

    @property
    def memory_bytes(self) -> int:
        """Size of the arena: all activations, their gradients and what the backward pass needs."""
        return self._arena.num_bytes

    @property
    def peak_bytes(self) -> int:
        """Most bytes alive at once in a training step: the least that any layout needs."""
        return self._programs["training"].peak_bytes

    @cached_property
    def needs_key(self) -> bool:
        """Whether a training step draws random numbers."""
        return any(call.kernel == "dropout" for call in self._programs["training"].calls)

    @cached_property
    def forward(self) -> tuple[Action, ...]:
        """Pack, forward, outputs, loss."""
        return self._bind(self.training_calls[: self._num_forward])

    @cached_property
    def backward(self) -> tuple[Action, ...]:
        """What follows the loss in a training step."""
        return self._bind(self.training_calls[self._num_forward :])

    @cached_property
    def backward_parts(self) -> tuple[tuple[tuple[Action, ...], tuple[Range, ...]], ...]:
        """``backward``, cut wherever gradients become final, and what is final after each part."""
        ranges = final_ranges(self._programs["training"].calls, self._gradients)
        parts = backward_parts(ranges, self._num_forward, len(self.training_calls))
        return tuple((self._bind(self.training_calls[part.calls]), part.ranges) for part in parts)

    @cached_property
    def evaluation(self) -> tuple[Action, ...]:
        """Pack, forward in inference mode, outputs, loss."""
        return self._bind(self.inference_calls)

    @cached_property
    def prediction(self) -> tuple[Action, ...]:
        """Evaluation without targets and loss."""
        return self._bind(call for call in self.inference_calls if call[0] not in ("targets", "loss"))

    @cached_property
    def training_calls(self) -> tuple[BoundCall, ...]:
        """The calls of a training step with their arrays and chosen algorithms."""
        return self._tuned(self._programs["training"])

    @cached_property
    def inference_calls(self) -> tuple[BoundCall, ...]:
        """The calls of ``evaluation`` with their arrays and chosen algorithms."""
        return self._tuned(self._programs["inference"], any_batch=True)

    @cached_property
    def _num_forward(self) -> int:
        return [call.kernel for call in self._programs["training"].calls].index("loss") + 1

    def _bind(self, calls: Iterable[BoundCall]) -> tuple[Action, ...]:
        return bind(self._kernels, self.context, calls)

    def _tuned(self, program: Program, *, any_batch: bool = False) -> tuple[BoundCall, ...]:
        """Give every convolution its algorithm. Measuring leaves zeros in the arena and in gradients it has written."""
        calls = [
            (call.kernel, self._arena.arrays(call.arguments, program.offsets), call.options) for call in program.calls
        ]
        convolutions = [call for call in calls if call[0] in CONVOLUTIONS]
        chosen = iter(self._choose(convolutions, program.num_bytes, any_batch=any_batch))
        return tuple(
            (kernel, arrays, options | {"algorithm": next(chosen)} if kernel in CONVOLUTIONS else options)
            for kernel, arrays, options in calls
        )

    def _choose(self, convolutions: list[BoundCall], num_bytes: int, *, any_batch: bool) -> list[str]:
        if not self._tuner.must_measure(convolutions, any_batch=any_batch):
            return self._tuner.choose(convolutions, any_batch=any_batch)
        with self._arena.ordinary_numbers(num_bytes):
            chosen = self._tuner.choose(convolutions, any_batch=any_batch)
        if any(kernel == "conv2d_backward_weight" for kernel, _, _ in convolutions):
            self._gradients.fill(0)
        return chosen


def _read_once(nodes: Iterable[FusedNode]) -> list[FusedNode]:
    """Those whose result a single node reads."""
    uses = Counter(name for fused in nodes for name in fused.inputs)
    return [fused for fused in nodes if uses[fused.output] == 1]


def compile_plan(
    spec: ModelSpec,
    local_batch_size: int,
    dtype: np.dtype[Any],
    loss: str | Loss,
    kernels: Kernels,
    tensors: Tensors,
    *,
    class_weights: ArrayLike | None = None,
    exact: bool = False,
    tuning: str = "measured",
    frozen: Set[str] = frozenset(),
) -> Plan:
    """Compile ``spec`` for up to ``local_batch_size`` samples at once, with activations of ``dtype``.

    Gradients of ``frozen`` parameters are not written, and those that only lead to them are not computed.
    """
    writer = _ProgramWriter(spec, local_batch_size, dtype, loss_head(spec, loss), tensors, class_weights, frozen)
    return Plan(writer, kernels, exact=exact, tuning=tuning)


def arena_bytes(
    spec: ModelSpec, local_batch_size: int, dtype: np.dtype[Any], loss: str | Loss, *, training: bool = True
) -> int:
    """``memory_bytes`` of the plan that :func:`compile_plan` would make; nothing is tuned and no arena is allocated.

    Without ``training`` what inference touches of them.
    """
    tensors = Tensors(
        FlatTensors.allocate(spec.parameters, parameter_dtype(dtype)),
        FlatTensors.allocate(spec.parameters, parameter_dtype(dtype)),
        FlatTensors.allocate(spec.state, parameter_dtype(dtype)),
    )
    writer = _ProgramWriter(spec, local_batch_size, dtype, loss_head(spec, loss), tensors)
    inference = _lay_out(writer.inference_calls()).num_bytes
    return max(_lay_out(writer.training_calls()).num_bytes, inference) if training else inference


class _ProgramWriter:
    """Emits the symbolic calls of a network."""

    def __init__(
        self,
        spec: ModelSpec,
        lanes: int,
        dtype: np.dtype[Any],
        head: Head,
        tensors: Tensors,
        class_weights: ArrayLike | None = None,
        frozen: Set[str] = frozenset(),
    ) -> None:
        self._spec = spec
        self._head = head
        self.dtype = dtype
        self._lanes = lanes
        self.tensors = tensors
        self._nodes = fuse(spec)
        self._input = spec.nodes[0].name
        self._output = spec.nodes[-1].name
        names = (self._input, *(fused.output for fused in self._nodes))
        self._shapes = {name: (*spec.shapes[name], lanes) for name in names}
        self._frozen, self._frozen_nodes = frozen, spec.frozen_nodes(frozen)
        self._trainable = _trainable_values(self._nodes, {info.node for info in spec.parameters} - self._frozen_nodes)
        wanted = head.loss.targets
        self.encoder = TargetEncoder(wanted, spec.output_shape, parameter_dtype(dtype), class_weights)

    def training_calls(self) -> list[Call]:
        """Pack, forward, outputs, loss, backward."""
        nodes, emit = self._begin(training=True)
        self._emit_forward(nodes, emit)
        self._emit_loss(emit, backward=True)
        skipped = self._output if self._head.skips_last_node else None
        for node in reversed(nodes):
            if node.output != skipped and emit.has_gradient(node.output):
                node.backward(emit)
                emit.discard(node.output)
        return emit.calls

    def inference_calls(self) -> list[Call]:
        """Pack, forward, outputs, loss."""
        nodes, emit = self._begin(training=False)
        self._emit_forward(nodes, emit)
        self._emit_loss(emit, backward=False)
        return emit.calls

    def _begin(self, *, training: bool) -> tuple[list[NativeNode], Emitter]:
        nodes = [self._kind(fused, training)(fused, self._shapes, training=training) for fused in self._nodes]
        kept = {self._output, self._head.prediction}
        values = place_values(nodes, self._shapes, self.dtype, kept=kept)
        flat = self.tensors
        read_once = [fused for fused in _read_once(self._nodes) if fused.output not in kept]
        rectified = {fused.output for fused in read_once if fused.relu and fused.operation.takes_relu}
        biases = {fused.output: f"{fused.name}.bias" for fused in read_once if not fused.relu}
        unread = {name: np.empty_like(flat.gradients.views[name]) for name in self._frozen if training}
        gradients = flat.gradients.views | unread  # kernels that write several of them have to write them somewhere
        emit = Emitter(
            self.dtype,
            values,
            flat.parameters.views,
            gradients,
            flat.state.views,
            self._trainable,
            frozenset(rectified),
            bias_gradients={value: gradients[name] for value, name in biases.items() if name in gradients},
        )
        return nodes, emit

    def _kind(self, fused: FusedNode, training: bool) -> type[NativeNode]:
        frozen = fused.operation.frozen_node if training and fused.name in self._frozen_nodes else None
        return frozen or fused.operation.node

    def _emit_forward(self, nodes: Iterable[NativeNode], emit: Emitter) -> None:
        emit.call("pack", emit.values[self._input])
        *before, last = nodes
        for node in before:
            node.forward(emit)
        if self._head.skips_last_node and parameter_dtype(self.dtype) != self.dtype:
            emit = self._widened(emit)
        last.forward(emit)
        emit.call("unpack", emit.values[self._output])

    def _widened(self, emit: Emitter) -> Emitter:
        """The same calls go on in float32: results are not rounded where nothing reads them but the caller."""
        dtype = parameter_dtype(self.dtype)
        names = self._head.prediction, self._output
        values = {name: new_tensor(f"wide {name}", self._shapes[name], dtype) for name in names}
        emit.call("widen", values[self._head.prediction], emit.values[self._head.prediction])
        return replace(emit, dtype=dtype, values=values)

    def _emit_loss(self, emit: Emitter, *, backward: bool) -> None:
        place = emit.target(self._head.prediction) if backward else None
        target = None
        if self._head.kernel is not None:
            target = new_tensor("targets", *self.encoder.buffer(self._lanes))
            emit.call("targets", target)
        prediction = emit.values[self._head.prediction]
        emit.call("loss", self._head, prediction, target, None if place is None else place[0])


def _trainable_values(nodes: Sequence[FusedNode], owners: set[str]) -> frozenset[str]:
    """Values that depend on a parameter."""
    trainable: set[str] = set()
    for fused in nodes:
        if fused.name in owners or not trainable.isdisjoint(fused.inputs):
            trainable.add(fused.output)
    return frozenset(trainable)


def _lay_out(calls: Sequence[Call]) -> Program:
    lives = lifetimes(calls)
    offsets, num_bytes = assign_offsets(lives)
    return Program(tuple(calls), offsets, num_bytes, peak_bytes(lives))
