"""PyTorch programs on two workers: ``ringlet.torch`` and DDP over "ringlet" beside DDP over Gloo and Horovod.

    python -m benchmarks.torch_training [--models simplecnn,simplecnn:16,vgg16_bn] [--rounds 9] [--steps 20]

Every worker has one thread and its own batch of the size in the table (``NAME:BATCH`` for another one). All ways train
the same network from the same weights in the same processes and take turns, round by round. "apart" are workers without
any exchange: what the machine gives at best; "meeting" are workers that wait for each other in every step and exchange
nothing: what any exchange could give at best; "DDP, meeting" the same under DDP, which copies gradients to buckets and
back: what any process group could give at best. Horovod takes part where it is installed. Before timing, all ways must
reach the same weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import metadata
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.common import parser, print_machine, print_table, save, use_threads
from benchmarks.steps import CASES, Case

ROUND_SECONDS = 1.0
"""A round has as many steps as fill about this long, unless --steps says how many."""
CHECKED_STEPS = 3
APART, MEETING, DDP_MEETING, GLOO, DDP, OPTIMIZER, HOROVOD = (
    "apart",
    "meeting",
    "DDP, meeting",
    "DDP, gloo",
    "DDP, ringlet",
    "ringlet.torch",
    "Horovod",
)
Step = Callable[[], object]


def measure(models: list[str], num_rounds: int, num_steps: int, optimizer: str) -> dict[str, Any]:
    """Images per second of every round, by model and way; every worker must call."""
    import torch
    from torch import distributed

    import ringlet.torch as hvd

    use_threads(1)
    hvd.init()
    distributed.init_process_group("ringlet")
    gloo = distributed.new_group(backend="gloo")
    results = {}
    for name in models:
        case = _case(name)
        steps, weights = {}, {}
        for way in ways():
            torch.manual_seed(0)
            steps[way], network = _prepare(case, way, gloo, optimizer)
            for _ in range(CHECKED_STEPS):
                steps[way]()
            weights[way] = [value.detach().clone() for value in network.parameters()]
        _require_equal_weights(weights)
        results[name] = _race(case, steps, num_rounds, num_steps)
    distributed.destroy_process_group()
    return results


def _case(text: str) -> Case:
    name, _, batch_size = text.partition(":")
    case = CASES[name]()
    return replace(case, batch_size=int(batch_size)) if batch_size else case


def ways() -> list[str]:
    """All that can take part here."""
    everywhere = [APART, MEETING, DDP_MEETING, GLOO, DDP, OPTIMIZER]
    try:
        metadata.version("horovod")
    except metadata.PackageNotFoundError:
        return everywhere
    return [*everywhere, HOROVOD]


def _prepare(case: Case, way: str, gloo: Any, optimizer_name: str) -> tuple[Step, Any]:
    """A function that trains one step, and the network."""
    import torch
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    from benchmarks.torch_models import TorchModel
    from ringlet.comm import world
    from ringlet.models.initializers import initialize

    network = TorchModel(case.spec).train()
    network.load(initialize(case.spec, 0, "float32"))
    inputs, targets = (torch.from_numpy(array) for array in case.batch())
    model: nn.Module = network
    if way in (GLOO, DDP, DDP_MEETING):
        model = DistributedDataParallel(network, process_group=gloo if way == GLOO else None)
    if way == DDP_MEETING:
        # PyTorch reads the annotations of a hook, and wants none that are texts.
        model.register_comm_hook(world.communicator(), lambda comm, bucket: _only_meet(comm, bucket))
    options: dict[str, Any] = {"lr": 1e-3, "momentum": 0.9} if optimizer_name == "sgd" else {"lr": 1e-4}
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[optimizer_name]
    optimizer: Any = kind(network.parameters(), fused=True, **options)
    if way in (OPTIMIZER, HOROVOD):
        if way == OPTIMIZER:
            import ringlet.torch as hvd
        else:
            import horovod.torch as hvd

            hvd.init()
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=network.named_parameters())
        hvd.broadcast_parameters(network.state_dict(), root_rank=0)
    criterion = nn.CrossEntropyLoss()
    meet = world.communicator().barrier if way == MEETING else lambda: None

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        criterion(model(inputs), targets).backward()
        meet()
        optimizer.step()

    return step, network


def _only_meet(comm: Any, bucket: Any) -> Any:
    """In place of an exchange: workers wait for each other at DDP's last bucket; buckets stay as they are."""
    import torch

    if bucket.is_last():
        comm.barrier()
    done: Any = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def _require_equal_weights(weights: dict[str, list[Any]]) -> None:
    """All workers have the same batch, so that even the way without exchange must give the same."""
    import torch

    expected = weights[GLOO]
    for way, found in weights.items():
        pairs = zip(expected, found, strict=True)
        if not all(torch.allclose(a, b, rtol=1e-2, atol=1e-4) for a, b in pairs):
            raise SystemExit(f"'{way}' reaches other weights than '{GLOO}' after {CHECKED_STEPS} steps")


def _race(case: Case, steps: dict[str, Step], num_rounds: int, num_steps: int) -> dict[str, list[float]]:
    from ringlet.comm import world

    comm = world.communicator()
    if not num_steps:
        num_steps = max(2, round(ROUND_SECONDS / _round(comm, steps[GLOO], 2) * 2))
    figures: dict[str, list[float]] = {way: [] for way in steps}
    for turn in range(num_rounds):
        for way in steps if turn % 2 == 0 else reversed(steps):
            seconds = _round(comm, steps[way], num_steps)
            figures[way].append(comm.size * case.batch_size * num_steps / seconds)
    return figures


def _round(comm: Any, step: Step, number: int) -> float:
    """Seconds of the slowest worker for so many steps."""
    from ringlet.comm.contract import Op

    comm.barrier()
    start = perf_counter()
    for _ in range(number):
        step()
    return float(comm.allreduce(np.array([perf_counter() - start]), Op.MAX)[0])


def main() -> None:
    """Measure and print."""
    import ringlet

    options = parser(__doc__, num_rounds=9, num_threads=None)
    options.add_argument(
        "--models", default="simplecnn,simplecnn:16,vgg16_bn", help="comma list (default: %(default)s)"
    )
    options.add_argument("--steps", type=int, default=0, help="steps of a round (default: as many as fill a second)")
    options.add_argument("--workers", type=int, default=2, help="workers (default: %(default)s)")
    options.add_argument("--optimizer", default="sgd", choices=["sgd", "adam"], help="default: %(default)s")
    given = options.parse_args()
    print_machine(workers=given.workers, optimizer=given.optimizer)
    models = given.models.split(",")
    results = ringlet.run(
        measure, models, given.rounds, given.steps, given.optimizer, num_workers=given.workers, timeout=3600
    )[0]
    rows = []
    for model, figures in results.items():
        rates = {way: median(values) for way, values in figures.items()}
        for way, rate in rates.items():
            # Ways take turns: a ratio within each round feels less of what else the machine does.
            ratio = median(own / gloo for own, gloo in zip(figures[way], figures[GLOO], strict=True))
            rows.append((_case(model).name, _case(model).batch_size, way, f"{rate:,.0f}", f"{ratio:.2f} x"))
    print_table(("network", "local batch", "way", "images/s", "times DDP over Gloo"), rows)
    save(given.json, "torch_training", workers=given.workers, optimizer=given.optimizer, results=results)


if __name__ == "__main__":
    main()
