"""Where a loss meets the network and its targets: the same on every engine, so all compute the same stable form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ringlet.errors import DataError, UsageError
from ringlet.losses import LOSSES, GivenLoss, Loss
from ringlet.losses.base import Targets
from ringlet.models.spec import ModelSpec, Shape


@dataclass(frozen=True)
class Head:
    """Where the loss looks: the value it reads, and whether the last node is part of it."""

    loss: Loss
    prediction: str
    skips_last_node: bool

    @property
    def kernel(self) -> str | None:
        """The kernel that computes the loss without weights; None: its own functions do."""
        return self.loss.kernel(logits=self.skips_last_node)


def loss_head(spec: ModelSpec, loss: str | Loss) -> Head:
    """How ``loss`` meets the last node: softmax and sigmoid join their cross-entropy, which then sees logits."""
    found: Loss = LOSSES.made(loss)
    last = spec.nodes[-1]
    if last.op in found.joins:
        return Head(found, last.inputs[0], True)
    return Head(found, last.name, False)


def check_class_weights(weights: ArrayLike, output_shape: Shape) -> NDArray[np.float64]:
    """Weights of classes: one for each output, two (of 0 and 1) for a single one, or a pair for each label."""
    found = np.asarray(weights, np.float64)
    num_outputs = output_shape[0]
    allowed = [(2,)] if num_outputs == 1 else [(num_outputs,), (num_outputs, 2)]
    if found.shape not in allowed:
        raise UsageError(
            f"class weights of shape {found.shape} for {num_outputs} outputs: expected "
            + (f"{num_outputs} numbers" if num_outputs > 1 else "2 numbers, of targets 0 and 1")
        )
    if not (np.isfinite(found).all() and (found >= 0).all()):
        raise UsageError(f"class weights {found.tolist()}: expected numbers of at least 0")
    return found


def module_head(activation: str, loss: str | Loss) -> Head:
    """How ``loss`` meets the outputs of a module, of which ``activation`` (softmax, …) makes probabilities.

    The prediction is ``"raw"``, what the module gives, or ``"outputs"``, what the activation makes of it. A function of
    the program reads what the module gives.
    """
    found: Loss = LOSSES.made(loss)
    joined = isinstance(found, GivenLoss) or activation in found.joins
    return Head(found, "raw" if joined else "outputs", joined)


class TargetLayout(Protocol):
    """Checks targets as users give them and lays them out as a loss wants them, with their weights."""

    class_weights: NDArray[np.float64] | None

    def check(self, targets: NDArray[Any], num_samples: int) -> NDArray[Any]:
        """The targets of so many samples, or an error."""

    def check_weights(self, weights: ArrayLike | None, num_samples: int) -> NDArray[Any] | None:
        """The weights of samples ``(n,)``, or an error; None stays None."""

    def arranged(self, targets: NDArray[Any]) -> NDArray[Any]:
        """Checked targets with the samples outermost."""

    def weights(self, targets: NDArray[Any], of_samples: NDArray[Any] | None) -> NDArray[Any] | None:
        """How much each part of checked targets counts, samples outermost; None: all the same."""


def target_layout(
    loss: Loss, output_shape: Shape, dtype: np.dtype[Any], class_weights: ArrayLike | None = None
) -> TargetLayout:
    """What lays targets out for a loss, be it one of Ringlet's or a function of the program that has the module."""
    if not isinstance(loss, GivenLoss):
        return TargetEncoder(loss.targets, output_shape, dtype, class_weights)
    if class_weights is not None:
        raise UsageError(
            f"class weights cannot be applied to loss '{loss.title_given}', a function of the program: leave them out "
            "and weigh within the function, or name a loss"
        )
    return OwnTargets(dtype)


class TargetEncoder:
    """Checks targets as users give them and lays them out as losses want them, with their weights.

    It knows what a loss wants for outputs of a shape: classes ``(…, L)`` int32, or values like the prediction.
    """

    def __init__(
        self, wanted: Targets, output_shape: Shape, dtype: np.dtype[Any], class_weights: ArrayLike | None = None
    ) -> None:
        self._output_shape = output_shape
        self._dtype = dtype
        self._categorical = wanted == "classes"
        self.class_weights = None if class_weights is None else check_class_weights(class_weights, output_shape)

    def buffer(self, lanes: int) -> tuple[Shape, np.dtype[Any]]:
        """Shape and dtype of the array that the loss kernel reads."""
        if self._categorical:
            return (*self._output_shape[1:], lanes), np.dtype(np.int32)
        return (*self._output_shape, lanes), self._dtype

    def check(self, targets: NDArray[Any], num_samples: int) -> NDArray[Any]:
        """The targets as integer classes ``(n, …)`` or floating values ``(n, *output_shape)``, or an error."""
        targets = np.asarray(targets)
        values, classes = (num_samples, *self._output_shape), (num_samples, *self._output_shape[1:])
        if targets.dtype.kind in "iub":
            if targets.shape == values and not self._categorical:
                return targets.astype(self._dtype)
            if targets.shape == classes:
                return self._check_classes(targets)
        elif targets.dtype.kind == "f" and targets.shape == values and not self._categorical:
            return targets.astype(self._dtype, copy=False)
        wanted = f"integer classes of shape {classes}"
        if not self._categorical:
            wanted += f" or floating values of shape {values}"
        raise DataError(f"targets have shape {targets.shape} and dtype {targets.dtype}; the loss expects {wanted}")

    def check_weights(self, weights: ArrayLike | None, num_samples: int) -> NDArray[Any] | None:
        """The weights of samples ``(n,)``, or an error; None stays None."""
        return _checked_weights(weights, num_samples, self._dtype)

    def weights(self, targets: NDArray[Any], of_samples: NDArray[Any] | None) -> NDArray[Any] | None:
        """How much each pixel or element of checked targets counts, samples outermost; None: all the same.

        The axes are those of the arranged targets; an extent of 1 stands for all.
        """
        if self.class_weights is None:
            if of_samples is None:
                return None
            num_axes = len(self._output_shape) - 1 if self._categorical else len(self._output_shape)
            return of_samples.reshape(-1, *[1] * num_axes)
        found = self._of_classes(self.class_weights.astype(self._dtype), targets)
        return found if of_samples is None else found * of_samples.reshape(-1, *[1] * (found.ndim - 1))

    def _of_classes(self, table: NDArray[Any], targets: NDArray[Any]) -> NDArray[Any]:
        if targets.dtype.kind == "i":
            found: NDArray[Any] = table[targets]
            return found if self._categorical else found[:, None]
        if self._output_shape[0] == 1:
            return np.asarray(np.where(targets >= 0.5, table[1], table[0]))
        columns = (slice(None), *[None] * (targets.ndim - 2))
        if table.ndim == 1:
            return np.broadcast_to(table[columns], targets.shape)
        return np.asarray(np.where(targets >= 0.5, table[:, 1][columns], table[:, 0][columns]))

    def write(self, targets: NDArray[Any], out: NDArray[Any]) -> None:
        """Lay checked targets ``(n, …)`` out with the batch innermost; padding lanes get zeros."""
        num_samples = len(targets)
        if targets.dtype.kind == "f" or self._categorical:
            out[..., :num_samples] = targets if targets.ndim == 1 else np.moveaxis(targets, 0, -1)
            if num_samples < out.shape[-1]:
                out[..., num_samples:] = 0
            return
        out.fill(0)
        np.put_along_axis(out[..., :num_samples], np.moveaxis(targets, 0, -1)[None], 1, axis=0)

    def arranged(self, targets: NDArray[Any]) -> NDArray[Any]:
        """Checked targets with the samples outermost: classes ``(n, …)`` int64, or values ``(n, *output_shape)``."""
        if targets.dtype.kind == "f" or self._categorical:
            return targets
        values = np.zeros((len(targets), *self._output_shape), self._dtype)
        np.put_along_axis(values, targets[:, None], 1, axis=1)
        return values

    def _check_classes(self, classes: NDArray[Any]) -> NDArray[Any]:
        """Classes in range; with one output and a loss on values, classes are the values 0 and 1 themselves."""
        num_classes = self._output_shape[0]
        one_output = num_classes == 1 and not self._categorical
        limit = 2 if one_output else num_classes
        classes = classes.astype(np.int64, copy=False)
        if classes.size and classes.view(np.uint64).max() >= limit:  # a negative number is a huge one there
            wrong = classes[(classes < 0) | (classes >= limit)].flat[0]
            raise DataError(f"a target is class {wrong}; the network has classes 0 to {limit - 1}")
        if one_output:
            return classes.astype(self._dtype)[:, None]
        return classes


@final
class OwnTargets:
    """Targets of a loss that is a function of the program: it gets them as the data set has them."""

    class_weights: NDArray[np.float64] | None = None

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._dtype = dtype

    def check(self, targets: NDArray[Any], num_samples: int) -> NDArray[Any]:
        """As many as samples."""
        targets = np.asarray(targets)
        if targets.ndim == 0 or len(targets) != num_samples:
            raise DataError(f"targets have shape {targets.shape}; expected those of {num_samples} samples")
        return targets

    def arranged(self, targets: NDArray[Any]) -> NDArray[Any]:
        """As they are."""
        return targets

    def check_weights(self, weights: ArrayLike | None, num_samples: int) -> NDArray[Any] | None:
        """The weights of samples ``(n,)``, or an error; None stays None."""
        return _checked_weights(weights, num_samples, self._dtype)

    def weights(self, targets: NDArray[Any], of_samples: NDArray[Any] | None) -> NDArray[Any] | None:
        """Those of samples."""
        del targets
        return of_samples


def _checked_weights(weights: ArrayLike | None, num_samples: int, dtype: np.dtype[Any]) -> NDArray[Any] | None:
    if weights is None:
        return None
    found = np.asarray(weights)
    if found.shape != (num_samples,) or found.dtype.kind not in "iuf":
        raise DataError(
            f"sample weights have shape {found.shape} and dtype {found.dtype}; expected numbers ({num_samples},)"
        )
    if not (np.isfinite(found).all() and (found >= 0).all()):
        raise DataError("sample weights must be finite and at least 0")
    return found.astype(dtype)
