"""PyTorch programs on two workers: ``ringlet.torch`` and DDP over "ringlet" beside DDP over Gloo and Horovod.

    python -m benchmarks.torch_training [--models simplecnn,simplecnn:16,vgg16_bn] [--repeats 5] [--channels-last]

Every worker has one thread and its own batch of the size in the table (``NAME:BATCH`` for another one). Every way is a
job of its own, started again in every repeat, as people run programs: Ringlet also changes how a process keeps memory.
All train the same network from the same weights and must reach the same ones.

"apart" are workers without any exchange, "meeting" are workers that wait for each other in every step and exchange
nothing: what any exchange could give at best; "DDP, meeting" the same under DDP, which copies gradients to buckets and
back: what any process group could give at best. "memory kept" are processes that keep their memory as those with
Ringlet do: what the exchange alone is worth shows against "DDP, gloo, memory kept" ("DDP over ringlet, kept").
Horovod takes part where it is installed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np

from benchmarks.cases import CASES, Case
from benchmarks.common import parser, print_machine, print_table, report, use_threads
from ringlet.bench.timing import time_calls, turns
from ringlet.machine import versions

ROUND_SECONDS = 1.0
"""A round has as many steps as fill about this long, unless --steps says how many."""
CHECKED_STEPS = 3
APART, MEETING, DDP_MEETING, GLOO, KEPT_GLOO, DDP, OPTIMIZER, KEPT_MEETING, HOROVOD = (
    "apart",
    "meeting",
    "DDP, meeting",
    "DDP, gloo",
    "DDP, gloo, memory kept",
    "DDP, ringlet",
    "ringlet.torch",
    "meeting, memory kept",
    "Horovod",
)
WITH_RINGLET = (DDP, OPTIMIZER, KEPT_MEETING)
COMPARED = {
    "DDP over ringlet": (DDP, GLOO),
    "ringlet.torch": (OPTIMIZER, GLOO),
    "Gloo, kept": (KEPT_GLOO, GLOO),
    "DDP over ringlet, kept": (DDP, KEPT_GLOO),
    "ringlet.torch, kept": (OPTIMIZER, KEPT_GLOO),
    "meeting": (MEETING, GLOO),
    "meeting, kept": (KEPT_MEETING, GLOO),
    "DDP, meeting": (DDP_MEETING, GLOO),
    "apart": (APART, GLOO),
    "Horovod": (HOROVOD, GLOO),
}
"""Columns: a way, and the one that it is compared with."""
Step = Callable[[], object]


def measure(
    model: str, way: str, num_rounds: int, num_steps: int, optimizer: str, channels_last: bool
) -> tuple[float, list[float]]:
    """Images per second, the median over rounds, and the norms of all weights; every worker must call."""
    import torch
    from torch import distributed

    import ringlet
    from ringlet.allocator import keep_freed_memory

    use_threads(1)
    if way == KEPT_GLOO:
        keep_freed_memory()
    if way in WITH_RINGLET:
        import ringlet.torch as hvd

        hvd.init()
    else:
        ringlet.init()
    distributed.init_process_group("ringlet" if way in WITH_RINGLET else "gloo")
    torch.manual_seed(0)
    case = _case(model)
    step, network = _prepare(case, way, optimizer, channels_last)
    for _ in range(CHECKED_STEPS):
        step()
    weights = [float(value.detach().double().norm()) for value in network.parameters()]
    rate = _images_per_second(case, step, num_rounds, num_steps)
    distributed.destroy_process_group()
    return rate, weights


def _case(text: str) -> Case:
    name, _, batch_size = text.partition(":")
    case = CASES[name]()
    return replace(case, batch_size=int(batch_size)) if batch_size else case


def ways() -> list[str]:
    """All that can take part here."""
    everywhere = [GLOO, KEPT_GLOO, DDP, OPTIMIZER, MEETING, DDP_MEETING, KEPT_MEETING, APART]
    return [*everywhere, HOROVOD] if versions("horovod") else everywhere


def _prepare(case: Case, way: str, optimizer_name: str, channels_last: bool) -> tuple[Step, Any]:
    """A function that trains one step, and the network."""
    import torch
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    from benchmarks.torch_models import TorchModel
    from ringlet.comm import world
    from ringlet.models.initializers import initialize

    memory_format = torch.channels_last if channels_last else torch.contiguous_format
    network = TorchModel(case.spec).train()
    network.load(initialize(case.spec, 0, "float32"))
    network = network.to(memory_format=memory_format)
    inputs, targets = (torch.from_numpy(array) for array in case.batch())
    inputs = inputs.contiguous(memory_format=memory_format)
    model: nn.Module = network
    if way in (GLOO, KEPT_GLOO, DDP, DDP_MEETING):
        model = DistributedDataParallel(network)
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
    meet = world.communicator().barrier if way in (MEETING, KEPT_MEETING) else lambda: None

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


def _require_equal_weights(weights: dict[str, list[float]]) -> None:
    """All workers have the same batch, so that even the ways without exchange must give the same."""
    for way, found in weights.items():
        if not np.allclose(found, weights[GLOO], rtol=1e-3, atol=1e-5):
            raise SystemExit(f"'{way}' reaches other weights than '{GLOO}' after {CHECKED_STEPS} steps")


def _images_per_second(case: Case, step: Step, num_rounds: int, num_steps: int) -> float:
    from ringlet.comm import world

    comm = world.communicator()
    if not num_steps:
        num_steps = max(2, round(ROUND_SECONDS / time_calls(step, 2, comm=comm)))
    seconds = median(time_calls(step, num_steps, comm=comm) for _ in range(num_rounds))
    return comm.size * case.batch_size / seconds


def compare(model: str, num_repeats: int, *arguments: Any, num_workers: int) -> dict[str, list[float]]:
    """Images per second of every repeat, by way."""
    import ringlet

    rates: dict[str, list[float]] = {way: [] for way in ways()}
    weights: dict[str, list[float]] = {}
    for way in turns(list(rates), num_repeats):
        job = ringlet.run(measure, model, way, *arguments, num_workers=num_workers, timeout=3600)
        rate, weights[way] = job[0]
        rates[way].append(rate)
        _require_equal_weights(weights)
    return rates


def main() -> None:
    """Measure and print."""
    options = parser(__doc__, num_rounds=3, num_threads=None)
    options.add_argument(
        "--models", default="simplecnn,simplecnn:16,vgg16_bn", help="comma list (default: %(default)s)"
    )
    options.add_argument("--repeats", type=int, default=5, help="starts of each job (default: %(default)s)")
    options.add_argument("--steps", type=int, default=0, help="steps of a round (default: as many as fill a second)")
    options.add_argument("--workers", type=int, default=2, help="workers (default: %(default)s)")
    options.add_argument("--optimizer", default="sgd", choices=["sgd", "adam"], help="default: %(default)s")
    options.add_argument("--channels-last", action="store_true", help="PyTorch's other memory layout for images")
    given = options.parse_args()
    layout = "channels last" if given.channels_last else "contiguous"
    print_machine(workers=given.workers, optimizer=given.optimizer, layout=layout)
    arguments = (given.rounds, given.steps, given.optimizer, given.channels_last)
    rows, results = [], {}
    for model in given.models.split(","):
        rates = results[model] = compare(model, given.repeats, *arguments, num_workers=given.workers)
        rows.append((_case(model).name, _case(model).batch_size, *_cells(rates)))
        print_table(("way", "images/s"), [(way, f"{median(values):,.0f}") for way, values in rates.items()])
    columns = ("network", "local batch", "Gloo images/s", *COMPARED)
    report(given, "torch_training", columns, rows, num_keys=2, results=results)


def _cells(rates: dict[str, list[float]]) -> list[str]:
    """Images per second over Gloo, and how many times as many the other ways gave, with the range of the repeats."""
    found = [f"{median(rates[GLOO]):,.0f}"]
    for way, against in COMPARED.values():
        ratios = [own / other for own, other in zip(rates.get(way, ()), rates[against], strict=False)]
        spread = f" ({min(ratios):.2f} to {max(ratios):.2f})" if len(ratios) > 1 else ""
        found.append(f"{median(ratios):.2f} x{spread}" if ratios else "-")
    return found


if __name__ == "__main__":
    main()
