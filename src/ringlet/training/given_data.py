"""The data of a :class:`~ringlet.training.trainer.Trainer`: a name for the configuration, or objects of the program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ringlet.config import RunConfig
from ringlet.data import Dataset
from ringlet.data.formats import GivenDataset
from ringlet.data.given import Wishes, load_given, title
from ringlet.data.loaders import batch_size_of
from ringlet.data.source import Task
from ringlet.data.targets import Wanted
from ringlet.data.values import Channels
from ringlet.errors import ConfigError
from ringlet.launch.resources import available_bytes

_BATCH_OPTIONS = ("local_batch_size", "global_batch_size", "batch_size")


@dataclass(frozen=True)
class GivenData:
    """What a program has passed as data, and what it says about them."""

    train: Any
    validation: Any
    test: Any
    task: Task | None
    channels: Channels | None
    batched: bool | None
    target: str | Sequence[str] | None
    class_names: tuple[str, ...]

    @property
    def is_object(self) -> bool:
        """Whether the program holds the data; else they are named."""
        return self.train is not None and not isinstance(self.train, str)

    def options(self, given: Mapping[str, Any], config: RunConfig | None) -> dict[str, Any]:
        """Options of the configuration that follow from the data; the batch of a DataLoader, unless one is given."""
        if not self.is_object:
            return self._named()
        found: dict[str, Any] = {"dataset": {"name": GivenDataset.name, "title_given": title(self.train)}}
        size = batch_size_of(self.train)
        training = None if config is None else config.training
        in_config = training is not None and (training.local_batch_size or training.global_batch_size)
        in_options = any(name.removeprefix("training.") in _BATCH_OPTIONS for name in given)
        return found if size is None or in_config or in_options else {**found, "global_batch_size": size}

    def _named(self) -> dict[str, Any]:
        """Of data that are named, by which their format knows them."""
        about = {"validation": self.validation, "test": self.test, "channels": self.channels, "batched": self.batched}
        about |= {"class_names": self.class_names or None}
        if unused := next((name for name, value in about.items() if value is not None), None):
            raise ConfigError(
                f"{unused}= is for data that are given as objects, and dataset is the name '{self.train or 'digits'}': "
                "give the training data as an object too, or paths: dataset_path, dataset_test_path"
            )
        target = (self.target,) if isinstance(self.target, str) else self.target
        named = {
            "dataset": self.train,
            "dataset.targets": self.task,
            "target": None if target is None else tuple(target),
        }
        return {name: value for name, value in named.items() if value is not None}

    def load(self, config: RunConfig) -> Dataset | None:
        """The data set; None if the configuration names it."""
        if not self.is_object:
            return None
        assert isinstance(config.dataset, GivenDataset)
        free = available_bytes()
        limits = {} if free is None else {"max_bytes": free // 2}
        target = (self.target,) if isinstance(self.target, str) else tuple(self.target or ())
        wanted = Wanted(self.task, config.model.num_classes, self.class_names)
        wishes = Wishes(wanted, self.channels, self.batched, target, **limits)
        return load_given(self.train, self.validation, self.test, config.dataset, wishes, seed=config.training.seed)
