"""RunConfig: one validated description of a run, TOML in and out.

``options`` lists every option with its default, range and meaning; ``run_config`` joins them and refuses
contradictions; ``sources`` gathers values from defaults < a TOML file < the environment < the command line.
"""

from __future__ import annotations

from ringlet.config.intervals import Interval, ResumePoint
from ringlet.config.run_config import RunConfig
from ringlet.config.sources import Settings, gather, read_toml
from ringlet.config.strategy_choice import StrategyChoice

__all__ = ["Interval", "ResumePoint", "RunConfig", "Settings", "StrategyChoice", "gather", "read_toml"]
