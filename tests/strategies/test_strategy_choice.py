"""The text of ``--strategy`` and the options that do not fit it."""

from __future__ import annotations

from typing import Any

import pytest

from ringlet import RunConfig
from ringlet.errors import UsageError
from ringlet.strategies.average import AverageConfig
from ringlet.strategies.bmuf import BmufConfig
from ringlet.strategies.contract import STRATEGIES, StrategyConfig
from ringlet.strategies.shared_model import AsyncConfig, SoftSyncConfig
from ringlet.strategies.synchronous import SyncConfig


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("sync", SyncConfig()),
        ("average:10", AverageConfig(every=10)),
        (" BMUF:5 ", BmufConfig(every=5)),
        (
            "bmuf:5,block_momentum=0.9,block_rate=0.5,classical",
            BmufConfig(every=5, block_momentum=0.9, block_rate=0.5, classical=True),
        ),
        ("async", AsyncConfig()),
        ("softsync:2", SoftSyncConfig(n=2)),
        ("sync,overlap=off,compression=topk:0.01", SyncConfig(overlap="off", compression="topk:0.01")),
    ],
)
def test_what_can_be_said_and_said_again(text: str, chosen: StrategyConfig) -> None:
    assert STRATEGIES.parse(text) == chosen
    assert STRATEGIES.parse(str(chosen)) == chosen


@pytest.mark.parametrize(
    "text",
    [
        *("", "average", "average:", "average:0", "average:-1", "average:1.5", "average:99999999", "sync:1", "async:2"),
        *("bmuf:2,x=1", "bmuf:2,block_momentum=1", "bmuf:2,block_momentum=nan", "bmuf:2,block_rate=0", "soft"),
        *("bmuf:2,block_rate=", "bmuf:2,block_rate=1,block_rate=2", "average:2,classical", "sync,compression=zip"),
    ],
)
def test_what_cannot_be_said(text: str) -> None:
    with pytest.raises(UsageError, match=r"expected|Expected|unknown|needs a value|not a finite"):
        STRATEGIES.parse(text)


def test_more_groups_than_workers_are_refused() -> None:
    assert SoftSyncConfig(n=2).group_size(5) == 2
    with pytest.raises(UsageError, match=r"softsync:6 with 5 workers: expected 1 .* to 5"):
        SoftSyncConfig(n=6).group_size(5)


@pytest.mark.parametrize("options", [{"shards": 4}, {"compression": "fp16"}, {"overlap": "on"}])
def test_options_that_only_synchronous_workers_have_are_refused(options: dict[str, Any]) -> None:
    RunConfig(strategy="sync", **options)
    with pytest.raises(UsageError, match=r"give one of them|strategy = sync has it"):
        RunConfig(strategy="average:2", **options)
