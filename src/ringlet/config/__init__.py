"""RunConfig: one validated description of a run, TOML in and out.

``options`` lists every option with its default, range and meaning; ``run_config`` joins them and refuses
contradictions; ``sources`` gathers values from defaults < a TOML file < the environment < the command line;
``template`` and ``schema`` describe such a file to people and to programs.
"""

from __future__ import annotations

from ringlet.config.intervals import Interval, ResumePoint
from ringlet.config.run_config import RunConfig
from ringlet.config.sources import Settings, gather
from ringlet.config.strategy_choice import StrategyChoice
from ringlet.config.toml_file import read_toml

__all__ = ["Interval", "ResumePoint", "RunConfig", "Settings", "StrategyChoice", "gather", "read_toml"]
