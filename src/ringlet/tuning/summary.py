"""Trials in order of merit, as columns and rows of text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ringlet.study.tables import TextTable, metric_text, seconds_text
from ringlet.tuning.directory import Record
from ringlet.tuning.options import Search


def last_records(records: Iterable[Record]) -> list[Record]:
    """The record of each trial that was trained furthest."""
    found: dict[int, Record] = {}
    for record in sorted(records, key=lambda record: record.epochs):
        found[record.trial] = record
    return list(found.values())


def ranked(search: Search, records: Iterable[Record]) -> list[Record]:
    """Trials from best to worst: those trained longer first, as methods do; then those that failed."""

    def order(record: Record) -> tuple[bool, int, float, int]:
        merit = search.merit(record.value)
        return merit is None, -record.epochs, 0.0 if merit is None else merit, record.trial

    return sorted(last_records(records), key=order)


def best_record(search: Search, records: Iterable[Record]) -> Record | None:
    """The best trial; None if none has a result."""
    return next((record for record in ranked(search, records) if record.value is not None), None)


def trials_table(search: Search, records: Sequence[Record]) -> TextTable:
    """One row per trial, the best first."""
    names = [dimension.name for dimension in search.space.dimensions]
    rows = [
        (
            str(record.trial),
            *(value_text(record.values.get(name)) for name in names),
            str(len(record.curve) or record.epochs),
            "" if record.value is None else metric_text(search.metric, record.value),
            seconds_text(record.seconds) if record.seconds else "",
            outcome_text(record, search.question.num_epochs),
        )
        for record in ranked(search, records)
    ]
    return TextTable(("trial", *names, "epochs", search.metric, "s", "outcome"), tuple(rows))


def outcome_text(record: Record, num_epochs: int) -> str:
    """How a trial ended, with the reason if that is not the plan."""
    if record.status != "finished":
        return f"{record.status}: {record.reason}"
    if record.epochs < num_epochs:
        return "not continued"
    return record.reason or "trained to the end"


def value_text(value: Any) -> str:
    """A value of an option; nothing where a trial has no such option."""
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
