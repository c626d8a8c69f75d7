"""Any Keras optimizer, made distributed: gradients are averaged over ranks before the optimizer sees them.

Only ``apply`` of the instance is replaced, through which every backend passes. So the reduction comes before clipping,
the class stays what it was, and what is saved is the plain optimizer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any

import keras

from ringlet.keras import backends
from ringlet.keras.exchange import ArgumentError, Compression, GradientExchange
from ringlet.keras.variables import build, register
from ringlet.named import ProcessSet, Reduction
from ringlet.named.horovod import Compressor, Scaling
from ringlet.named.session import global_process_set

_ATTRIBUTE = "_ringlet_exchange"
_numbers = count()


def DistributedOptimizer(  # noqa: N802  Horovod's name
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",  # noqa: ARG001
    device_sparse: str = "",  # noqa: ARG001
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,  # noqa: ARG001
    gradient_predivide_factor: float = 1.0,
    op: Reduction = Reduction.AVERAGE,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,  # noqa: ARG001
    groups: Any = None,  # noqa: ARG001
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """``optimizer`` itself, which from now on averages (or sums) gradients over all ranks.

    With a global policy of ``mixed_float16`` a ``LossScaleOptimizer`` around it is returned, as ``compile`` would make
    one: one rank's overflow must be seen by all before they decide whether to skip a step.

    ``name``: of the exchange, the same on all ranks. ``compression``: of what travels.
    ``gradient_predivide_factor`` f: an average is 1/f before and f/size after the sum. ``backward_passes_per_step`` n:
    gradients of n batches are summed up locally, then exchanged and applied; ``average_aggregated_gradients`` divides
    them by n. A step averages over ranks, whatever the sizes of their batches. Ranks that are not in ``process_set``
    train by themselves. ``op`` may be Adasum, which combines the gradients of each variable by their directions.

    Devices, groups and ``sparse_as_dense`` are accepted for Horovod's sake: gradients travel together, in one buffer
    for each dtype, and sparse ones become dense.
    """
    found = keras.optimizers.get(_checked(optimizer))
    if exchange_of(found) is not None:
        raise ArgumentError(f"the optimizer '{found.name}' is distributed already: it must be wrapped once only")
    exchange = make_exchange(name, op, compression, gradient_predivide_factor, process_set)
    exchange.scale_local_gradients = scale_local_gradients
    if keras.config.dtype_policy().name == "mixed_float16" and not _scales_loss(found):
        found = keras.optimizers.LossScaleOptimizer(found)
    if backward_passes_per_step != 1:
        _accumulate(found, exchange, backward_passes_per_step, average_aggregated_gradients)
    attach(found, exchange)
    return found


def PartialDistributedOptimizer(  # noqa: N802  Horovod's name
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: Reduction = Reduction.AVERAGE,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any | Iterable[Any] | None = None,
    scale_local_gradients: bool = True,
) -> Any:
    """A :func:`DistributedOptimizer` that leaves the gradients of ``local_layers``, which are built, to each rank.

    ``scale_local_gradients``: they are divided by the number of ranks, as an average divides those of the others.
    """
    variables = layer_variables(local_layers)
    found = DistributedOptimizer(
        optimizer, name, device_dense, device_sparse, compression, sparse_as_dense, gradient_predivide_factor, op,
        backward_passes_per_step, average_aggregated_gradients, num_groups, groups, process_set, scale_local_gradients,
    )  # fmt: skip
    exchange = exchange_of(found)
    assert exchange is not None
    exchange.local_variables = {id(variable) for variable in variables}
    return found


def layer_variables(layers: Any | Iterable[Any] | None) -> list[Any]:
    """What is trained in one layer or several; a layer without weights yet is refused."""
    if layers is None:
        return []
    found = [layers] if isinstance(layers, keras.layers.Layer) else list(layers)
    for layer in found:
        if not isinstance(layer, keras.layers.Layer):
            raise ArgumentError(f"local_layers has {layer!r}: expected layers of Keras")
        if not layer.built:
            raise ArgumentError(f"the local layer '{layer.name}' has no weights yet: build the model before")
    return [variable for layer in found for variable in layer.trainable_variables]


def _checked(optimizer: Any) -> Any:
    """Refuse what is not of Keras 3, with the way out of it."""
    if isinstance(optimizer, keras.optimizers.Optimizer | str | dict):
        return optimizer
    kind = f"{type(optimizer).__module__}.{type(optimizer).__qualname__}"
    if kind.startswith("tf_keras"):
        advice = "unset TF_USE_LEGACY_KERAS and import keras (3) in place of tf_keras, which is Keras 2"
    else:
        advice = "with others apply the gradients of ringlet.tensorflow.DistributedGradientTape(tape)"
    raise ArgumentError(f"an optimizer of type {kind} cannot be distributed: expected one of Keras 3; {advice}")


def exchange_of(optimizer: Any) -> GradientExchange | None:
    """The exchange of a distributed optimizer; None of others."""
    found: GradientExchange | None = getattr(optimizer, _ATTRIBUTE, None)
    return found


def process_set_of(model: Any) -> ProcessSet | None:
    """The ranks that train this model together; None for all."""
    exchange = exchange_of(getattr(model, "optimizer", None))
    return None if exchange is None else exchange.process_set


def takes_part(model: Any) -> bool:
    """Whether this rank trains the model together with others; False if it is not in the optimizer's process set."""
    exchange = exchange_of(getattr(model, "optimizer", None))
    return exchange is None or exchange.takes_part


def attach(optimizer: Any, exchange: GradientExchange) -> None:
    """Let the gradients of ``optimizer`` pass through ``exchange``."""
    apply, stateless_apply = optimizer.apply, optimizer.stateless_apply

    def distributed_apply(grads: Sequence[Any], trainable_variables: Sequence[Any] | None = None) -> Any:
        variables = None if trainable_variables is None else list(trainable_variables)
        return apply(_exchanged(optimizer, exchange, list(grads), variables), variables)

    def distributed_stateless_apply(optimizer_variables: Any, grads: Any, trainable_variables: Any) -> Any:
        reduced = _exchanged(optimizer, exchange, list(grads), None)
        return stateless_apply(optimizer_variables, reduced, trainable_variables)

    setattr(optimizer, _ATTRIBUTE, exchange)
    optimizer.apply = distributed_apply
    if _scales_loss(optimizer):  # it decides about finite gradients before it comes to apply
        optimizer.stateless_apply = distributed_stateless_apply
    register(optimizer)


def detach(optimizer: Any) -> None:
    """Make it the plain optimizer again."""
    for name in (_ATTRIBUTE, "apply", "stateless_apply"):
        if name in vars(optimizer):
            delattr(optimizer, name)


def claim(model: Any) -> GradientExchange | None:
    """The exchange of a model's optimizer, checked; None if it is not distributed.

    A model with a policy of its own may have put loss scaling around a distributed optimizer; then the exchange moves
    outwards.
    """
    optimizer: Any = getattr(model, "optimizer", None)
    if _scales_loss(optimizer) and exchange_of(optimizer) is None:
        inner = optimizer.inner_optimizer
        moved = exchange_of(inner)
        if moved is not None:
            detach(inner)
            attach(optimizer, moved)
            backends.current().forget_traces(model)
    exchange = exchange_of(optimizer)
    if exchange is not None:
        backends.current().check_model(model)
    return exchange


def gradient_scaling(op: Reduction, predivide: float) -> Scaling:
    """How gradients are combined, from Horovod's arguments: 1/f before the sum, f/size after it."""
    if op not in (Reduction.AVERAGE, Reduction.SUM, Reduction.ADASUM):
        raise ArgumentError(f"gradients cannot be combined by {op}: expected Average, Sum or Adasum")
    if predivide <= 0 or (predivide != 1 and op is not Reduction.AVERAGE):
        raise ArgumentError(
            f"gradient_predivide_factor={predivide} with {op} makes no sense: expected a positive factor, with Average"
        )
    return Scaling(op, 1 / predivide, predivide)


def make_exchange(
    name: str | None, op: Reduction, compression: type[Compressor], predivide: float, process_set: ProcessSet | None
) -> GradientExchange:
    """The way of gradients between ranks, from Horovod's arguments."""
    how = gradient_scaling(op, predivide)
    return GradientExchange(
        name or f"ringlet.keras.gradients.{next(_numbers)}",
        op=how.op,
        prescale=how.prescale,
        postscale=how.postscale,
        compression=compression,
        process_set=process_set,
    )


def _scales_loss(optimizer: Any) -> bool:
    return isinstance(optimizer, keras.optimizers.LossScaleOptimizer)


def _accumulate(optimizer: Any, exchange: GradientExchange, num_passes: int, is_average: bool) -> None:
    """Keras accumulates gradients itself, and divides by the number of passes."""
    inner = optimizer.inner_optimizer if _scales_loss(optimizer) else optimizer
    known = inner.gradient_accumulation_steps
    if num_passes < 1 or known not in (None, num_passes) or (known is None and inner.built):
        raise ArgumentError(
            f"backward_passes_per_step={num_passes} cannot be set on an optimizer with gradient_accumulation_steps="
            f"{known}{' that is built' if inner.built else ''}: expected a number of at least 1, and an optimizer that "
            "has not been used"
        )
    inner.gradient_accumulation_steps = num_passes
    if not is_average:
        exchange.postscale *= num_passes


def _exchanged(
    optimizer: Any, exchange: GradientExchange, gradients: list[Any], variables: list[Any] | None
) -> list[Any]:
    """The gradients that all ranks agree on."""
    known = list(optimizer._trainable_variables) if variables is None else variables
    if all(gradient is None for gradient in gradients) or _are_left_alone(exchange, known):
        return gradients
    if any(getattr(variable, "overwrite_with_gradient", False) for variable in known):
        raise ArgumentError("variables that are overwritten by their gradients (float8) cannot be trained on ranks yet")
    backend = backends.current()
    dense = [
        keras.ops.zeros(variable.shape, variable.dtype) if gradient is None else backend.dense(gradient, variable)
        for gradient, variable in zip(gradients, known, strict=True)
    ]
    num_passes = optimizer.gradient_accumulation_steps
    if num_passes:
        return _reduced_at_last_pass(optimizer, exchange, dense, known, num_passes)
    return reduced(exchange, dense, known)


def _are_left_alone(exchange: GradientExchange, variables: list[Any]) -> bool:
    """Whether there is no one to agree with, or something else takes care; asked once for each exchange."""
    if exchange.is_needed is None:
        alone = exchange.size == 1 and exchange.prescale * exchange.postscale == 1
        exchange.is_needed = not alone and not backends.current().are_reduced_elsewhere(variables)
    return not exchange.is_needed


def reduced(exchange: GradientExchange, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
    """Dense gradients of ``variables``, combined over ranks; those of local variables stay here."""
    results = list(gradients)
    shared = [place for place, variable in enumerate(variables) if id(variable) not in exchange.local_variables]
    if len(shared) < len(results) and exchange.scale_local_gradients:
        results = [gradient / exchange.size for gradient in gradients]
    if not shared:
        return results
    packed = [exchange.compression.compress(gradients[place]) for place in shared]
    shapes = [tuple(variables[place].shape) for place in shared]
    exchanged = backends.current().exchange(exchange, [gradient for gradient, _ in packed], shapes)
    for place, result, (_, context) in zip(shared, exchanged, packed, strict=True):
        results[place] = exchange.compression.decompress(result, context)
    return results


def _reduced_at_last_pass(
    optimizer: Any, exchange: GradientExchange, gradients: list[Any], variables: list[Any], num_passes: int
) -> list[Any]:
    """Keras adds up gradients in variables of the optimizer and uses them at every n-th pass.

    Only then is there an exchange: of what was added up on this rank. The sum takes the place of the last gradient,
    and what was added up becomes zero, since it is in the sum.
    """
    build(optimizer, variables)
    added_up = [optimizer._accumulated_gradients[optimizer._get_variable_index(variable)] for variable in variables]
    is_last = keras.ops.equal((optimizer._iterations + 1) % num_passes, 0)
    totals = [gradient + added.value for gradient, added in zip(gradients, added_up, strict=True)]
    results = keras.ops.cond(is_last, lambda: reduced(exchange, totals, variables), lambda: gradients)
    for added in added_up:
        added.assign(keras.ops.where(is_last, keras.ops.zeros(added.shape, added.dtype), added.value))
    return list(results)
