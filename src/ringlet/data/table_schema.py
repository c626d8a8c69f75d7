"""How the rows of a table become inputs of a network: which columns, in which order, texts as places of their own.

The schema is made from the training table and stored with the model, so that the same table gives the same inputs at
prediction. Numbers stay as they are (their mean and deviation are the model's normalisation); a column of texts becomes
one input per text, 1 where the row has it and 0 elsewhere, so a text that training did not have is 0 in all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.data.source import TASKS, Task
from ringlet.errors import DataError

Column = NDArray[Any]
"""Numbers (float64, NaN where there is none) or texts (object, None where there is none)."""
_MAX_COLUMNS = 100_000
_SHOWN = 8


@dataclass(frozen=True)
class Feature:
    """A column of inputs; ``texts`` are those that it may have, none of a column of numbers."""

    name: str
    texts: tuple[str, ...] = ()

    @property
    def num_inputs(self) -> int:
        """One number, or one for every text."""
        return len(self.texts) or 1


@dataclass(frozen=True)
class Schema:
    """Inputs and targets of a table."""

    features: tuple[Feature, ...]
    targets: tuple[str, ...]
    task: Task
    class_names: tuple[str, ...] = ()
    impute: bool = False
    """Whether missing values are filled in."""
    fill: tuple[float, ...] = ()
    """What stands for a missing value of each input: the mean of the training data."""

    @property
    def num_inputs(self) -> int:
        """Length of one input."""
        return sum(feature.num_inputs for feature in self.features)

    @property
    def is_number(self) -> NDArray[np.bool_]:
        """Which inputs are numbers, not places of texts."""
        return np.concatenate([np.full(feature.num_inputs, not feature.texts) for feature in self.features])

    def inputs(self, columns: Mapping[str, Column], what: str) -> NDArray[np.float32]:
        """Inputs (n, F) of the rows; missing numbers are NaN until :meth:`filled`."""
        names = [feature.name for feature in self.features]
        if lacking := [name for name in names if name not in columns]:
            raise DataError(f"{what} lacks the column {_listed(lacking)}: expected {_listed(names)}")
        missing = {name: count for name in names if (count := int(is_missing(columns[name]).sum()))}
        if missing and not self.impute:
            shown = ", ".join(f"'{name}' ({count:,})" for name, count in list(missing.items())[:_SHOWN])
            raise DataError(
                f"{what}: values are missing in {len(missing)} columns: {shown}. Fill them in, or give "
                "--dataset.missing impute, which takes the mean of a column of numbers and no text of a column of texts"
            )
        return np.concatenate([self._of(feature, columns[feature.name], what) for feature in self.features], axis=1)

    def filled(self, inputs: NDArray[np.float32]) -> NDArray[np.float32]:
        """The inputs with what stands for missing values in their place."""
        if self.fill:
            np.copyto(inputs, np.array(self.fill, np.float32), where=np.isnan(inputs))
        return inputs

    def _of(self, feature: Feature, column: Column, what: str) -> NDArray[np.float32]:
        if not feature.texts:
            if column.dtype == object:
                first = next(value for value in column if value is not None)
                raise DataError(
                    f"{what}: column '{feature.name}' holds '{str(first)[:40]}': expected numbers, as in training"
                )
            return column.astype(np.float32)[:, None]
        places = {text: index for index, text in enumerate(feature.texts)}
        found = np.zeros((len(column), len(places)), np.float32)
        for row, text in enumerate(as_texts(column)):
            if text in places:
                found[row, places[text]] = 1
        return found

    def unknown_texts(self, columns: Mapping[str, Column]) -> dict[str, int]:
        """In how many rows a column of texts has one that training did not have."""
        counts = {
            feature.name: sum(
                text is not None and text not in feature.texts for text in as_texts(columns[feature.name])
            )
            for feature in self.features
            if feature.texts
        }
        return {name: count for name, count in counts.items() if count}

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for a model file."""
        return {
            "features": [{"name": feature.name, "texts": list(feature.texts)} for feature in self.features],
            "targets": list(self.targets),
            "task": self.task,
            "class_names": list(self.class_names),
            "impute": self.impute,
            "fill": list(self.fill),
        }

    @classmethod
    def from_dict(cls, data: Any) -> Schema:
        """The inverse of :meth:`to_dict`; a file is not trusted: ValueError says what is wrong."""
        try:
            features = tuple(Feature(_text(one["name"]), _texts(one["texts"])) for one in data["features"])
            fill = tuple(float(value) for value in data["fill"])
            names = _texts(data["targets"]), data["task"], _texts(data["class_names"])
            found = cls(features, *names, data["impute"] is True, fill)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"its table is not one of Ringlet's ({error})") from None
        if not features or found.num_inputs > _MAX_COLUMNS or found.task not in TASKS or not np.isfinite(fill).all():
            raise ValueError("its table is not one of Ringlet's")
        if fill and len(fill) != found.num_inputs:
            raise ValueError(f"its table has {found.num_inputs} inputs but {len(fill)} values for missing ones")
        return found


def is_missing(column: Column) -> NDArray[np.bool_]:
    """Where a column has no value."""
    if column.dtype == object:
        return np.array([value is None for value in column], bool)
    return np.isnan(column)


def as_texts(column: Column) -> list[str | None]:
    """A column as texts; whole numbers without a decimal point, as a table shows them."""
    if column.dtype == object:
        return list(column)
    return [None if np.isnan(value) else f"{value:.15g}" for value in column.tolist()]


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _texts(values: Any) -> tuple[str, ...]:
    return tuple(_text(value) for value in values)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names[:_SHOWN]) + (" …" if len(names) > _SHOWN else "")
