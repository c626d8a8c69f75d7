"""From options to a plan: data, network, machine and goal are looked up or measured here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ringlet.config import RunConfig
from ringlet.config.run_config import DEFAULT_LOCAL_BATCH_SIZE, DEFAULT_LOCAL_BATCH_SIZE_OF_MASKS
from ringlet.data import Dataset
from ringlet.errors import RingletError, UsageError
from ringlet.launch.resources import usable_cores
from ringlet.losses import Loss
from ringlet.models.spec import ModelSpec
from ringlet.models.zoo.member import DATASET_FORMS
from ringlet.planning.advice import Advice, Goal, advise, better_batch, binding, series
from ringlet.planning.forecast import Forecast, Scenario
from ringlet.planning.network import Network, make_network
from ringlet.planning.speed import DEFAULT_VARIATION, MachineSpeed, described_speed
from ringlet.planning.workload import Workload, describe_workload
from ringlet.strategies.contract import StrategyConfig

DEFAULT_COUNTS = tuple(1 << power for power in range(13))
"""1 to 4,096."""
MAX_WORKERS = 1 << 16
KNOWN_SIZES = {"mnist": 60_000, "fashion-mnist": 60_000, "cifar10": 50_000, "cifar100": 50_000, "imagenet": 1_281_167}
"""Training samples of data sets that need not be at hand."""
HELD_OUT = 0.1
"""Share of the training data that a run keeps for validation, unless they have such a part or it is told otherwise."""
WITH_VALIDATION = ("imagenet",)

Say = Callable[[str], None]


@dataclass(frozen=True)
class DescribedMachine:
    """A machine as the user describes it; all None: it is measured."""

    compute_seconds: float | None = None
    sample_seconds: float | None = None
    flops: float | None = None
    variation: float | None = None
    memory: int | None = None
    """Bytes of one worker."""

    def __post_init__(self) -> None:
        given = [name for name in ("compute_seconds", "sample_seconds", "flops") if getattr(self, name) is not None]
        if len(given) > 1:
            raise UsageError(f"{' and '.join(given)} say the same thing: give one of them")
        if given and getattr(self, given[0]) <= 0:
            raise UsageError(f"{given[0]} = {getattr(self, given[0]):g}: expected more than 0")
        if self.variation is not None and not 0 <= self.variation <= 2:
            raise UsageError(f"variation = {self.variation:g}: expected 0 to 2, such as 0.02 for two per cent")

    def pass_seconds(self, workload: Workload, local_batch_size: int) -> float | None:
        """Of one worker's pass over so many samples; None: to be measured."""
        if self.compute_seconds is not None:
            return self.compute_seconds
        if self.sample_seconds is not None:
            return self.sample_seconds * local_batch_size
        return None if self.flops is None else workload.training_flops * local_batch_size / self.flops


@dataclass(frozen=True)
class PlanOptions:
    """What to plan."""

    config: RunConfig
    counts: tuple[int, ...] = DEFAULT_COUNTS
    network: dict[str, Any] | None = None
    described: DescribedMachine = DescribedMachine()
    measure: bool = True
    measure_seconds: float = 10.0
    algorithm: str = "hierarchical"
    bucket_bytes: int | None = None
    whole_tensors: bool = False
    min_efficiency: float = 0.7

    def __post_init__(self) -> None:
        if not self.counts or min(self.counts) < 1 or max(self.counts) > MAX_WORKERS:
            raise UsageError(f"workers = {self.counts}: expected numbers from 1 to {MAX_WORKERS:,}")
        if not 0 < self.min_efficiency <= 1:
            raise UsageError(f"min_efficiency = {self.min_efficiency:g}: expected more than 0 and at most 1")


@dataclass(frozen=True)
class CapacityPlan:
    """The answer."""

    options: PlanOptions
    scenario: Scenario
    goal: Goal
    forecasts: tuple[Forecast, ...]
    advice: Advice
    larger_batch: Advice | None
    remarks: tuple[str, ...] = ()

    def binds(self, found: Forecast) -> str:
        """What a number of workers suffers from most."""
        return binding(found, self.goal)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        workload, scenario = self.scenario.workload, self.scenario
        return {
            "model": workload.name,
            "num_parameters": workload.num_parameters,
            "training_flops": workload.training_flops,
            "parameter_bytes": workload.parameter_bytes,
            "optimizer_bytes": workload.optimizer_bytes,
            "num_samples": self.goal.num_samples,
            "engine": scenario.engine.name,
            "strategy": named(scenario.strategy),
            "algorithm": scenario.algorithm,
            "compression": str(scenario.compression),
            "overlap": scenario.overlap,
            "scaling": "strong" if self.goal.is_strong else "weak",
            "machine": scenario.machine.to_dict(),
            "network": scenario.network.to_dict(),
            "workers": [found.to_dict() | {"binds": self.binds(found)} for found in self.forecasts],
            "advice": self.advice.to_dict(),
            "larger_batch": None if self.larger_batch is None else self.larger_batch.to_dict(),
            "remarks": list(self.remarks),
        }


def named(strategy: StrategyConfig) -> str:
    """A strategy without how it exchanges, which stands apart: ``sync``, ``average:10``."""
    return strategy.name if strategy.lockstep else str(strategy)


def make_plan(options: PlanOptions, say: Say = lambda _text: None) -> CapacityPlan:
    """Look up, measure if wanted, forecast, advise."""
    config, remarks = options.config, []
    config, dataset, num_samples, remark = find_data(config)
    remarks += [remark] if remark else []
    spec, loss, workload = _network_of(config, dataset)
    local = _batch_to_measure(config, dataset)
    network = make_network(options.network or {}, usable_cores())
    machine = _speed(options, config, workload, network, local, say)
    scenario = Scenario(
        spec=spec,
        workload=workload,
        machine=machine,
        network=network,
        algorithm=options.algorithm,
        strategy=config.strategy,
        engine=config.engine,
        loss=loss,
        bucket_bytes=options.bucket_bytes,
        whole_tensors=options.whole_tensors,
        seed=config.training.seed,
    )
    goal = Goal(
        local_batch_size=None if config.training.global_batch_size else local,
        global_batch_size=config.training.global_batch_size,
        min_efficiency=options.min_efficiency,
        memory_per_worker=_memory(options, machine, network),
        num_samples=num_samples,
    )
    return _answer(options, scenario, goal, remarks)


def _answer(options: PlanOptions, scenario: Scenario, goal: Goal, remarks: Sequence[str]) -> CapacityPlan:
    counts = sorted(set(options.counts))
    forecasts = series(scenario, goal, counts)
    advice = advise(forecasts, goal)
    larger = better_batch(scenario, goal, counts, advice)
    return CapacityPlan(options, scenario, goal, tuple(forecasts), advice, larger, tuple(remarks))


def find_data(config: RunConfig) -> tuple[RunConfig, Dataset, int, str | None]:
    """The data, or synthetic ones of the same shape if they are not at hand; and the samples of an epoch."""
    from ringlet.training.components import make_dataset

    name = config.dataset.name
    known = KNOWN_SIZES.get(name)
    try:
        dataset = make_dataset(config)
        return config, dataset, len(dataset.train), None
    except RingletError:
        if known is None or config.dataset.path or config.dataset.train_path:
            raise
    shape, classes = DATASET_FORMS.get(name, DATASET_FORMS["mnist"])
    usual = 0.0 if name in WITH_VALIDATION else HELD_OUT
    held_out = usual if config.dataset.validation_split is None else config.dataset.validation_split
    num_samples = round((config.dataset.num_samples or known) * (1 - held_out))
    size = config.dataset.image_size
    config = config.replace(
        dataset="synthetic",
        input_shape=config.model.input_shape or (shape if size is None else (shape[0], *size)),
        num_classes=config.model.num_classes or classes,
        num_samples=config.dataset.num_samples or 4096,
    )
    return config, make_dataset(config), num_samples, "the data are not at hand: synthetic ones of their shape served"


def _network_of(config: RunConfig, dataset: Dataset) -> tuple[ModelSpec, Loss, Workload]:
    from ringlet.training import components

    spec = components.make_spec(config, dataset)
    components.check_fit(spec, dataset)
    loss, _ = components.make_metrics(config, dataset)
    return (
        spec,
        loss,
        describe_workload(spec, config.training.dtype, len(config.optimizer.state_names)),
    )


def _batch_to_measure(config: RunConfig, dataset: Dataset) -> int:
    usual = DEFAULT_LOCAL_BATCH_SIZE_OF_MASKS if dataset.is_dense else DEFAULT_LOCAL_BATCH_SIZE
    if config.training.local_batch_size is not None and config.training.global_batch_size is not None:
        raise UsageError("local_batch_size fixes the work of a worker, global_batch_size that of all: give one of them")
    return config.training.local_batch_size or min(usual, config.training.global_batch_size or usual)


def _speed(
    options: PlanOptions, config: RunConfig, workload: Workload, network: Network, local: int, say: Say
) -> MachineSpeed:
    described = options.described
    seconds = described.pass_seconds(workload, local)
    if seconds is not None:
        return described_speed(
            seconds, local, DEFAULT_VARIATION if described.variation is None else described.variation
        )
    if not options.measure:
        raise UsageError(
            "without a measurement the time of a pass must be given: --compute-seconds (of a local batch), "
            "--sample-seconds (of a sample) or --flops (of a worker, per second)"
        )
    if described.variation is not None:
        raise UsageError("variation is measured with the rest: give it with --compute-seconds or --sample-seconds")
    from ringlet.planning.measuring import measure_speed

    say(f"measuring this machine for about {options.measure_seconds:g} s")
    return measure_speed(
        config,
        local,
        workers_per_machine=network.workers_per_machine,
        num_bytes=workload.parameter_bytes,
        seconds=options.measure_seconds,
        other=config.training.global_batch_size is not None,
    )


def _memory(options: PlanOptions, machine: MachineSpeed, network: Network) -> int | None:
    """Bytes for each worker: given, or a measured machine's shared by its workers."""
    if options.described.memory is not None or machine.memory_bytes is None:
        return options.described.memory
    return machine.memory_bytes // network.workers_per_machine
