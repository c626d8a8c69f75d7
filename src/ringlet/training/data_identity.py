"""Are the data of a resumed run those of its checkpoint? What is stored of them, and what is said if they differ.

Sample orders, splits and augmentation refer to samples by their number. So if files were added, removed, relabelled
or replaced, a resumed run would mix training and validation data and could not be repeated. Cheap facts tell: numbers,
shapes, a digest of all labels, and one of a few samples that are evenly spread.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from ringlet.data import Dataset, Source
from ringlet.data.source import labels_of
from ringlet.errors import CheckpointError
from ringlet.guards.agreement import dataset_fingerprint

PARTS = ("train", "validation", "test")
_TITLES = {
    "samples": "number of samples",
    "input_shape": "shape of inputs",
    "task": "task",
    "num_classes": "number of classes",
    "labels": "classes of the samples",
    "content": "content of the samples",
}
_DIGESTS = ("labels", "content")


def data_facts(dataset: Dataset) -> dict[str, dict[str, Any]]:
    """What a checkpoint keeps of the data: plain values by part."""
    sources = {part: getattr(dataset, part) for part in PARTS}
    return {part: _facts(source) for part, source in sources.items() if source is not None}


def _facts(source: Source) -> dict[str, Any]:
    labels = labels_of(source)
    return {
        "samples": len(source),
        "input_shape": list(source.input_shape),
        "task": source.task,
        "num_classes": source.num_classes,
        "labels": None if labels is None else hashlib.sha256(labels.tobytes()).hexdigest()[:32],
        "content": dataset_fingerprint(source),
    }


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs, in words; where numbers differ, digests follow and are not named."""
    found = []
    for part in PARTS:
        old, new = before.get(part), now.get(part)
        if not isinstance(old, Mapping) or not isinstance(new, Mapping):
            if part == "train" or old is new:
                continue
            had, has = ("none" if facts is None else "some" for facts in (old, new))
            found.append(f"{part} data: {had} before, {has} now")
            continue
        names = [name for name in _TITLES if old.get(name) != new.get(name)]
        plain = [name for name in names if name not in _DIGESTS]
        found += [f"{part} data: {_TITLES[name]}: {old.get(name)} before, {new.get(name)} now" for name in plain]
        if names and not plain:
            found.append(f"{part} data: the {_TITLES[names[0]]} changed")
    return found


def check_same_data(before: Any, now: Mapping[str, Any], *, allow: bool) -> list[str]:
    """Refuse data that are not those of the checkpoint; a remark if they are allowed. Older checkpoints do not tell."""
    found = differences(before, now) if isinstance(before, Mapping) else []
    if not found:
        return []
    if allow:
        return [f"the data changed since the checkpoint was written: {'; '.join(found)}"]
    raise CheckpointError(
        f"the data changed since the checkpoint was written: {'; '.join(found)}. Restore them, or give "
        "--allow-changed-data: the run then continues with the data as they are, and training samples may have become "
        "validation samples"
    )
