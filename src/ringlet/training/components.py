"""The components of a run, each made from its part of the configuration; ``session`` calls them in order.

Every name and shape is checked here, before anything is written or computed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.comm.contract import Communicator
from ringlet.config import RunConfig
from ringlet.config.run_config import DEFAULT_LOCAL_BATCH_SIZE, DEFAULT_LOCAL_BATCH_SIZE_OF_MASKS
from ringlet.config.sections import AUTO
from ringlet.data import Augmentation, Dataset, load_dataset
from ringlet.data.formats import DATASETS, DatasetFormat
from ringlet.data.partition import Cut
from ringlet.data.source import Task, weights_of
from ringlet.engines.contract import Replica
from ringlet.engines.modules import OwnLoss
from ringlet.errors import ConfigError, SpecError
from ringlet.guards.agreement import check_same, dataset_fingerprint, software_facts
from ringlet.io.disk import Say
from ringlet.kernels.contract import Kernels
from ringlet.losses import Loss
from ringlet.metrics import Measure, Metric
from ringlet.metrics.base import measures
from ringlet.models import zoo
from ringlet.models.foreign import fitting as foreign
from ringlet.models.module_spec import ModuleSpec, Network
from ringlet.models.momentum import SLOW, fitting_momentum, momentum_of, with_momentum
from ringlet.models.spec import ModelSpec
from ringlet.models.zoo.last_layer import LastLayer
from ringlet.models.zoo.member import DATASET_FORMS
from ringlet.optim import Optimizer, Schedule
from ringlet.strategies.contract import Job, Layout, Strategy
from ringlet.timeline import Timeline
from ringlet.training.learning import Learning
from ringlet.training.memory import Demand
from ringlet.training.modules import share_kept
from ringlet.training.run_directory import MODEL


def make_dataset(config: RunConfig, *, stratified: bool = True) -> Dataset:
    """The data set of a run; synthetic data take the shape of the data set or network that they stand for."""
    chosen, shape, classes = config.dataset, config.model.input_shape, config.model.num_classes
    if chosen.synthetic or chosen.name == "synthetic":
        name, shape, classes = _synthetic(config)
        chosen = DATASETS.create(name, **{option: getattr(chosen, option) for option in DatasetFormat.model_fields})
    return load_dataset(
        chosen, input_shape=shape, num_classes=classes, seed=config.training.seed, stratified=stratified
    )


def _synthetic(config: RunConfig) -> tuple[str, tuple[int, ...], int]:
    """Name, shape and classes; masks (the built-in shapes) where the network paints them."""
    model, form = config.model, DATASET_FORMS.get(config.dataset.name)
    shape = model.input_shape or (form[0] if form else None)
    classes = model.num_classes or (form[1] if form else None)
    network = zoo.fitting(shape or (1, 28, 28)) if model.network == AUTO else model.network
    natural = zoo.create(network, input_shape=shape, num_classes=classes, **model.options)
    if len(natural.output_shape) == 3:
        return "shapes", natural.input_shape, natural.output_shape[0]
    return "synthetic", natural.input_shape, natural.output_shape[0]


def samples_per_step(config: RunConfig, dataset: Dataset, comm: Communicator) -> int:
    """The global batch size: that asked for, else what is usual for the task."""
    usual = DEFAULT_LOCAL_BATCH_SIZE_OF_MASKS if dataset.is_dense else DEFAULT_LOCAL_BATCH_SIZE
    return config.samples_per_step(comm.size, usual)


def samples_per_shard(config: RunConfig, num_train: int, global_batch_size: int, num_shards: int) -> int:
    """The most samples of one shard in a step: a batch larger than the training data is never filled."""
    num_copies = num_shards if config.workers.partition == "replicated" else 1
    return -(-min(global_batch_size, num_train * num_copies) // num_shards)


def steps_per_epoch(config: RunConfig, num_train: int, global_batch_size: int, num_shards: int) -> int:
    """The steps of one epoch: until all training samples were read, or as many as were asked for."""
    partition = config.workers.partition
    num_copies = num_shards if partition == "replicated" else 1
    cut = Cut(num_train * num_copies, global_batch_size, num_shards, partition != "shuffled")
    steps, limit = cut.num_steps(), config.training.steps_per_epoch
    return min(steps, limit) if limit else steps


def oversized_batch(num_train: int, global_batch_size: int) -> list[str]:
    """A remark if the training data do not fill one batch."""
    if global_batch_size <= num_train:
        return []
    return [
        f"the global batch of {global_batch_size:,} samples is larger than the training data ({num_train:,}): "
        "an epoch is one step with all of them. Smaller batches learn in more steps"
    ]


def make_spec(config: RunConfig, dataset: Dataset) -> ModelSpec:
    """The network of a run, fitted to the shape, classes and task of its data."""
    model = config.model
    shape, classes = model.input_shape or dataset.input_shape, model.num_classes or dataset.num_classes
    last = model.last_layer or _last_layer(dataset.task, classes)
    network = _network(model.network, dataset)
    return zoo.create(network, input_shape=shape, num_classes=classes, last_layer=last, **model.options)


def _last_layer(task: Task, num_outputs: int) -> LastLayer:
    if task == "regression":
        return "linear"
    return "sigmoid" if task == "multilabel" or num_outputs == 1 else "softmax"


def _network(name: str, dataset: Dataset) -> str:
    """The network that is named, or the one that fits the data."""
    return zoo.fitting(dataset.input_shape, paints=dataset.is_dense) if name == AUTO else name


def settle_statistics(
    config: RunConfig, spec: ModelSpec, num_steps: int, before: float | None
) -> tuple[ModelSpec, list[str]]:
    """The network with a momentum of batch norm that fits the steps of an epoch, and a remark, unless it was given.

    ``before`` is the momentum of the run that is resumed, which stays.
    """
    own = momentum_of(spec)
    if own is None or own <= SLOW or "momentum" in config.model.options:
        return spec, []
    if before is not None:
        return (spec if before == own else with_momentum(spec, before)), []
    fitting = fitting_momentum(num_steps)
    if fitting >= own:
        return spec, []
    remark = f"batch norm: momentum {fitting:g} instead of {own:g}, since an epoch has {num_steps} steps"
    return with_momentum(spec, fitting), [remark]


def check_fit(spec: Network, dataset: Dataset) -> None:
    """Refuse a network whose input or output does not fit the data."""
    if spec.input_shape != dataset.input_shape:
        raise SpecError(
            f"network '{spec.name}' takes {spec.input_shape}, data set '{dataset.name}' has {dataset.input_shape}: "
            "give input_shape or image_size so that they agree"
        )
    expected, given = dataset.output_shape, spec.output_shape
    about = f"network '{spec.name}' gives outputs {given}, data set '{dataset.name}' "
    if dataset.is_dense != (len(given) == 3):
        kind = {
            "classification": "one class per image",
            "multilabel": "labels of whole images",
            "segmentation": "masks",
            "regression": "values of every pixel" if dataset.is_dense else "values of whole samples",
        }[dataset.task]
        other = "a U-Net, which gives a map" if dataset.is_dense else "a classifier"
        raise SpecError(f"{about}has {kind}: choose {other}, or another data set")
    if given[0] < expected[0] if dataset.task == "classification" else given != expected:
        raise SpecError(f"{about}needs {expected}: leave num_classes out, or give that of the data set")


def make_metrics(
    config: RunConfig, dataset: Dataset, loss: Loss | None = None, metrics: Sequence[Metric] | None = None
) -> tuple[Loss, tuple[Measure, ...]]:
    """The loss and the metrics: those asked for, else those usual for the task.

    ``loss`` and ``metrics`` take the place of what the configuration names.
    """
    task, num_outputs = dataset.task, dataset.output_shape[0]
    chosen = (config.loss if loss is None else loss).for_task(task, num_outputs)
    wanted: Sequence[str | Metric] = config.metrics if metrics is None else metrics
    if [str(metric) for metric in wanted] == ["none"]:
        wanted = ()
    elif not wanted and metrics is None:
        wanted = _USUAL_METRICS[task]
    return chosen, measures(wanted, task, num_outputs)


_USUAL_METRICS: dict[Task, tuple[str, ...]] = {
    "classification": ("accuracy",),
    "multilabel": ("accuracy", "f1"),
    "segmentation": ("dice", "iou"),
    "regression": ("mae", "r2"),
}


def scaled(optimizer: Optimizer, factor: int) -> tuple[Optimizer, list[str]]:
    """The optimizer with ``factor`` times its learning rate, and a remark about that if it changes anything."""
    if factor == 1:
        return optimizer, []
    rate = optimizer.learning_rate * factor
    remark = f"learning_rate: {rate:g}, that of one worker ({optimizer.learning_rate:g}) times {factor}"
    return optimizer.replace(learning_rate=rate), [remark]


def make_schedule(
    config: RunConfig, optimizer: Optimizer, num_epochs: int, size: int, metrics: Sequence[str], *, validates: bool
) -> Schedule:
    """The learning rate over time and reasons to stop; ``size`` is the factor by which the rate was scaled.

    A schedule that watches metrics which this run will not have is refused.
    """
    schedule = Schedule(optimizer.learning_rate, config.schedule, num_epochs=max(num_epochs, 1), size=size)
    names = [*metrics, "loss"]
    schedule.check_metrics([*names, *(f"val_{name}" for name in names)] if validates else names)
    return schedule


def make_augmentation(config: RunConfig, dataset: Dataset, num_outputs: int | None = None) -> Augmentation | None:
    """Random changes of training images, if asked for; ``num_outputs`` are those of the network."""
    if not config.augmentation:
        return None
    augmentation = Augmentation(config.augmentation, num_outputs)
    augmentation.check_shape(dataset.input_shape)
    return augmentation


def loss_of_replica(loss: Loss, augmentation: Augmentation | None, dataset: Dataset) -> Loss:
    """The loss that a network is made with: where mixtures give shares of classes, one that takes them."""
    if augmentation is None or not augmentation.mixtures:
        return loss
    if weights_of(dataset.train, np.zeros(1, np.int64)) is not None:
        raise ConfigError(
            f"data set '{dataset.name}' has sample weights, and mixup and cutmix join samples of different weights: "
            "leave the mixtures out, or the weights"
        )
    return loss.soft_form() if augmentation.gives_shares(dataset.task, dataset.num_classes) else loss


def memory_demand(
    config: RunConfig, spec: Network, loss: Loss, optimizer: Optimizer, num_passes: int, device: str
) -> Demand:
    """What one worker needs, for :func:`~ringlet.training.memory.check_memory`."""
    return Demand(
        spec,
        config.engine,
        loss,
        config.training.dtype,
        num_optimizer_arrays=len(optimizer.state_names),
        averaging=not config.strategy.lockstep,
        num_passes=num_passes,
        on_gpu=device != "cpu",
    )


def make_strategy(
    config: RunConfig,
    comm: Communicator,
    spec: Network,
    learning: Learning,
    optimizer: Optimizer,
    kernels: Kernels,
    num_shards: int,
    timeline: Timeline,
) -> Strategy:
    """How replicas agree; it has the memory of parameters and gradients. Every rank must call."""
    num_state = sum(info.size for info in spec.state)
    job = Job(
        comm,
        Layout(
            learning.segments(spec),
            spec.num_parameters,
            num_state,
            config.training.parameter_dtype,
            learning.state_segments(spec),
        ),
        optimizer,
        kernels,
        num_shards=num_shards,
        clip_value=config.training.clip_value,
        clip_norm=config.training.clip_norm,
        same_bits=config.workers.shards is not None,
        timeline=timeline,
    )
    return config.strategy.build(job)


def make_replica(
    config: RunConfig,
    spec: ModelSpec | ModuleSpec,
    strategy: Strategy,
    kernels: Kernels,
    loss: Loss,
    class_weights: NDArray[Any] | None,
    local_batch_size: int,
    threads: int | None,
    device: str,
    frozen: frozenset[str],
    own_loss: OwnLoss | None = None,
    *,
    is_continued: bool,
    say: Say,
) -> Replica:
    """The network on this rank. Rank 0 draws or loads the weights, the strategy gives them to all. Every rank calls."""
    comm = strategy.comm
    options: dict[str, Any] = {
        "loss": loss,
        "class_weights": class_weights,
        "local_batch_size": local_batch_size,
        "dtype": config.training.dtype,
        "seed": config.training.seed,
        "kernels": kernels,
        "parameters": strategy.parameters,
        "gradients": strategy.gradients,
        "threads": threads,
        "device": device,
    }
    replica: Replica
    if isinstance(spec, ModuleSpec):
        replica = config.engine.build_module(spec, own_loss=own_loss, **options)
    else:
        tuning = "measured" if config.workers.shards is None else "rule"
        replica = config.engine.build(spec, tuning=tuning, **options)
    replica.freeze(frozen)
    if comm.rank == 0:
        replica.initialize(config.training.seed)
        if config.model.weights is not None and not is_continued:
            for remark in load_weights(replica, Path(config.model.weights)):
                say(remark)
    prepare_together(config, comm, replica)
    strategy.attach(replica)
    share_kept(replica, comm)
    return replica


def prepare_together(config: RunConfig, comm: Communicator, replica: Replica) -> None:
    """One rank of each machine measures convolution algorithms in peace; the others take what it has found."""
    if comm.size > 1 and config.engine.measures_algorithms:
        if comm.local_rank == 0:
            replica.prepare()
        comm.local.barrier()
        replica.prepare()


def load_weights(replica: Replica, path: Path) -> list[str]:
    """Copy the weights of a run, a model file or a state file of another package into a replica; says what it did."""
    file = path / MODEL if path.is_dir() else path
    assert isinstance(replica.spec, ModelSpec), "a module brings its own weights"
    loaded = foreign.load_weights(file, replica.spec)
    views = {**replica.parameters.views, **replica.state.views}
    for name, values in loaded.tensors.items():
        np.copyto(views[name], values, casting="same_kind")
    return loaded.describe(path)


def check_workers(config: RunConfig, comm: Communicator) -> list[str]:
    """Refuse workers that were not asked for; a remark for each option that has no effect with these."""
    if config.workers.parallel == "sequential" and comm.size > 1:
        raise ConfigError(f"parallel = sequential, but {comm.size} workers were started: give parallel = data, or one")
    compression = getattr(config.strategy, "compression", None)
    if compression is not None and compression.name != "none" and len(comm.local_sizes) == 1:
        return [f"compression: no effect, gradients of one machine are not sent; {compression} is for several"]
    return []


def check_same_on_ranks(config: RunConfig, comm: Communicator, dataset: Dataset, kernels: Kernels) -> None:
    """Refuse workers that do not mean the same run; every worker must call."""
    if comm.size == 1:
        return
    facts = software_facts(kernels)
    if config.workers.shards is None:
        facts.pop("instruction set", None)  # machines may differ where the last bits may
    own = config.decisive() | {"engine.name": config.engine.name}  # which may change between attempts only
    facts |= {f"option {path}": json.dumps(value) for path, value in own.items()}
    parts = {"train": dataset.train, "validation": dataset.validation, "test": dataset.test}
    facts |= {f"{name} data": dataset_fingerprint(part) for name, part in parts.items() if part is not None}
    check_same(comm, facts)
