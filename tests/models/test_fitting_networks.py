"""The network that is taken where none is named."""

from __future__ import annotations

import pytest

import ringlet
from ringlet.errors import RingletError
from ringlet.models import zoo


@pytest.mark.parametrize(
    ("shape", "paints", "name"),
    [
        ((13,), False, "simplemlp"),
        ((1, 8, 8), False, "vgg1dobn"),
        ((3, 32, 32), False, "vgg3bn"),
        ((3, 40, 300), False, "vgg3bn"),
        ((3, 224, 224), False, "resnet18"),
        ((3, 128, 128), True, "unet"),
    ],
)
def test_the_network_fits_the_data(shape: tuple[int, ...], paints: bool, name: str) -> None:
    assert zoo.fitting(shape, paints=paints) == name
    assert zoo.create(name, input_shape=shape, num_classes=2).input_shape == shape


def test_a_run_without_a_named_network_takes_it() -> None:
    assert ringlet.Trainer(dataset="digits").spec.name == "vgg1dobn"


def test_a_named_network_is_never_replaced() -> None:
    with pytest.raises(RingletError, match="features"):
        ringlet.Trainer("vgg1dobn", ([[0.0, 1.0]] * 8, [0, 1] * 4))
