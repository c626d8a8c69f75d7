"""What ranks do in tests of the elastic state."""

from __future__ import annotations

from typing import Any

import numpy as np

from ringlet.comm.contract import Communicator
from ringlet.elastic import State
from ringlet.errors import CheckpointError


def make(comm: Communicator, directory: str) -> State:
    return State(
        directory,
        communicator=comm,
        step=0,
        best=float("inf"),
        weights=np.zeros((3, 2)),
        scale=np.array(1.0, np.float32),
        settings={"rate": 0.1, "names": ["a", "é"]},
    )


def train(comm: Communicator, directory: str, num_steps: int) -> dict[str, Any]:
    """Go on from the newest commit; only rank 0 knows something that the others have to get."""
    state = make(comm, directory)
    held = state.weights
    restored = state.restore()
    seen = [state.step, state.best, held.tolist(), float(state.scale), state.settings]
    for _ in range(num_steps):
        state.step += 1
        state.weights += 1.0 if comm.rank == 0 else 100.0
        state.scale = np.array(state.step / 3, np.float32)
        state.best = 1 / state.step
        state.settings = {"rate": 0.1 / state.step}
        state.commit()
    return {"restored": restored, "seen": [value if value != float("inf") else "inf" for value in seen]}


def fail(comm: Communicator, directory: str, what: str) -> str:
    """The message of the error, which all ranks must get."""
    state = make(comm, directory)
    try:
        if what == "restore":
            state.restore()
        else:
            state.settings = {"array": np.array([None])}
            state.commit()
    except CheckpointError as error:
        return str(error)
    return ""
