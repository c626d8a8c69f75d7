"""Tables: CSV, Parquet and Arrow files and data frames, as vectors of inputs with classes or numbers to be predicted.

Columns of numbers are standardised by the mean and deviation of the rows that are trained on; columns of texts become
one input per text (:mod:`ringlet.data.table_schema`). A column is one of numbers if all of its values are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.data.normalization import Normalization
from ringlet.data.requests import Parts, Request
from ringlet.data.source import Source, Task
from ringlet.data.table_files import ENDINGS, read_columns
from ringlet.data.table_schema import Column, Feature, Schema, as_texts, is_missing
from ringlet.data.targets import TargetedArrays, Targets
from ringlet.data.values import is_instance_of, type_name
from ringlet.errors import DataError, UsageError

MAX_TEXTS = 1000
MAX_CLASSES = 100
"""Whole numbers of more different values are numbers to be predicted, not classes."""
_FEW_TEXTS = 20
_SHOWN = 12
_FIT_ROWS = 65_536
_FINE = 1e4
"""A mean this many deviations away from zero leaves few digits of a float32 for what varies."""


@dataclass(frozen=True)
class TableOptions:
    """What a user says of a table."""

    targets: tuple[str, ...]
    task: Task | None = None
    ignored: tuple[str, ...] = ()
    impute: bool = False


@dataclass(frozen=True)
class Columns:
    """The columns of a table by name, all of one length; ``what`` is the table's name in messages."""

    values: dict[str, Column]
    what: str

    def __len__(self) -> int:
        return len(next(iter(self.values.values())))

    @classmethod
    def of_file(cls, path: Path) -> Columns:
        """The columns of a file."""
        return cls(
            {name: as_column(values, f"{path}, column '{name}'") for name, values in read_columns(path)}, str(path)
        )

    @classmethod
    def of_frame(cls, frame: Any, what: str) -> Columns:
        """The columns of a data frame of pandas or polars, or of a table of Arrow."""
        is_arrow = is_instance_of(frame, "pyarrow", "Table")
        names = list(frame.column_names if is_arrow else frame.columns)
        found = {}
        for name in names:
            column = frame.column(name) if is_arrow else frame[name]
            found[str(name)] = as_column(np.asarray(column.to_numpy()), f"{what}, column '{name}'")
        if not found or not len(next(iter(found.values()))):
            raise DataError(f"{what}: a table of shape {getattr(frame, 'shape', '')}: expected rows and columns")
        return cls(found, what)


def as_column(values: NDArray[Any], what: str) -> Column:
    """Numbers as float64 with NaN, texts as objects with None; numbers that are written as texts are numbers."""
    if values.dtype.kind in "biuf":
        return values.astype(np.float64)
    if values.dtype.kind == "U":
        values = values.astype(object)
    if values.dtype.kind != "O":
        raise DataError(f"{what}: values of type {values.dtype}: expected numbers or texts; leave it out with ignore=")
    found = [None if _is_none(value) else value for value in values]
    given = [value for value in found if value is not None]
    other = next((value for value in given if not isinstance(value, str | int | float | np.number | bool)), None)
    if other is not None:
        raise DataError(f"{what}: a {type_name(other)}: expected numbers or texts; leave it out with ignore=")
    try:
        return np.array([np.nan if value is None else float(value) for value in found])
    except ValueError:
        return np.array([None if value is None else str(value) for value in found], object)


def _is_none(value: Any) -> bool:
    return (
        value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value)
    )


# -- parts ------------------------------------------------------------------------------------------------------------
def table_parts(
    train: Columns, test: Columns | None, validation: Columns | None, options: TableOptions, known: Schema | None = None
) -> Parts:
    """The parts of a data set; ``known`` is the schema of a model that is to be used."""
    schema, remarks = (known, []) if known is not None else make_schema(train, options)
    inputs: list[NDArray[np.float32]] = []

    def source(columns: Columns) -> Source:
        rows = schema.filled(schema.inputs(columns.values, columns.what))
        inputs.append(rows)
        return TargetedArrays(rows, _targets(columns, schema), None, columns.what)

    sources = [None if columns is None else source(columns) for columns in (train, test, validation)]
    for columns in (test, validation):
        if columns is not None and (unknown := schema.unknown_texts(columns.values)):
            listed = ", ".join(f"'{name}' in {count:,} rows" for name, count in unknown.items())
            remarks.append(f"{columns.what}: texts that the training data lack, which count as none of them: {listed}")
    assert sources[0] is not None
    fit = None if known is not None and known.fill else _fit(schema, inputs)
    return Parts(
        sources[0], sources[1], sources[2], class_names=schema.class_names, normalization=Normalization(),
        remarks=tuple(remarks), fit=fit, table=schema,
    )  # fmt: skip


def _fit(schema: Schema, inputs: Iterable[NDArray[np.float32]]) -> Callable[[Source], Normalization]:
    """Standardises by the rows that are trained on, and fills what is missing in all of them."""

    def fit(train: Source) -> Normalization:
        starts = range(0, len(train), _FIT_ROWS)
        rows = [train.read(np.arange(start, min(start + _FIT_ROWS, len(train))))[0] for start in starts]
        values = np.concatenate(rows).astype(np.float64)
        known = np.maximum((~np.isnan(values)).sum(axis=0), 1)
        mean = np.nansum(values, axis=0) / known
        deviation = np.sqrt(np.nansum((values - mean) ** 2, axis=0) / known)
        standard = schema.is_number
        means, stds = np.where(standard, mean, 0.0), np.where(standard & (deviation > 0), deviation, 1.0)
        for part in inputs:
            np.copyto(part, means.astype(np.float32), where=np.isnan(part))
        return Normalization(1.0, tuple(means.tolist()), tuple(stds.tolist()))

    return fit


_PARTS = {"train": ("train", "training"), "test": ("test", "testing"), "validation": ("val", "valid", "validation")}


def load_table(request: Request, targets: tuple[str, ...], ignored: tuple[str, ...], *, impute: bool) -> Parts:
    """The parts of a table in files; see :class:`ringlet.data.formats.Table`."""
    train, test_path = request.folders()
    places = {part: _in_folder(train, names) if train.is_dir() else None for part, names in _PARTS.items()}
    if train.is_dir() and places["train"] is None:
        raise request.missing(
            train, f"a file such as train{ENDINGS[0]}, with val{ENDINGS[0]} and test{ENDINGS[0]} if there are"
        )
    if request.test_path is not None:
        places["test"] = _in_folder(test_path, _PARTS["test"]) if test_path.is_dir() else test_path
    tables = {part: None if path is None else Columns.of_file(path) for part, path in places.items()}
    if request.task == "segmentation" or (request.task == "classification" and len(targets) > 1):
        raise UsageError(
            f"{train}: {len(targets)} columns cannot be the targets of a {request.task}: choose another task"
        )
    options = TableOptions(targets, request.task, ignored, impute)
    return table_parts(
        tables["train"] or Columns.of_file(train), tables["test"], tables["validation"], options, request.table
    )


def _in_folder(folder: Path, names: Iterable[str]) -> Path | None:
    paths = (folder / f"{name}{ending}" for name in names for ending in ENDINGS)
    return next((path for path in paths if path.is_file()), None)


# -- the schema -------------------------------------------------------------------------------------------------------
def make_schema(table: Columns, options: TableOptions) -> tuple[Schema, list[str]]:
    """The schema of a training table, and remarks about what was understood."""
    _check_names(table, options)
    names = [name for name in table.values if name not in (*options.targets, *options.ignored)]
    if not names:
        raise DataError(f"{table.what} has no columns beside the target: expected at least one to learn from")
    features = tuple(_feature(name, table) for name in names)
    task, class_names, remarks = _task(table, options)
    num_texts = sum(bool(feature.texts) for feature in features)
    schema = Schema(features, options.targets, task, class_names, options.impute)
    kinds = f"{len(features) - num_texts} columns of numbers, {num_texts} of texts: {schema.num_inputs} inputs"
    return schema, [f"{table.what}: {kinds}; {_understood(schema)}", *remarks, *_fine_columns(table, features)]


def _check_names(table: Columns, options: TableOptions) -> None:
    shown = ", ".join(list(table.values)[:_SHOWN]) + (" …" if len(table.values) > _SHOWN else "")
    if not options.targets:
        raise UsageError(f"{table.what}: which column is to be predicted? Give --target COLUMN: one of {shown}")
    for name in (*options.targets, *options.ignored):
        if name not in table.values:
            raise UsageError(f"{table.what} has no column '{name}': it has {shown}")


def _feature(name: str, table: Columns) -> Feature:
    column = table.values[name]
    if is_missing(column).all():
        raise DataError(f"{table.what}: column '{name}' has no values: leave it out with --dataset.ignore {name}")
    if column.dtype != object:
        return Feature(name)
    texts = sorted({text for text in column if text is not None})
    if len(texts) > MAX_TEXTS or (len(texts) > _FEW_TEXTS and len(texts) > len(column) / 2):
        raise DataError(
            f"{table.what}: column '{name}' has {len(texts):,} different texts in {len(column):,} rows, such as "
            f"'{texts[0][:40]}': expected kinds that occur again and again. Leave it out with --dataset.ignore {name}"
        )
    return Feature(name, tuple(texts))


def _task(table: Columns, options: TableOptions) -> tuple[Task, tuple[str, ...], list[str]]:
    """What the target columns mean, and the names of classes or outputs."""
    columns = [table.values[name] for name in options.targets]
    for name, column in zip(options.targets, columns, strict=True):
        if count := int(is_missing(column).sum()):
            raise DataError(f"{table.what}: {count:,} rows have no value in the target '{name}': remove these rows")
    if len(columns) > 1:
        if any(column.dtype == object for column in columns):
            raise DataError(f"{table.what}: several targets, one of them of texts: expected numbers in all of them")
        binary = all(bool(np.isin(column, (0, 1)).all()) for column in columns)
        return options.task or ("multilabel" if binary else "regression"), options.targets, []
    column = columns[0]
    whole = column.dtype == object or bool((column == np.rint(column)).all())
    num_values = len(set(as_texts(column)))
    task: Task = options.task or ("classification" if whole and num_values <= MAX_CLASSES else "regression")
    if task != "classification":
        if column.dtype == object:
            raise DataError(f"{table.what}: target '{options.targets[0]}' holds texts: expected numbers for a {task}")
        return task, options.targets, []
    texts = {text for text in as_texts(column) if text is not None}
    names = sorted(texts, key=float) if column.dtype != object else sorted(texts)
    doubtful = column.dtype != object and len(names) > _FEW_TEXTS and options.task is None
    remark = f"{table.what}: the {len(names)} different numbers of '{options.targets[0]}' are taken as classes"
    return task, tuple(names), [f"{remark}; --dataset.targets regression says otherwise"] if doubtful else []


def _understood(schema: Schema) -> str:
    if schema.task == "classification":
        return f"target '{schema.targets[0]}' has {len(schema.class_names)} classes"
    kind = "labels" if schema.task == "multilabel" else "numbers to be predicted"
    return f"{len(schema.targets)} {kind}"


def _fine_columns(table: Columns, features: Iterable[Feature]) -> list[str]:
    """A remark about numbers whose differences are lost among their digits, such as times in seconds."""
    found = []
    for feature in features:
        column = table.values[feature.name]
        if column.dtype != object and 0 < np.nanstd(column) < abs(np.nanmean(column)) / _FINE:
            found.append(
                f"{table.what}: column '{feature.name}' varies little about {np.nanmean(column):g}: subtract that"
            )
    return found


def _targets(columns: Columns, schema: Schema) -> Targets:
    for name in schema.targets:
        if name not in columns.values:
            raise DataError(f"{columns.what} lacks the target column '{name}'")
        if int(is_missing(columns.values[name]).sum()):
            raise DataError(f"{columns.what}: values of the target '{name}' are missing: remove these rows")
    if schema.task != "classification":
        values = np.stack([columns.values[name].astype(np.float32) for name in schema.targets], axis=1)
        return Targets(schema.task, values, len(schema.targets), schema.class_names)
    places = {name: index for index, name in enumerate(schema.class_names)}
    texts = as_texts(columns.values[schema.targets[0]])
    if unknown := next((text for text in texts if text not in places), None):
        known = ", ".join(schema.class_names[:_SHOWN])
        raise DataError(f"{columns.what}: class '{unknown[:60]}', which the training data lack: known {known}")
    return Targets("classification", np.array([places[str(text)] for text in texts], np.int64), len(places))
