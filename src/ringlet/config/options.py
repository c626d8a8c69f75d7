"""Every option of a run: its name, type, default, range and meaning, in sections.

The command line, the TOML file and the environment (``RINGLET_<OPTION>``) use these names; ``-`` and ``_``
are the same.
A section's docstring is its heading in ``ringlet train --help``.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

SchedulerName = Literal[
    "warm_up",
    "cosine",
    "step",
    "reduce_lr_on_plateau",
    "reduce_lr_every_nepochs",
    "early_stopping",
    "stop_at_loss",
    "model_checkpoint",
]
DEFAULT_LOCAL_BATCH_SIZE = 64
DEFAULT_LOCAL_BATCH_SIZE_OF_MASKS = 8
"""Images with masks are large, and every pixel is an example: a step of few of them is full of them."""
OptionValue = str | int | float | bool


def option(default: Any, description: str, **limits: Any) -> Any:
    """A field with its help text and limits (``ge``, ``gt``, ``le``, ``lt``, ``min_length``)."""
    return Field(default=default, description=description, **limits)


class Section(BaseModel):
    """Common strictness: nothing unknown, nothing converted silently, nothing infinite."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        defer_build=True,
        protected_namespaces=(),
        hide_input_in_errors=True,
    )


class NetworkOptions(Section):
    """Network"""

    model: str = option("vgg1dobn", "network of the zoo: see `ringlet models`", min_length=1)
    model_options: dict[str, OptionValue] = option({}, "parameters of the family, such as levels=4,width=8")
    input_shape: tuple[int, ...] | None = option(None, "channels,height,width; default: the data set's")
    num_classes: int | None = option(None, "number of classes; default: the data set's", ge=1)
    weights_and_bias_filename: str | None = option(None, "start from the weights of this model file")


class DataOptions(Section):
    """Data"""

    dataset: str = option(
        "digits", "data set: see `ringlet datasets`; also folder:PATH, masks:PATH, npz:PATH", min_length=1
    )
    dataset_path: str | None = option(None, "folder or file of the data set; default: the data cache")
    dataset_train_path: str | None = option(None, "folder of the training data, where it differs")
    dataset_test_path: str | None = option(None, "folder of the test data, where it differs")
    use_synthetic_data: bool = option(False, "random data of the data set's shape instead of its files")
    num_samples: int | None = option(None, "number of samples of synthetic or procedural data", ge=1)
    image_size: tuple[int, ...] | None = option(None, "height,width, or one number, to which images are resized")
    validation_split: float | None = option(
        None,
        "share of the training data kept for validation; default: 0.1, or 0 where the data have their own",
        ge=0,
        lt=1,
    )
    test_as_validation: bool = option(False, "validate on the test data")
    flip_images: bool = option(False, "mirror training images at random")
    flip_images_prob: float = option(0.5, "probability of a mirrored image", ge=0, le=1)
    crop_images: bool = option(False, "crop training images at random")
    crop_images_size: int = option(16, "edge of the crop in pixels", ge=1)
    crop_images_prob: float = option(0.5, "probability of a cropped image", ge=0, le=1)
    shift_images: bool = option(False, "move training images at random")
    shift_images_size: int = option(4, "pixels by which an image moves at most, each way", ge=1)
    shift_images_prob: float = option(0.5, "probability of a moved image", ge=0, le=1)
    rotate_images: bool = option(False, "turn training images at random")
    rotate_images_degrees: float = option(10.0, "degrees by which an image turns at most, either way", gt=0, le=180)
    rotate_images_prob: float = option(0.5, "probability of a turned image", ge=0, le=1)
    jitter_images: bool = option(False, "change contrast and brightness of training images at random")
    jitter_images_strength: float = option(0.3, "share by which they change at most", gt=0, le=1)
    jitter_images_prob: float = option(0.5, "probability of a changed image", ge=0, le=1)


class TrainingOptions(Section):
    """Training"""

    num_epochs: int = option(50, "passes over the training data", ge=0, le=1_000_000)
    steps_per_epoch: int = option(0, "steps of one epoch; 0: the whole training data", ge=0)
    local_batch_size: int | None = option(
        None, "samples of a pass of one worker (or shard); default: 64, with masks 8", ge=1, le=1_000_000
    )
    global_batch_size: int | None = option(None, "samples of a step over all workers", ge=1, le=1_000_000)
    loss_func: str | None = option(None, "loss; entries before the last of a comma list are metrics", min_length=1)
    metrics: tuple[str, ...] | None = option(None, "figures to report, comma-separated")
    evaluate: bool | None = option(None, "test before and after training; default: after, if there are test data")
    evaluate_only: bool = option(False, "evaluate on the test data, do not train")
    dtype: Literal["float32", "float64"] = option("float32", "precision of the arithmetic")
    seed: int = option(0, "seed of weights, sample order, dropout and augmentation", ge=0, lt=2**63)


class OptimizerOptions(Section):
    """Optimizer"""

    optimizer: str = option("adam", "sgd, rmsprop, adam, adamw, nadam, adadelta or lars", min_length=1)
    learning_rate: float | None = option(None, "learning rate; default: the optimizer's", gt=0)
    learning_rate_scaling: bool = option(
        False, "multiply the learning rate by the number of workers (shards); add lr_schedulers=warm_up to rise to it"
    )
    momentum: float | None = option(None, "momentum: share of the last update kept (sgd, lars)", ge=0, lt=1)
    nesterov: bool = option(False, "Nesterov's form of momentum (sgd, lars)")
    decay: float | None = option(None, "weight decay, decoupled from the gradient", ge=0)
    beta1: float | None = option(None, "first moment's share kept (adam, adamw, nadam)", ge=0, lt=1)
    beta2: float | None = option(None, "second moment's share kept (adam, adamw, nadam)", ge=0, lt=1)
    epsilon: float | None = option(None, "added to denominators", gt=0)
    rho: float | None = option(None, "share of the squared gradients kept (rmsprop, adadelta)", ge=0, lt=1)
    decay_rate: float | None = option(None, "older name of rho", ge=0, lt=1)
    clip_value: float | None = option(None, "clip every gradient to ± this value", gt=0)
    clip_norm: float | None = option(None, "scale gradients down to this global norm", gt=0)


class ScheduleOptions(Section):
    """Schedules and stopping"""

    lr_schedulers: tuple[SchedulerName, ...] = option(
        (),
        "comma list of warm_up, cosine, step, reduce_lr_on_plateau, reduce_lr_every_nepochs, early_stopping, "
        "stop_at_loss, model_checkpoint",
    )
    warm_up_epochs: float = option(5.0, "epochs of linear growth to the learning rate", ge=0)
    warm_up_steps: int | None = option(None, "the same in steps; wins over epochs", ge=1)
    warm_up_start_lr: float | None = option(None, "where the growth begins; default: the rate of one worker", ge=0)
    cosine_epochs: float | None = option(None, "where the fall ends; default: the last epoch", ge=0)
    cosine_min_lr: float = option(0.0, "learning rate at the end", ge=0)
    step_milestones: tuple[float, ...] | None = option(None, "epochs after which the rate steps down")
    step_every: int | None = option(None, "step down after every so many epochs", ge=1)
    step_factor: float = option(0.1, "factor of one step down", gt=0, le=1)
    step_min_lr: float = option(0.0, "never below this learning rate", ge=0)
    reduce_lr_on_plateau_metric: str | None = option(None, "figure to watch; default: val_loss, else loss")
    reduce_lr_on_plateau_factor: float = option(0.1, "factor of the learning rate", ge=0, lt=1)
    reduce_lr_on_plateau_patience: int = option(5, "epochs without improvement before the reduction", ge=1)
    reduce_lr_on_plateau_min_lr: float = option(0.0, "never below this learning rate", ge=0)
    reduce_lr_every_nepochs_factor: float = option(0.1, "factor of the learning rate", ge=0, lt=1)
    reduce_lr_every_nepochs_nepochs: int = option(5, "epochs between two reductions", ge=1)
    reduce_lr_every_nepochs_min_lr: float = option(0.0, "never below this learning rate", ge=0)
    early_stopping_metric: str | None = option(None, "figure to watch; default: val_loss, else loss")
    early_stopping_patience: int = option(10, "epochs without improvement before the run stops", ge=1)
    stop_at_loss_metric: str | None = option(None, "figure to watch; default: val_loss, else loss")
    stop_at_loss_threshold: float | None = option(None, "stop when the figure has reached this value")
    model_checkpoint_metric: str | None = option(None, "figure whose best model is kept as best.safetensors")
    model_checkpoint_save_freq: int = option(1, "look at it every so many epochs", ge=1)


class MachineOptions(Section):
    """Machine"""

    engine: Literal["native", "torch", "keras"] = option(
        "native", "what computes: Ringlet's own kernels, PyTorch, or Keras on its backend (KERAS_BACKEND)"
    )
    device: Literal["auto", "cpu", "cuda"] = option(
        "auto", "where engine torch computes; auto: a GPU for each worker of a machine that has any, else the processor"
    )
    threads: int | None = option(
        None, "threads of each worker's arithmetic; default: the cores, shared by a machine's workers", ge=1, le=4096
    )
    kernels: Literal["compiled", "reference"] | None = option(None, "kernels; default: compiled where built")
    exact: bool = option(False, "only convolution algorithms that round like the direct one (no Winograd)")


class WorkerOptions(Section):
    """Workers"""

    strategy: str = option(
        "sync",
        "how workers agree: sync, average:K, bmuf:K[,block_momentum=M,block_rate=R,classical], async or softsync:N",
        min_length=1,
    )
    shards: int | None = option(
        None, "cut every step into so many shards: the same bits on any number of workers up to it", ge=1, le=65_536
    )
    accumulate: int = option(1, "passes of every worker per step, their gradients added up", ge=1, le=65_536)
    partition: Literal["shuffled", "contiguous", "replicated"] = option(
        "shuffled",
        "samples of a worker: from one permutation of all per epoch, always from its own block, or all of them",
    )
    overlap: Literal["auto", "on", "off"] = option(
        "auto", "exchange gradients during the backward pass; auto: measure both ways"
    )
    compression: str = option(
        "none", "of gradients between machines: none, fp16, bf16 or topk:SHARE, such as topk:0.01", min_length=1
    )


class ReliabilityOptions(Section):
    """Checkpoints and guards"""

    checkpoint_every: str = option(
        "auto",
        "'100 steps', '2 epochs', never or auto: after epochs, so rarely that it costs 3 % at most",
        min_length=1,
    )
    keep: int = option(2, "newest checkpoints to keep, besides the best one; 0: all", ge=0, le=1_000_000)
    checkpoint_optimizer: bool = option(True, "save the optimizer's state too; without it a checkpoint is smaller")
    resume: str | None = option(
        None, "go on from a checkpoint of the run directory: auto, a number of steps, or epoch:N", min_length=1
    )
    break_lock: bool = option(
        False, "resume a run whose lock a process of another machine has left; make sure that it has ended"
    )
    on_nan: Literal["stop", "skip"] = option(
        "stop", "a loss, gradient or statistic that is not finite: stop, or skip the update"
    )
    digest_every: int = option(100, "compare the workers' copies of the network every so many steps; 0: never", ge=0)
    stall_seconds: float | None = option(
        None, "end the run after so long without progress; default: 30, or 10 steps if those take longer", gt=0
    )


class OutputOptions(Section):
    """Output"""

    run_dir: str | None = option(None, "run directory; default: runs/<model>-<dataset>-<time>", min_length=1)
    history_file: str | None = option(None, "write the figures of every epoch to this JSON file", min_length=1)
    timeline: str | None = option(
        None, "write a trace of all workers to this file, for Perfetto or chrome://tracing", min_length=1
    )
    profile: bool = option(False, "say at the end where the time went")
    log: tuple[str, ...] = option(
        (), "trackers to write to as well, comma-separated: tensorboard[:FOLDER], mlflow[:URI], prometheus[:FILE|:PORT]"
    )
    num_pictures: int = option(
        4, "validation samples that are drawn after every epoch, where masks are learned; 0: none", ge=0, le=100
    )


class CompatibilityOptions(Section):
    """Accepted for existing command lines"""

    batch_size: int | None = option(None, "the same as local_batch_size", ge=1, le=1_000_000)
    parallel: Literal["sequential", "data"] | None = option(
        None, "data: as many workers as were started; sequential: refuse more than one"
    )
    blocking_mpi: bool = option(False, "the same as overlap = off")
    non_blocking_mpi: bool = option(False, "the same as overlap = on")
    shared_storage: bool = option(False, "no effect: workers always read only their own samples")
    tensor_format: Literal["NHWC", "NCHW", "AUTO"] = option("AUTO", "no effect: the layout has samples innermost")
    enable_fused_bn_relu: bool = option(False, "no effect: the plan decides what to fuse")
    enable_fused_conv_relu: bool = option(False, "no effect: the plan decides what to fuse")
    enable_fused_conv_bn: bool = option(False, "no effect: the plan decides what to fuse")
    enable_fused_conv_bn_relu: bool = option(False, "no effect: the plan decides what to fuse")
    tracing: bool = option(False, "no effect: events.ndjson holds the figures of every step")
    tracer_output: str | None = option(None, "no effect, as tracing")
    enable_gpu: bool = option(False, "no effect: give engine = torch, which takes GPUs")


SECTIONS: tuple[type[Section], ...] = (
    NetworkOptions,
    DataOptions,
    TrainingOptions,
    OptimizerOptions,
    ScheduleOptions,
    WorkerOptions,
    ReliabilityOptions,
    MachineOptions,
    OutputOptions,
    CompatibilityOptions,
)
WITHOUT_EFFECT = (
    "shared_storage",
    "tensor_format",
    "enable_fused_bn_relu",
    "enable_fused_conv_relu",
    "enable_fused_conv_bn",
    "enable_fused_conv_bn_relu",
    "tracing",
    "tracer_output",
    "enable_gpu",
)
"""Options that are accepted and change nothing; a run that sets one says so."""
