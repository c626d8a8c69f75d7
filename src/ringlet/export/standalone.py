"""A PyTorch module around a trained one: from stored values, as the data set has them, to what predictions say."""

from __future__ import annotations

import copy
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn

from ringlet.inference.description import Description
from ringlet.models.module_spec import ModuleSpec
from ringlet.operations.writers import per_channel


@final
class Standalone(nn.Module):
    """Takes (n, H, W, C) or (n, F), normalises, and gives probabilities or values with the channels first.

    It has a copy of the module: in inference mode, in float32, on the processor.
    """

    factor: Tensor
    offset: Tensor

    def __init__(self, spec: ModuleSpec, description: Description) -> None:
        super().__init__()
        self.network = copy.deepcopy(spec.module).to("cpu", torch.float32)
        self._activation = spec.activation
        preprocessing = description.preprocessing
        self._is_image = preprocessing.is_image
        factor, offset = preprocessing.normalization.factors(np.float32)
        shape = preprocessing.input_shape
        self.register_buffer("factor", torch.from_numpy(per_channel(factor, shape)))
        self.register_buffer("offset", torch.from_numpy(per_channel(offset, shape)))
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        """One pass."""
        samples = images.permute(0, 3, 1, 2) if self._is_image else images
        raw: Tensor = self.network((samples.to(torch.float32) * self.factor + self.offset).contiguous())
        raw = raw.unsqueeze(1) if raw.ndim == 1 else raw
        if self._activation == "identity":
            return raw
        return torch.softmax(raw, 1) if self._activation == "softmax" else torch.sigmoid(raw)


@final
class _KerasStandalone(nn.Module):
    """A Keras model on PyTorch, whose masks come out with their channels first."""

    def __init__(self, model: Any, *, masks: bool) -> None:
        super().__init__()
        self.model, self._masks = model, masks
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        """One pass."""
        outputs: Tensor = self.model(images, training=False)
        return outputs.permute(0, 3, 1, 2) if self._masks else outputs


def standalone_of_keras(model: Any, description: Description) -> nn.Module:
    """The same of a functional Keras model that takes stored values."""
    return _KerasStandalone(model, masks=len(description.output_shape) == 3)
