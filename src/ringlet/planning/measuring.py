"""A short measurement of this machine on real ranks: passes without any exchange, and exchanges without any pass.

Every rank trains for itself (``Trainer``: batches, forward, backward, metrics, the log), alone and with others at once;
in between it repeats the pass alone, on one batch. The latter says how much passes vary: in a run they also vary
because a thread that makes batches ahead takes its turns on the same core, but that evens out, since it gets ahead
while a worker waits for others. Exchanges are those of the synchronous strategy on buffers of a few fixed sizes; before
each of them every rank reads all parameters and writes its gradients, as a pass does, because cores must then get from
each other's caches what they add up and update. What a step of several workers takes is measured nowhere: the plan puts
it together.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import fmean
from time import perf_counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from ringlet.bench.timing import Variant, take_turns, turns
from ringlet.comm.contract import Op
from ringlet.config import RunConfig
from ringlet.launch import run
from ringlet.launch.resources import total_bytes, usable_cores
from ringlet.planning.speed import MachineSpeed
from ringlet.strategies.synchronous import SyncConfig
from ringlet.timeline import PHASES

if TYPE_CHECKING:
    from ringlet.comm.contract import Communicator
    from ringlet.data import Batch
    from ringlet.training.events import Event

SIZES = (1 << 12, 1 << 16, 1 << 19, 1 << 21, 1 << 23, 1 << 25, 1 << 27)
"""Bytes of parameters whose exchange is measured: up to the first that holds the network's."""
NUM_TURNS = (3, 5)
"""Least and most; fewer where passes are long. Of these the quieter half (and the one in the middle) counts: what other
programs do to the machine in the meantime is not part of the plan."""
MIN_PASSES = 2
COMMON = 0.99
"""Longer times than this quantile are cut to it: a few hundred cannot tell how often such rare ones happen."""
SETTLING = 1
"""Passes at the start of an epoch, and of a turn, that do not count."""
NOT_OF_THE_PASS = tuple(PHASES.index(name) for name in ("wait", "reduce", "exchange", "update"))
NUM_ROUNDS, ROUND_SECONDS, MAX_CALLS = 7, 0.02, 500
"""Of the measurement of an exchange."""
TIMEOUT = 1800.0


def measure_speed(
    config: RunConfig, local_batch_size: int, *, workers_per_machine: int, num_bytes: int, seconds: float, other: bool
) -> MachineSpeed:
    """Start ranks and measure for about ``seconds``; ``other`` asks for a second batch size."""
    counts = worker_counts(min(usable_cores(), workers_per_machine))
    sizes = [size for place, size in enumerate(SIZES) if place == 0 or SIZES[place - 1] < num_bytes]
    batches = [local_batch_size, *([other_batch_size(local_batch_size)] if other else [])]
    apart = config.replace(strategy=SyncConfig(overlap="off"), local_batch_size=None, global_batch_size=None)
    results = run(
        measure_rank, apart.to_dict(), batches, counts, sizes, seconds, num_workers=max(counts), timeout=TIMEOUT
    )
    passes = {count: _joined(results, "passes", count) for count in counts}
    steps = {count: fmean(_joined(results, "steps", count)) for count in counts}
    most = max(counts)
    ratio = fmean(_joined(results, "passes", most, 1)) / fmean(passes[most]) if other else None
    return MachineSpeed(
        local_batch_size,
        passes,
        cores=usable_cores(),
        other_batch=None if ratio is None else (batches[1], ratio),
        besides={count: max(0.0, steps[count] - fmean(passes[count])) for count in counts},
        exchange={count: [tuple(point) for point in results[0]["exchange"][str(count)]] for count in counts},
        turns={count: [fmean(turn) for turn in _turns(results, "passes", count)] for count in counts},
        process_bytes=max(result["process_bytes"] for result in results),
        memory_bytes=total_bytes(),
        threads=results[0]["threads"],
    )


def worker_counts(most: int) -> list[int]:
    """1, 2, 4 … and ``most``; at least one."""
    return sorted({1, most, *(1 << power for power in range(most.bit_length()) if 1 << power <= most)})


def other_batch_size(local_batch_size: int) -> int:
    """A batch size whose pass costs something else: a quarter, or twice a single sample."""
    quarter = max(1, local_batch_size // 4)
    return quarter if quarter < local_batch_size else 2 * local_batch_size


def _joined(results: list[dict[str, Any]], kind: str, count: int, place: int = 0) -> list[float]:
    """The times of all ranks in the quieter turns, without exceptional ones."""
    turns = _turns(results, kind, count, place)
    quiet = sorted(turns, key=fmean)[: (len(turns) + 1) // 2]
    times = [seconds for turn in quiet for seconds in turn]
    return [float(value) for value in np.minimum(times, np.quantile(times, COMMON))]


def _turns(results: list[dict[str, Any]], kind: str, count: int, place: int = 0) -> list[list[float]]:
    """The times of all ranks, turn by turn."""
    ranks = [result[kind][place][str(count)] for result in results if str(count) in result[kind][place]]
    return [[seconds for times in turn for seconds in times] for turn in zip(*ranks, strict=True)]


def measure_rank(
    options: dict[str, Any], batches: list[int], counts: list[int], sizes: list[int], seconds: float
) -> dict[str, Any]:
    """What every rank does; see :func:`measure_speed`."""
    from ringlet.comm import world

    comm = world.communicator()
    process_bytes = resident_bytes()
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
    config = RunConfig(None, **values)
    passes, steps = [], []
    for place, batch in enumerate(batches):
        walker = Walker(config, batch, comm)
        alone, training = _take_turns(walker, comm, counts if place == 0 else counts[-1:], seconds)
        passes.append(alone)
        steps.append(training)
        walker.close()
    exchange = {str(count): _exchanges(config, comm, count, sizes) for count in counts}
    threads = int(os.environ.get("OMP_NUM_THREADS", 0)) or None
    return {
        "passes": passes,
        "steps": steps,
        "exchange": exchange,
        "process_bytes": process_bytes,
        "threads": config.engine.threads or threads,
    }


Turns = dict[str, list[list[float]]]
"""Times of this rank by the number of ranks at once, one list for each turn."""


def _take_turns(walker: Walker, comm: Communicator, counts: list[int], seconds: float) -> tuple[Turns, Turns]:
    """Times of this rank's passes alone and of its steps; all take turns, so that noise meets all of them."""
    passes: Turns = {str(count): [] for count in counts if comm.rank < count}
    steps: Turns = {str(count): [] for count in counts if comm.rank < count}
    num_turns = _num_turns(walker, comm, len(counts), seconds)
    kinds = ((passes, walker.repeat), (steps, walker.walk))
    for count, (kind, measure) in turns(list(product(counts, kinds)), num_turns):
        comm.barrier()
        if comm.rank < count:
            kind[str(count)].append(measure(seconds / (2 * num_turns * len(counts))))
    comm.barrier()
    return passes, steps


def _num_turns(walker: Walker, comm: Communicator, num_counts: int, seconds: float) -> int:
    """As many as fit into ``seconds``, within limits; the same on all ranks."""
    own = max(walker.repeat(0.0))
    least = 2 * num_counts * (SETTLING + MIN_PASSES) * float(comm.allreduce(np.array([own]), Op.MAX)[0])
    return max(NUM_TURNS[0], min(NUM_TURNS[1], int(seconds / least)))


class Walker:
    """Trains for itself, without anyone to exchange with, for as long as it is told."""

    def __init__(self, config: RunConfig, local_batch_size: int, comm: Communicator) -> None:
        from ringlet.comm.single import SingleCommunicator
        from ringlet.training import components
        from ringlet.training.events import EventLog
        from ringlet.training.trainer import Trainer

        config = config.replace(local_batch_size=local_batch_size, checkpoint_every="never", on_nan="skip")
        self._folder = tempfile.TemporaryDirectory(prefix="ringlet-plan-")
        self._log = EventLog(Path(self._folder.name) / "events.ndjson")  # as rank 0 of a run, for which all wait
        dataset = replace(components.make_dataset(config), validation=None, test=None)
        self._trainer = Trainer(
            dataset=dataset, config=config, communicator=SingleCommunicator(), callbacks=[self._log, self._note]
        )
        for turn in range(comm.size):  # the first measures algorithms in peace, the others take what it has found
            if comm.rank == turn:
                self._trainer.replica.prepare()
            comm.barrier()
        self._batch = self._first_batch()

    def close(self) -> None:
        """Remove the log."""
        self._log.close()
        self._folder.cleanup()

    def _first_batch(self) -> Batch:
        from ringlet.data import BatchLoader

        trainer = self._trainer
        normalization, dtype = trainer.dataset.normalization, trainer.config.training.parameter_dtype
        loader = BatchLoader(
            trainer.dataset.train,
            global_batch_size=trainer.global_batch_size,
            normalization=normalization,
            dtype=dtype,
            prefetch=0,
        )
        return next(loader.epoch(0))

    def repeat(self, seconds: float) -> list[float]:
        """Repeat the pass over one batch for about so long; the seconds of every one that counts."""
        replica, batch = self._trainer.replica, self._batch
        times: list[float] = []
        end, settling = perf_counter() + seconds, SETTLING
        while len(times) < MIN_PASSES or perf_counter() < end:
            start = perf_counter()
            replica.loss_and_gradients(batch.inputs, batch.targets)
            if settling > 0:
                settling -= 1
            else:
                times.append(perf_counter() - start)
        return times

    def walk(self, seconds: float) -> list[float]:
        """Train for about so long; the seconds of every step that counts, without its update."""
        from ringlet.training.observers import Control

        self._times: list[float] = []
        self._control, self._last, self._end = Control(), perf_counter(), perf_counter() + seconds
        self._settling = SETTLING
        while not self._control.interrupted:
            self._trainer.fit(1, control=self._control)
        return self._times

    def _note(self, event: Event) -> None:
        from ringlet.training.events import StepFinished

        if not isinstance(event, StepFinished):
            return
        now, phases = perf_counter(), self._trainer.timeline.take()
        if self._settling > 0 or event.step_in_epoch <= SETTLING:
            self._settling -= 1
        else:
            self._times.append(now - self._last - sum(phases[place] for place in NOT_OF_THE_PASS))
        if now >= self._end and len(self._times) >= MIN_PASSES:
            self._control.interrupt("measured enough")
        self._last = perf_counter()


def _exchanges(config: RunConfig, comm: Communicator, count: int, sizes: list[int]) -> list[tuple[int, float]]:
    """Seconds of adding up and updating so many bytes of parameters by ``count`` ranks; the others wait."""
    group = comm.group(range(count))
    points = []
    for size in sizes:
        comm.barrier()
        seconds = 0.0
        if group is not None:
            variant = _exchange(config, group, size)
            take_turns([variant], NUM_ROUNDS, comm=group, round_seconds=ROUND_SECONDS, max_calls=MAX_CALLS)
            seconds = variant.median
        points.append((size, float(comm.broadcast(np.array([seconds]))[0])))
    return points


def _exchange(config: RunConfig, comm: Communicator, num_bytes: int) -> Variant:
    """What the synchronous strategy does after a pass, prepared by what a pass does to the memory that ranks share."""
    from ringlet.kernels import load
    from ringlet.optim import Segment
    from ringlet.strategies.contract import Job, Layout

    dtype = np.dtype(config.training.parameter_dtype)
    number = max(1, num_bytes // dtype.itemsize)
    layout = Layout((Segment(0, number, "all"),), number, 0, dtype)
    kernels, training = load(config.engine.kernels), config.training
    job = Job(comm, layout, config.optimizer, kernels, clip_value=training.clip_value, clip_norm=training.clip_norm)
    strategy = SyncConfig(overlap="off").build(job)
    stand_in: Any = SimpleNamespace(state=SimpleNamespace(flat=np.zeros(0, dtype)))
    strategy.attach(stand_in)
    sums = np.zeros((comm.size, 8))

    def touch() -> None:
        strategy.parameters.sum()
        strategy.gradients[:] = 1e-3

    def exchange() -> None:
        strategy.begin()
        strategy.add(comm.rank, 1)
        strategy.agree(sums)
        strategy.update(step=1, learning_rate=1e-6, num_samples=comm.size)

    return Variant("exchange", exchange, prepare=touch)


def resident_bytes() -> int:
    """Memory of this process now."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return pages * os.sysconf("SC_PAGE_SIZE")
