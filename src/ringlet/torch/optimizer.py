"""``DistributedOptimizer``: a user's optimizer that applies the gradients of all ranks."""

from __future__ import annotations

import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

from ringlet.named import ArgumentsError, ProcessSet, Reduction
from ringlet.named.horovod import Compressor, Scaling
from ringlet.named.reductions import is_power_of_two
from ringlet.named.session import global_process_set
from ringlet.torch.exchange import ExchangeOptions, GradientExchange
from ringlet.torch.operations import allreduce
from ringlet.torch.optimizer_class import GradientStateError, WrappedOptimizer, asked_by_grad_scaler, wrap
from ringlet.torch.tensors import Compression

NamedParameters = Iterable[tuple[str, Parameter]]
OVERLAPS = ("auto", "on", "off")


def DistributedOptimizer(  # noqa: N802
    optimizer: Optimizer,
    named_parameters: NamedParameters | None = None,
    compression: type[Compressor] = Compression.none,
    backward_passes_per_step: int = 1,
    op: Reduction = Reduction.AVERAGE,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | list[list[Parameter]] | None = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
    overlap: str = "auto",
) -> Any:
    """An optimizer of the same class, groups and state that exchanges gradients with all ranks before it steps.

    Every rank of ``process_set`` must make it, with the same parameters in the same order; on the others it is a
    plain optimizer. Gradients travel while the backward pass runs (``overlap="on"``) or in ``step`` (``"off"``).
    By default it is ``"on"`` where a core is free for that or the ranks are on several machines.

    - ``named_parameters``: ``model.named_parameters()``; names are used in messages, and compared between ranks.
    - ``backward_passes_per_step``: gradients of so many passes are added up locally, then exchanged; more passes
      without a step raise, fewer (the rest of an epoch) are exchanged by ``step``.
    - ``gradient_predivide_factor`` f: gradients are divided by f before the sum and multiplied by f/size after it.
    - ``groups``: how many groups of parameters, or which, are exchanged as one operation (with overlap).
    - ``sparse_as_dense``: sparse gradients travel as dense ones instead of being gathered; they stay sparse here.

    Gradient clipping: ``optimizer.synchronize()``, clip, ``with optimizer.skip_synchronize(): optimizer.step()``.
    """
    if overlap not in OVERLAPS:
        raise ArgumentsError(f"overlap={overlap!r}: expected one of {', '.join(OVERLAPS)}")
    if op not in (Reduction.AVERAGE, Reduction.SUM, Reduction.ADASUM):
        raise ArgumentsError(f"op={op!r} of gradients: expected Average, Sum or Adasum")
    if gradient_predivide_factor != 1.0 and op is not Reduction.AVERAGE:
        raise ArgumentsError(f"gradient_predivide_factor={gradient_predivide_factor} works with op=Average only")
    if not backward_passes_per_step >= 1:
        raise ArgumentsError(f"backward_passes_per_step={backward_passes_per_step}: expected at least 1")
    if num_groups:
        warnings.warn("num_groups has been replaced by groups", DeprecationWarning, stacklevel=2)
        groups = num_groups if groups is None else groups
    names = _names(optimizer, named_parameters)
    groups = _check_groups(groups)
    is_alone = not process_set.included() or process_set.size() == 1
    if op is Reduction.ADASUM:
        made = wrap(optimizer, AdasumOptimizer)
        made.prepare(None if is_alone else process_set, compression, backward_passes_per_step)
        return made
    made = wrap(optimizer, GradientOptimizer)
    options = ExchangeOptions(compression, op, gradient_predivide_factor, groups, sparse_as_dense, overlap)
    made.prepare(names, options, backward_passes_per_step, None if is_alone else process_set)
    return made


class GradientOptimizer(WrappedOptimizer):
    """What comes before the user's class; see :func:`DistributedOptimizer`."""

    _process_set: ProcessSet | None = None
    _exchanges: tuple[GradientExchange, ...] = ()
    _frozen: tuple[Parameter, ...] = ()
    _should_synchronize = True
    _is_synchronized = False

    def prepare(
        self, names: dict[Parameter, str], options: ExchangeOptions, num_passes: int, process_set: ProcessSet | None
    ) -> None:
        """Find the other ranks' parameters; without a process set gradients stay here."""
        self.backward_passes_per_step = num_passes
        self._names, self._options, self._process_set = names, options, process_set
        self._exchanges = ()
        self._follow_new_parameters()

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups. Anyone who looks at complete gradients through them sees the exchanged ones."""
        for exchange in self._exchanges:
            if exchange.in_progress and (exchange.is_complete or asked_by_grad_scaler()):
                self.synchronize()
                break
        groups: list[dict[str, Any]] = self.__dict__["param_groups"]
        return groups

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:
        self.__dict__["param_groups"] = groups

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As for every optimizer; every rank must call."""
        super().add_param_group(param_group)
        self._follow_new_parameters()

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Exchange after so many backward passes from now on."""
        self.backward_passes_per_step = passes
        for exchange in self._exchanges:
            exchange.set_num_passes(passes)

    def synchronize(self) -> None:
        """Exchange all gradients now; the next ``step`` will not do it again."""
        for exchange in self._exchanges:
            exchange.synchronize()
        self._is_synchronized = True

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """A ``step`` in here exchanges nothing: for use after :meth:`synchronize`."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure: Callable[[], Any] | None = None, **options: Any) -> Any:
        """Exchange what was not exchanged, then step.

        With a ``closure``, gradients are exchanged and its loss is averaged (or summed) after each call of it.
        """
        self.note_step()
        if closure is not None and self._exchanges:
            return super().step(self._exchanging(closure), **options)
        if any(parameter.requires_grad for parameter in self._frozen):
            self._follow_new_parameters()
        if self._should_synchronize and not (self._is_synchronized and not self._in_progress):
            self.synchronize()
        self._is_synchronized = False
        return super().step(**options) if closure is None else super().step(closure, **options)

    step.hooked = True  # type: ignore[attr-defined]  # the user's class calls the step hooks

    def zero_grad(self, *arguments: Any, **options: Any) -> None:
        """As the user's class does it; raises between the backward pass and ``step`` or :meth:`synchronize`."""
        if self._in_progress:
            raise GradientStateError(
                "zero_grad() was called after backward() but before step() or synchronize(): gradients are on their "
                "way to the other ranks. Call it after step()"
            )
        super().zero_grad(*arguments, **options)

    @property
    def _in_progress(self) -> bool:
        return any(exchange.in_progress for exchange in self._exchanges)

    def _exchanging(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        def exchanging() -> Any:
            with torch.enable_grad():
                loss = closure()
            self.synchronize()
            self._is_synchronized = False
            op = self._options.op
            value = loss.detach() if isinstance(loss, Tensor) else torch.tensor(float(loss), dtype=torch.float64)
            (combined,) = allreduce([value], Scaling(op), self._process_set)
            return combined if isinstance(loss, Tensor) else float(combined)

        return exchanging

    def _follow_new_parameters(self) -> None:
        """Exchange the parameters that no exchange knows yet, also frozen ones that are so no longer.

        Every rank must have the same ones before the same step.
        """
        if self._process_set is None:
            return
        known = {id(parameter) for exchange in self._exchanges for parameter in exchange.parameters}
        found = [parameter for group in self.__dict__["param_groups"] for parameter in group["params"]]
        self._frozen = tuple(parameter for parameter in found if not parameter.requires_grad)
        new = [parameter for parameter in found if parameter.requires_grad and id(parameter) not in known]
        if not new:
            return
        names = [self._names.get(parameter) or f"allreduce.noname.{len(known) + n}" for n, parameter in enumerate(new)]
        exchange = GradientExchange(names, new, self._options, self.backward_passes_per_step, self._process_set)
        weakref.finalize(self, exchange.close).atexit = False
        self._exchanges = (*self._exchanges, exchange)


class AdasumOptimizer(WrappedOptimizer):
    """For ``op=Adasum``: every rank steps by itself, and the ranks' *steps* are combined.

    The differences of the parameters before and after the local step are combined by Adasum, tensor by tensor, so that
    the combination sees what the optimizer (momentum, Adam) made of the gradients.
    """

    _process_set: ProcessSet | None = None

    def prepare(self, process_set: ProcessSet | None, compression: type[Compressor], num_passes: int) -> None:
        """Without a process set it steps as the user's class does."""
        self.backward_passes_per_step = num_passes
        self._compression = compression
        self._process_set = process_set
        if process_set is not None and not is_power_of_two(process_set.size()):
            raise ArgumentsError(
                f"Adasum among {process_set.size()} ranks: expected a power of two, as ranks are combined in pairs"
            )

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups."""
        if self._process_set is not None and asked_by_grad_scaler():
            raise GradientStateError(
                "a GradScaler does not work with op=Adasum: ranks step by themselves, and one that skips a step would "
                "keep the others waiting. Use op=Average, or bfloat16, which needs no scaling"
            )
        groups: list[dict[str, Any]] = self.__dict__["param_groups"]
        return groups

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:
        self.__dict__["param_groups"] = groups

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Only a remark: gradients add up locally until ``step``."""
        self.backward_passes_per_step = passes

    def synchronize(self) -> None:
        """Nothing: gradients are not exchanged."""

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Not possible."""
        raise GradientStateError("a step with op=Adasum exchanges the step itself: it cannot skip that")
        yield

    def step(self, closure: Callable[[], Any] | None = None, **options: Any) -> Any:
        """Step locally, then move to where the combined steps of all ranks lead."""
        self.note_step()
        arguments = () if closure is None else (closure,)
        if self._process_set is None:
            return super().step(*arguments, **options)
        parameters = [p for group in self.param_groups for p in group["params"] if p.requires_grad]
        starts = [parameter.detach().clone() for parameter in parameters]
        result = super().step(*arguments, **options)
        with torch.no_grad():
            steps = [
                self._compression.compress(parameter.detach() - start)
                for parameter, start in zip(parameters, starts, strict=True)
            ]
            scaling = Scaling(Reduction.ADASUM)
            combined = allreduce([step for step, _ in steps], scaling, self._process_set)
            for parameter, start, step, (_, context) in zip(parameters, starts, combined, steps, strict=True):
                parameter.copy_(start + self._compression.decompress(step, context))
        return result

    step.hooked = True  # type: ignore[attr-defined]  # the user's class calls the step hooks


def _names(optimizer: Optimizer, named_parameters: NamedParameters | None) -> dict[Parameter, str]:
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if named_parameters is None:
        return {parameter: f"allreduce.noname.{place}" for place, parameter in enumerate(parameters)}
    named = list(named_parameters)
    if any(not isinstance(entry, tuple) or len(entry) != 2 for entry in named):
        raise ArgumentsError("named_parameters must be pairs (name, parameter), as model.named_parameters() gives them")
    doubles = sorted(name for name, count in Counter(name for name, _ in named).items() if count > 1)
    if doubles:
        raise ArgumentsError(f"names in named_parameters must be unique: {', '.join(doubles)} appear more than once")
    names = {parameter: name for name, parameter in named}
    unnamed = [place for place, parameter in enumerate(parameters) if parameter not in names]
    if unnamed:
        raise ArgumentsError(
            f"{len(unnamed)} of {len(parameters)} parameters of the optimizer are not in named_parameters (numbers "
            f"{', '.join(map(str, unnamed[:8]))}): pass those of the whole model, or none"
        )
    return names


def _check_groups(groups: object) -> int | list[list[Parameter]] | None:
    if groups is None or (isinstance(groups, int) and not isinstance(groups, bool) and groups >= 0):
        return groups or None
    if isinstance(groups, list | tuple) and all(isinstance(group, list | tuple) for group in groups):
        members = [parameter for group in groups for parameter in group]
        if all(isinstance(parameter, Tensor) for parameter in members):
            if len({id(parameter) for parameter in members}) != len(members):
                raise ArgumentsError("a parameter is in several groups: expected each in one at most")
            return [list(group) for group in groups]
    raise ArgumentsError(f"groups={groups!r}: expected a number that is not negative, or lists of parameters")
