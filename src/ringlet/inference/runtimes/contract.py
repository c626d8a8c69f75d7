"""What every runtime offers: an artifact, ready to compute."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ringlet.inference.description import Description

Outputs = NDArray[np.float32]


class Runtime(Protocol):
    """A network in some framework. Threads may call :meth:`run` at the same time."""

    @property
    def description(self) -> Description:
        """What the artifact says about itself."""

    def run(self, values: NDArray[Any]) -> Outputs:
        """Outputs ``(n, *output_shape)`` of stored values ``(n, *graph_shape)``, channels last, contiguous."""

    def close(self) -> None:
        """Let go of everything; :meth:`run` must not be called any more."""
