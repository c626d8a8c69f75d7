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
    ("text", "message"),
    [
        ("", "unknown strategy ''"),
        ("soft", "unknown strategy 'soft'"),
        ("average", "every: strategy 'average' needs a value: average:EVERY"),
        ("average:", "names no every: expected average:EVERY"),
        ("average:0", "every: 0 is out of range, expected at least 1"),
        ("average:-1", "every: -1 is out of range, expected at least 1"),
        ("average:1.5", "expected a whole number after the colon: average:EVERY"),
        ("average:99999999", "every: 99999999 is out of range, expected at most 1,000,000"),
        ("average:2,classical", "'classical' is not understood. Expected average:EVERY"),
        ("sync:1", "sync takes nothing after a colon. Expected sync[,overlap=…,compression=…]"),
        ("async:2", "async takes nothing after a colon. Expected async"),
        ("bmuf:2,x=1", "'x=1' is not understood. Expected bmuf:EVERY[,block_momentum=…,block_rate=…,classical]"),
        ("bmuf:2,block_momentum=1", "block_momentum: 1.0 is out of range, expected less than 1"),
        ("bmuf:2,block_momentum=nan", "block_momentum: nan is not a finite number"),
        ("bmuf:2,block_rate=0", "block_rate: 0.0 is out of range, expected greater than 0"),
        ("bmuf:2,block_rate=", "block_rate: expected a number"),
        ("bmuf:2,block_rate=1,block_rate=2", "'block_rate=2' is not understood"),
        ("sync,compression=zip", "unknown compression 'zip'"),
    ],
)
def test_what_cannot_be_said(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        STRATEGIES.parse(text)
    assert message in str(caught.value)


def test_more_groups_than_workers_are_refused() -> None:
    assert SoftSyncConfig(n=2).group_size(5) == 2
    with pytest.raises(UsageError, match=r"softsync:6 with 5 workers: expected 1 .* to 5"):
        SoftSyncConfig(n=6).group_size(5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shards": 4}, r"strategy = average:2 .* shards = 4 .* give one of them"),
        ({"compression": "fp16"}, r"strategy 'average' has no option 'compression'; strategy = sync has it"),
        ({"overlap": "on"}, r"strategy 'average' has no option 'overlap'; strategy = sync has it"),
    ],
)
def test_options_that_only_synchronous_workers_have_are_refused(options: dict[str, Any], message: str) -> None:
    RunConfig(strategy="sync", **options)
    with pytest.raises(UsageError, match=message):
        RunConfig(strategy="average:2", **options)
