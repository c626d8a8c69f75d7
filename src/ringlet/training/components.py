"""The components of a run, each made from its part of the configuration; ``session`` calls them in order.

Every name and shape is checked here, before anything is written or computed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ringlet.comm.contract import Communicator
from ringlet.config import RunConfig
from ringlet.config.run_config import DEFAULT_LOCAL_BATCH_SIZE, DEFAULT_LOCAL_BATCH_SIZE_OF_MASKS
from ringlet.data import Augmentation, Dataset, load_dataset
from ringlet.data.formats import DATASETS, DatasetFormat
from ringlet.engines.contract import Replica
from ringlet.errors import ConfigError, ModelFileError, SpecError, UnknownNameError
from ringlet.guards.agreement import check_same, dataset_fingerprint, software_facts
from ringlet.kernels.contract import Kernels
from ringlet.models import zoo
from ringlet.models.files import load_model_file
from ringlet.models.spec import ModelSpec
from ringlet.models.zoo.member import DATASET_FORMS
from ringlet.optim import Optimizer, Schedule, segments_of
from ringlet.optim.metric_names import LOSS_NAMES, canonical_name, split_losses
from ringlet.strategies.contract import Job, Layout, Strategy
from ringlet.timeline import Timeline
from ringlet.training.memory import Demand
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
    natural = zoo.create(model.network, input_shape=shape, num_classes=classes, **model.options)
    if len(natural.output_shape) == 3:
        return "shapes", natural.input_shape, natural.output_shape[0]
    return "synthetic", natural.input_shape, natural.output_shape[0]


def samples_per_step(config: RunConfig, dataset: Dataset, comm: Communicator) -> int:
    """The global batch size: that asked for, else what is usual for the task."""
    masks = dataset.task == "segmentation"
    return config.samples_per_step(comm.size, DEFAULT_LOCAL_BATCH_SIZE_OF_MASKS if masks else DEFAULT_LOCAL_BATCH_SIZE)


def samples_per_shard(config: RunConfig, num_train: int, global_batch_size: int, num_shards: int) -> int:
    """The most samples of one shard in a step: a batch larger than the training data is never filled."""
    num_copies = num_shards if config.workers.partition == "replicated" else 1
    return -(-min(global_batch_size, num_train * num_copies) // num_shards)


def oversized_batch(num_train: int, global_batch_size: int) -> list[str]:
    """A remark if the training data do not fill one batch."""
    if global_batch_size <= num_train:
        return []
    return [
        f"the global batch of {global_batch_size:,} samples is larger than the training data ({num_train:,}): "
        "an epoch is one step with all of them. Smaller batches learn in more steps"
    ]


def make_spec(config: RunConfig, dataset: Dataset) -> ModelSpec:
    """The network of a run, fitted to the shape and classes of its data."""
    model = config.model
    shape, classes = model.input_shape or dataset.input_shape, model.num_classes or dataset.num_classes
    return zoo.create(model.network, input_shape=shape, num_classes=classes, **model.options)


def check_fit(spec: ModelSpec, dataset: Dataset) -> None:
    """Refuse a network whose input or output does not fit the data."""
    if spec.input_shape != dataset.input_shape:
        raise SpecError(
            f"network '{spec.name}' takes {spec.input_shape}, data set '{dataset.name}' has {dataset.input_shape}: "
            "give input_shape or image_size so that they agree"
        )
    masks = dataset.task == "segmentation"
    if masks != (len(spec.output_shape) == 3):
        kind = "masks" if masks else "one class per image"
        raise SpecError(
            f"network '{spec.name}' gives outputs {spec.output_shape}, data set '{dataset.name}' has {kind}: "
            f"choose {'a U-Net' if masks else 'a classifier'} or another data set"
        )
    expected = (dataset.num_classes, *dataset.input_shape[1:]) if masks else (dataset.num_classes,)
    too_few = spec.output_shape[0] < dataset.num_classes
    if spec.output_shape != expected if masks else too_few:
        raise SpecError(
            f"network '{spec.name}' gives outputs {spec.output_shape}, data set '{dataset.name}' needs {expected}: "
            "leave num_classes out, or give that of the data set"
        )


def make_metrics(config: RunConfig, dataset: Dataset, spec: ModelSpec) -> tuple[str, list[str]]:
    """The loss and the metrics: those asked for, else those usual for the task."""
    loss, metrics = split_losses(config.training.loss) if config.training.loss else (None, [])
    if config.training.loss and loss is None:
        raise UnknownNameError("loss", config.training.loss, LOSS_NAMES)
    metrics += [canonical_name(name) for name in config.training.metrics or ()]
    masks = dataset.task == "segmentation"
    if not metrics and config.training.metrics is None:
        metrics = ["dice", "iou"] if masks else ["accuracy"]
    usual = "bce_dice" if masks and spec.output_shape[0] == 1 else "categorical_cross_entropy"
    return loss or usual, list(dict.fromkeys(metrics))


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


def make_augmentation(config: RunConfig, dataset: Dataset) -> Augmentation | None:
    """Random changes of training images, if asked for."""
    if not config.augmentation:
        return None
    augmentation = Augmentation(config.augmentation)
    augmentation.check_shape(dataset.input_shape)
    return augmentation


def memory_demand(
    config: RunConfig, spec: ModelSpec, loss: str, optimizer: Optimizer, num_passes: int, device: str
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
    spec: ModelSpec,
    optimizer: Optimizer,
    kernels: Kernels,
    num_shards: int,
    timeline: Timeline,
) -> Strategy:
    """How replicas agree; it has the memory of parameters and gradients. Every rank must call."""
    num_state = sum(info.size for info in spec.state)
    job = Job(
        comm,
        Layout(segments_of(spec.parameters), spec.num_parameters, num_state, config.training.parameter_dtype),
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
    spec: ModelSpec,
    strategy: Strategy,
    kernels: Kernels,
    loss: str,
    local_batch_size: int,
    threads: int | None,
    device: str,
) -> Replica:
    """The network on this rank. Rank 0 draws or loads the weights, the strategy gives them to all. Every rank calls."""
    comm = strategy.comm
    replica = config.engine.build(
        spec,
        loss=loss,
        local_batch_size=local_batch_size,
        dtype=config.training.dtype,
        seed=config.training.seed,
        kernels=kernels,
        parameters=strategy.parameters,
        gradients=strategy.gradients,
        threads=threads,
        device=device,
        tuning="measured" if config.workers.shards is None else "rule",
    )
    if comm.rank == 0:
        replica.initialize(config.training.seed)
        if config.model.weights is not None:
            load_weights(replica, Path(config.model.weights))
    if comm.size > 1 and config.engine.measures_algorithms:
        # one rank of each machine measures convolution algorithms in peace; the others take what it has found
        if comm.local_rank == 0:
            replica.prepare()
        comm.local.barrier()
        replica.prepare()
    strategy.attach(replica)
    return replica


def load_weights(replica: Replica, path: Path) -> None:
    """Copy the tensors of a model file into a replica; they must be those of its network."""
    file = load_model_file(path / MODEL if path.is_dir() else path)
    views = {**replica.parameters.views, **replica.state.views}
    for name, view in views.items():
        tensor = file.tensors.get(name)
        if tensor is None or tensor.shape != view.shape:
            found = "has none" if tensor is None else f"has shape {tensor.shape}"
            raise ModelFileError(
                f"model file {path} does not fit network '{replica.spec.name}': '{name}' needs shape {view.shape}, "
                f"the file ('{file.spec.name}') {found}"
            )
    if extra := sorted(file.tensors.keys() - views.keys()):
        raise ModelFileError(f"model file {path} does not fit network '{replica.spec.name}': it also has '{extra[0]}'")
    for name, view in views.items():
        np.copyto(view, file.tensors[name], casting="same_kind")


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
