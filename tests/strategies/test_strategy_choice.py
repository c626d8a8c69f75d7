"""The text of ``--strategy`` and the options that do not fit it."""

from __future__ import annotations

from typing import Any

import pytest

from ringlet import RunConfig
from ringlet.config import StrategyChoice
from ringlet.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("sync", StrategyChoice()),
        ("average:10", StrategyChoice("average", 10)),
        (" BMUF:5 ", StrategyChoice("bmuf", 5)),
        ("bmuf:5,block_momentum=0.9,block_rate=0.5,classical", StrategyChoice("bmuf", 5, 0.9, 0.5, False)),
        ("async", StrategyChoice("async")),
        ("softsync:2", StrategyChoice("softsync", 2)),
    ],
)
def test_what_can_be_said(text: str, choice: StrategyChoice) -> None:
    assert StrategyChoice.parse(text) == choice


@pytest.mark.parametrize(
    "text",
    [
        *("", "average", "average:", "average:0", "average:-1", "average:1.5", "average:99999999", "sync:1", "async:2"),
        *("bmuf:2,x=1", "bmuf:2,block_momentum=1", "bmuf:2,block_momentum=nan", "bmuf:2,block_rate=0", "soft"),
        *("bmuf:2,block_rate=", "bmuf:2,block_rate=1,block_rate=2", "average:2,classical"),
    ],
)
def test_what_cannot_be_said(text: str) -> None:
    with pytest.raises(ConfigError, match="expected"):
        StrategyChoice.parse(text)


@pytest.mark.parametrize("options", [{"shards": 4}, {"compression": "fp16"}, {"overlap": "on"}])
def test_options_that_only_synchronous_workers_have_are_refused(options: dict[str, Any]) -> None:
    RunConfig(strategy="sync", **options)
    with pytest.raises(ConfigError, match=r"strategy = average:2.*give one of them"):
        RunConfig(strategy="average:2", **options)
