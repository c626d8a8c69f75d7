"""What is special about Keras files; that they compute the right thing is tested with the other targets."""

from __future__ import annotations

import json
import zipfile

import pytest
from export_networks import choose_keras_backend, make_case, write

from ringlet.models import zoo

pytestmark = [pytest.mark.xdist_group("keras_exports"), pytest.mark.filterwarnings("ignore")]


@pytest.fixture(autouse=True)
def keras():
    choose_keras_backend()
    return pytest.importorskip("keras")


@pytest.fixture
def case():
    return make_case(zoo.create("simplecnn", num_classes=2))


def test_the_file_holds_nothing_but_layers_of_keras_and_a_description(case):
    path = write(case, "keras")
    with zipfile.ZipFile(path) as archive:
        description = json.loads(archive.read("ringlet.json"))
        config = archive.read("config.json").decode()
    assert description["labels"] == ["cat", "dög"]
    assert description["preprocessing"]["values"] == "uint8"
    assert "ringlet" not in config


def test_the_users_data_format_stays_as_it_was(case, keras):
    keras.config.set_image_data_format("channels_first")
    try:
        path = write(case, "keras")
        assert keras.config.image_data_format() == "channels_first"
    finally:
        keras.config.set_image_data_format("channels_last")
    case.check(path)
