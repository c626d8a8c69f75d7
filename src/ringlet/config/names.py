"""Names of options: their paths, and the flat ones of version 0.1 and of PyDTNN, which work wherever paths do.

Options of schedules go by ``<schedule>_<option>`` and those of optimizers by their bare name as well; these two rules
need no table.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from pydantic.fields import FieldInfo

from ringlet.component import Component, key
from ringlet.config.sections import BY_NAME, SECTIONS
from ringlet.option_text import bare, guess, nearest, parse_text

Path = tuple[str, ...]
"""Of an option: ``("optimizer", "trust")``."""


class Alias(NamedTuple):
    """The path of an option under another name."""

    path: tuple[str, ...]
    values: Mapping[Any, Any] | None = None
    """What values stand for; those that are not in it mean nothing. None: themselves."""
    split: Callable[[Any], Mapping[str, Any]] | None = None
    """Takes a value apart that stands for several options: their paths and values."""


def _same(section: str, *names: str) -> dict[str, Alias]:
    return {name: Alias((section, name)) for name in names}


def _transform(name: str, **options: str) -> dict[str, Alias]:
    """``flip_images`` turns a transform on or off, ``flip_images_prob`` and the like are its options."""
    found = {f"{name}_images": Alias(("augmentation", name))}
    return found | {f"{name}_images_{short}": Alias(("augmentation", name, own)) for short, own in options.items()}


def _loss_and_metrics(value: Any) -> dict[str, Any]:
    """``accuracy,cross_entropy``: the loss, and what else is reported."""
    if not isinstance(value, str) or "," not in value:
        return {"loss": value}
    from ringlet.errors import UnknownNameError
    from ringlet.losses import LOSSES
    from ringlet.optim.metric_names import split_losses

    loss, metrics = split_losses(value)
    if loss is None:
        raise UnknownNameError("loss", value, LOSSES.names())
    return {"loss": loss, **{f"metrics.{name}": True for name in metrics}}


ALIASES: dict[str, Alias] = {
    **_same("model", "input_shape", "num_classes", "weights"),
    **_same("transfer", "freeze", "unfreeze_at", "rates"),
    "weights_and_bias_filename": Alias(("model", "weights")),
    "model_options": Alias(("model", "options")),
    **{f"dataset_{name}": Alias(("dataset", name)) for name in ("path", "train_path", "test_path")},
    "use_synthetic_data": Alias(("dataset", "synthetic")),
    **_same("dataset", "num_samples", "image_size", "validation_split", "test_as_validation", "normalization"),
    **_same("dataset", "target", "skip_broken"),
    "task": Alias(("dataset", "targets")),
    **_transform("flip", prob="probability"),
    **_transform("crop", size="size", prob="probability"),
    **_transform("shift", size="size", prob="probability"),
    **_transform("rotate", degrees="degrees", prob="probability"),
    **_transform("jitter", strength="strength", prob="probability"),
    **_transform("vertical_flip", prob="probability"),
    **_transform("zoom", strength="strength", prob="probability"),
    **_transform("resized_crop", scale="scale", prob="probability"),
    **_transform("colour", hue="hue", saturation="saturation", prob="probability"),
    **_transform("blur", sigma="sigma", prob="probability"),
    **_transform("erase", area="area", prob="probability"),
    **_transform("mixup", alpha="alpha", prob="probability"),
    **_transform("cutmix", alpha="alpha", prob="probability"),
    **_same("training", "num_epochs", "steps_per_epoch", "local_batch_size", "global_batch_size", "dtype"),
    **_same(
        "training",
        "stop_after",
        "seed",
        "clip_value",
        "clip_norm",
        "learning_rate_scaling",
        "evaluate",
        "evaluate_only",
    ),
    "batch_size": Alias(("training", "local_batch_size")),
    **_same("training", "class_weights"),
    "class_weight": Alias(("training", "class_weights")),
    "loss_func": Alias(("loss",), split=_loss_and_metrics),
    "training.loss": Alias(("loss",), split=_loss_and_metrics),
    "training.metrics": Alias(("metrics",)),
    "decay_rate": Alias(("optimizer", "rho")),
    "lr_schedulers": Alias(("schedule",)),
    **_same("strategy", "overlap", "compression"),
    "blocking_mpi": Alias(("strategy", "overlap"), {True: "off"}),
    "non_blocking_mpi": Alias(("strategy", "overlap"), {True: "on"}),
    **_same("workers", "shards", "accumulate", "partition", "parallel"),
    **_same("engine", "device", "threads", "kernels", "exact"),
    "checkpoint_every": Alias(("checkpoint", "every")),
    "checkpoint_optimizer": Alias(("checkpoint", "optimizer")),
    **_same("checkpoint", "keep", "resume", "break_lock", "allow_changed_data"),
    **_same("guards", "on_nan", "digest_every", "stall_seconds"),
    "log": Alias(("trackers",)),
    **_same("output", "run_dir", "history_file", "timeline", "profile", "num_pictures"),
}
"""Every other name with the path of its option."""

WITHOUT_EFFECT: dict[str, tuple[type, Any, str]] = {
    "shared_storage": (bool, False, "no effect: workers always read only their own samples"),
    "tensor_format": (str, "AUTO", "no effect: the layout has samples innermost"),
    "enable_fused_bn_relu": (bool, False, "no effect: the plan decides what to fuse"),
    "enable_fused_conv_relu": (bool, False, "no effect: the plan decides what to fuse"),
    "enable_fused_conv_bn": (bool, False, "no effect: the plan decides what to fuse"),
    "enable_fused_conv_bn_relu": (bool, False, "no effect: the plan decides what to fuse"),
    "tracing": (bool, False, "no effect: events.ndjson holds the metrics of every step"),
    "tracer_output": (str, None, "no effect, as tracing"),
    "enable_gpu": (bool, False, "no effect: give engine = torch, which takes GPUs"),
}
"""Options that are accepted and change nothing, with type, default and reason; a run that sets one says so."""


def locate(name: str) -> Alias | None:
    """Where the option called ``name`` stands: by its path, by one of its other names; None: nowhere."""
    name = name.replace("-", "_")
    path = tuple(name.split("."))
    if name in ALIASES:
        return ALIASES[name]
    if path[0] in BY_NAME and len(path) <= 3:
        return Alias(path)
    for section, prefix in (("optimizer", False), ("schedule", True)):
        registry = BY_NAME[section].registry
        for entry in registry.entries():
            for option in (*entry.model_fields, *entry.other_names):
                if prefix and name == f"{entry.name}_{option}":
                    return Alias((section, entry.name, option))
                if not prefix and name == option:
                    return Alias((section, option))
    return None


def flat_names() -> list[str]:
    """Every name of an option without a section: those of version 0.1 and of PyDTNN."""
    optimizers = BY_NAME["optimizer"].registry
    names = [name for entry in optimizers.entries() for name in (*entry.model_fields, *entry.other_names)]
    names += [f"{entry.name}_{name}" for entry in BY_NAME["schedule"].registry.entries() for name in entry.model_fields]
    sections = [section.name for section in SECTIONS if section.kind != "plain"]
    return list(dict.fromkeys(["model", *sections, *ALIASES, *names, *WITHOUT_EFFECT]))


def paths() -> dict[Path, FieldInfo | None]:
    """The path of every option of Ringlet's own components, with its field; a name that chooses has none."""
    found: dict[Path, FieldInfo | None] = {}
    for section in SECTIONS:
        if section.kind == "plain":
            renamed = {"network": "name"} if section.name == "model" else {}
            fields = section.component.model_fields
            found |= {(section.name, renamed.get(name, name)): field for name, field in fields.items()}
            if section.name == "model":
                options = network_options()
                found |= {("model", name): next(iter(owners.values())) for name, owners in options.items()}
        elif section.kind == "chosen":
            found[section.name, "name"] = None
            options = section.registry.options()
            found |= {(section.name, name): next(iter(owners.values())) for name, owners in options.items()}
        else:
            for entry in section.registry.entries():
                found[section.name, entry.name] = None
                found |= {(section.name, entry.name, name): field for name, field in entry.model_fields.items()}
    return found


def network_options() -> dict[str, dict[str, FieldInfo]]:
    """Every option of a family of the zoo: the families that have it, with their fields."""
    from ringlet.models.zoo import NETWORKS

    found: dict[str, dict[str, FieldInfo]] = {}
    for member in NETWORKS.entries():
        for option, field in type(member.options).model_fields.items():
            found.setdefault(option, {})[member.options.family or member.name] = field
    return found


def annotation_of(path: Path) -> Any:
    """The type of an option's value; None where no component of Ringlet has it."""
    section = BY_NAME[path[0]]
    if section.kind == "plain":
        if path == ("model",) or path == ("model", "name"):
            return str
        field = section.component.model_fields.get(path[1]) if len(path) == 2 else None
        if field is None and path[0] == "model" and len(path) == 2:
            field = next(iter(network_options().get(path[1], {}).values()), None)
        return None if field is None else field.annotation
    if section.kind == "chosen":
        if len(path) == 1 or path[1] == "name":
            return str
        owners = section.registry.options().get(path[1])
        if owners is None:
            return float if any(path[1] in entry.other_names for entry in section.registry.entries()) else None
        annotation = next(iter(owners.values())).annotation
        kind = bare(annotation)
        return str if isinstance(kind, type) and issubclass(kind, Component) else annotation
    if len(path) == 1:
        return tuple[str, ...]
    if len(path) == 2:
        return bool
    entry = next((entry for entry in section.registry.entries() if key(entry.name) == key(path[1])), None)
    field = None if entry is None else entry.model_fields.get(path[2])
    return None if field is None else field.annotation


def from_text(name: str, text: str) -> Any:
    """The value of the option ``name`` written as text; ValueError says what was expected."""
    if name in WITHOUT_EFFECT:
        return parse_text(WITHOUT_EFFECT[name][0], text)
    alias = locate(name)
    if alias is None:
        return text
    annotation = bool if alias.values is not None else annotation_of(alias.path)
    is_list = typing.get_origin(bare(annotation)) is tuple
    if annotation is None or (_is_of_network(alias.path) and not is_list):
        return guess(text)  # networks may have options of one name and other types
    return parse_text(annotation, text)


def _is_of_network(path: Path) -> bool:
    own = ("name", *BY_NAME["model"].component.model_fields)
    return path[0] == "model" and len(path) == 2 and path[1] not in own


def is_flag(name: str) -> bool:
    """Whether the option is on or off, so that naming it turns it on."""
    if name in WITHOUT_EFFECT:
        return WITHOUT_EFFECT[name][0] is bool
    alias = locate(name)
    return alias is not None and (alias.values is not None or bare(annotation_of(alias.path)) is bool)


def unknown_option(name: str, origin: str | None = None, more: Iterable[str] = ()) -> str:
    """The message for a name that is not an option, with the nearest one, also among ``more``."""
    near = nearest(name, [*more, *BY_NAME, *flat_names(), *(".".join(path) for path in paths())])
    hint = f" Did you mean '{near}'?" if near else " See `ringlet train --help` for the options."
    place = f" ({origin})" if origin and origin != name else ""
    return f"unknown option '{name}'{place}.{hint}"


def typed(value: Any, name: str) -> Any:
    """A list where a tuple is meant, as TOML has only lists."""
    alias = locate(name)
    if isinstance(value, list) and alias is not None and typing.get_origin(bare(annotation_of(alias.path))) is tuple:
        return tuple(value)
    return value
