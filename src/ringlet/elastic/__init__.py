"""For training loops of your own: a state that survives whatever happens to its processes.

    import ringlet.elastic

    state = ringlet.elastic.State("progress", step=0, weights=weights, settings={"rate": 0.1})
    state.restore()                      # False the first time
    while state.step < 1000:
        train_one_step(state.weights)
        state.step += 1
        if state.step % 50 == 0:
            state.commit()

Started with ``ringlet run -n 4 --restarts 3 program.py``, a rank that dies costs the steps since the last commit.
Takes names with values, gives them back after a restart. ``commits`` has the files and says what may be kept, ``loop``
has what ``ringlet.torch.elastic`` and ``ringlet.keras.elastic`` share.
"""

from __future__ import annotations

from ringlet.elastic.state import State

__all__ = ["State"]
