"""``ringlet train`` without options, as a newcomer types it: the network learns the built-in digits."""

from __future__ import annotations

import json

import pytest

from ringlet.kernels import available


@pytest.mark.skipif("compiled" not in available(), reason="the default run needs the compiled kernels to be quick")
def test_the_default_run_learns_the_digits(ringlet):
    outcome = ringlet("train", "--json")
    result = json.loads(outcome.stdout)
    assert outcome.code == 0
    assert (result["dataset"], result["num_epochs"]) == ("digits", 50)
    assert result["test"]["accuracy"] > 0.95
