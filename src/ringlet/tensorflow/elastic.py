"""States of training that survive failures, of TensorFlow's variables and of Keras models.

``ringlet.keras.elastic`` says how they work, and has the callbacks for ``fit``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ringlet.keras.elastic import KerasState, TensorFlowKerasState, VariablesState, run

__all__ = ["KerasState", "TensorFlowKerasState", "TensorFlowState", "run"]


class TensorFlowState(VariablesState):
    """A list of variables, and values by name: ``state.batch += 1``. Every rank must make it and call its methods.

    With ``directory`` commits are also written there, by rank 0. ``session`` is Horovod's, for TensorFlow 1.
    """

    def __init__(
        self,
        variables: Sequence[Any],
        session: Any = None,  # noqa: ARG002
        *,
        directory: str | os.PathLike[str] | None = None,
        **values: Any,
    ) -> None:
        self.variables = list(variables)
        super().__init__(directory, values)
        self.save()

    def _variables(self) -> list[Any]:
        return self.variables
