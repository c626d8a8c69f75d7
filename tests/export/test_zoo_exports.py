"""Every family of the zoo, exported to every target, computes what the training engine computes."""

from __future__ import annotations

import numpy as np
import pytest
from export_networks import FAMILIES, choose_keras_backend, write, zoo_case

from ringlet.models import zoo

pytestmark = pytest.mark.filterwarnings("ignore")

IDENTIFIERS = [f"{name}-{size}" for name, size, _ in FAMILIES]
CASES = [
    pytest.param(index, marks=pytest.mark.xdist_group(f"{name}_export"), id=name)
    for index, name in enumerate(IDENTIFIERS)
]


@pytest.mark.parametrize("target", ["openvino", "onnx", "torch"])
@pytest.mark.parametrize("case", CASES)
def test_an_export_computes_what_the_engine_computes(case, target):
    made = zoo_case(case)
    made.check(write(made, target))


@pytest.mark.xdist_group("keras_exports")
@pytest.mark.parametrize("case", range(len(FAMILIES)), ids=IDENTIFIERS)
def test_a_keras_model_computes_what_the_engine_computes(case):
    choose_keras_backend()
    keras = pytest.importorskip("keras")
    from ringlet.export.keras import build_model

    made = zoo_case(case)
    found = keras.ops.convert_to_numpy(build_model(made.network, made.description)(made.values, training=False))
    found = np.moveaxis(found, 3, 1) if found.ndim == 4 else found
    np.testing.assert_allclose(found, made.expected, rtol=0, atol=1e-4)


def test_no_family_of_the_zoo_is_missing():
    families = {zoo.describe(name).family for name in zoo.names()}
    assert {zoo.describe(name).family for name, _, _ in FAMILIES} == families
