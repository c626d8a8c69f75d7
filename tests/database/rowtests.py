"""What a database should say: the predictor's own results, as rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ringlet.database.rows import COLUMNS, encode_mask
from ringlet.inference import Predictor


def expected_rows(model: Path, images: Sequence[bytes]) -> list[tuple[Any, ...]]:
    """What ``ringlet predict`` finds, in the order of :data:`COLUMNS`."""
    with Predictor(model, threads=1) as predictor:
        classes = predictor.description.num_classes
        return [
            (
                found.class_index,
                found.label,
                found.probability,
                None if found.mask is None else encode_mask(found.mask, classes),
                found.share,
                None,
            )
            for found in predictor.predict(list(images))
        ]


def columns(alias: str = "") -> str:
    """The columns of a result, for a select list."""
    return ", ".join(f'{alias}"{name}"' for name in COLUMNS)
