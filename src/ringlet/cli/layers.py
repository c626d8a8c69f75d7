"""The layer table of a network, as it is printed."""

from __future__ import annotations

from rich.table import Table

from ringlet.cli.display import table
from ringlet.models.spec import ModelSpec
from ringlet.models.table import COLUMNS, layer_rows

MAX_RULED_ROWS = 40
"""Longer tables have no line between rows."""


def layer_table(spec: ModelSpec, *, with_flops: bool = False) -> Table:
    """One row per layer; ``with_flops`` adds the layer's name and its operations per sample."""
    rows = layer_rows(spec)
    columns = [*COLUMNS, "FLOPs", "Name"] if with_flops else list(COLUMNS)
    cells = [(*row.cells(), f"{row.flops:,}", row.name) if with_flops else row.cells() for row in rows]
    return table(columns, cells, centred=True, lines=len(rows) <= MAX_RULED_ROWS)
