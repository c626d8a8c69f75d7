"""Tables at any width: words and numbers stay whole, and where a table is too wide its columns follow below."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from ringlet.cli.display import table

COLUMNS = ("workers", "batch", "memory / worker", "exchanged / step", "step", "samples/s", "speed-up", "binds")
ROWS = [
    ("1 *", "64 of 64", "123.4 MB", "0 B", "1.23 ms", "52,032", "1.00", "compute"),
    ("4,096", "64 of 262,144", "1,234.5 MB", "98.7 MB", "12.3 ms", "21,234,567", "4,012", "a shared machine"),
]


def printed(width: int, columns=COLUMNS, rows=ROWS) -> list[str]:
    text = io.StringIO()
    Console(file=text, width=width).print(table(columns, rows))
    return text.getvalue().splitlines()


@pytest.mark.parametrize("width", [50, 80, 100, 140, 200])
def test_no_line_is_too_long_and_no_number_is_broken(width: int) -> None:
    lines = printed(width)
    assert max(map(len, lines)) <= width
    cells = {cell.strip() for line in lines for cell in line.split("│")}
    assert {cell for row in ROWS for cell in row if re.search(r"\d", cell)} <= cells


def test_columns_that_do_not_fit_follow_below_with_the_first_one() -> None:
    lines = printed(80)
    assert sum("workers" in line for line in lines) == 2
    assert sum("│ 4,096 " in line for line in lines) == 2
    assert sum(line.startswith("┌") for line in printed(140)) == 1


def test_long_texts_are_broken_between_words() -> None:
    lines = printed(
        60, ("trial", "reason"), [("7", "training diverged in epoch 1, step 3 (update 3): the loss is nan")]
    )
    assert sum(line.startswith("┌") for line in lines) == 1
    assert max(map(len, lines)) <= 60
    words = {word for line in lines for word in line.replace("│", " ").split()}
    assert {"training", "diverged", "epoch"} <= words


def test_a_path_that_is_wider_than_the_terminal_is_folded() -> None:
    lines = printed(40, ("path",), [("/" + "a" * 100,)])
    assert max(map(len, lines)) <= 40
