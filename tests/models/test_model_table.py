"""The layer table of simplecnn is the published one; other rows read well."""

from __future__ import annotations

from ringlet.models import zoo
from ringlet.models.builder import build, conv2d, image_input, relu
from ringlet.models.table import COLUMNS, layer_rows

SIMPLECNN = """
0 | Input   | 0      | (1, 28, 28) |              |   |
1 | Conv2D  | 40     | (4, 26, 26) | (4, 1, 3, 3) | 0 | 1
2 | Relu    | 0      | (4, 26, 26) |              |   |
3 | Conv2D  | 296    | (8, 24, 24) | (8, 4, 3, 3) | 0 | 1
4 | Relu    | 0      | (8, 24, 24) |              |   |
5 | Pool2D  | 0      | (8, 12, 12) |              | 0 | 2
6 | FC      | 147584 | (128,)      | (1152, 128)  |   |
7 | Relu    | 0      | (128,)      |              |   |
8 | FC      | 1290   | (10,)       | (128, 10)    |   |
9 | Softmax | 0      | (10,)       |              |   |
"""


def test_simplecnn_has_the_published_table():
    expected = [tuple(cell.strip() for cell in line.split("|")) for line in SIMPLECNN.strip().splitlines()]
    assert [row.cells() for row in layer_rows(zoo.create("simplecnn"))] == expected


def test_every_row_fills_every_column():
    assert {len(row.cells()) for row in layer_rows(zoo.create("unet"))} == {len(COLUMNS)}


def test_the_rows_of_every_network_add_up_to_its_parameters():
    for name in ("simplecnn", "resnet18", "unet", "densenet121"):
        spec = zoo.create(name)
        assert sum(row.num_parameters for row in layer_rows(spec)) == spec.num_parameters


def test_a_rectangular_window_shows_both_numbers():
    spec = build("wide", relu(conv2d(image_input((1, 9, 9)), 1, kernel=(1, 7), padding=(0, 3))))
    assert layer_rows(spec)[1].cells()[5:] == ("(0, 3)", "1")
