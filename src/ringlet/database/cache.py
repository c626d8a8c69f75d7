"""Models that are loaded, by their SHA-256: a warm call never loads one again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import final

from ringlet.database.models import open_predictor
from ringlet.inference.artifact import Artifact
from ringlet.inference.predictor import Predictor

CAPACITY = 4


@final
class PredictorCache:
    """The ``capacity`` predictors of this process that were used last; threads may share it."""

    def __init__(self, *, threads: int, batch_size: int, capacity: int = CAPACITY) -> None:
        self._threads, self._batch_size, self._capacity = threads, batch_size, capacity
        self._predictors: OrderedDict[str, Predictor] = OrderedDict()
        self._lock = Lock()
        self.num_loads = 0
        """How often a model was loaded."""

    def __contains__(self, sha256: str) -> bool:
        return sha256 in self._predictors

    def get(self, sha256: str, load: Callable[[], Artifact]) -> Predictor:
        """The predictor of a model; ``load`` gives its verified content, if it is not here yet.

        The oldest one goes when there are too many. It is not closed: another thread may be using it.
        """
        with self._lock:
            found = self._predictors.get(sha256)
            if found is None:
                found = open_predictor(load(), threads=self._threads, batch_size=self._batch_size)
                self.num_loads += 1
            self._predictors[sha256] = found
            self._predictors.move_to_end(sha256)
            if len(self._predictors) > self._capacity:
                self._predictors.popitem(last=False)
            return found

    def close(self) -> None:
        """Free all; nobody may be using one."""
        while self._predictors:
            self._predictors.popitem()[1].close()
