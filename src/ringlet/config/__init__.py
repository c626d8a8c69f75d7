"""RunConfig: one validated description of a run, made of the options that components own.

``sections`` lists what a configuration consists of, ``aliases`` the other names of options, ``run_config`` joins values
under any name into a configuration and refuses contradictions; ``sources`` gathers values from defaults < a TOML file <
the environment < the command line; ``describe`` explains all options to people and programs.
"""

from __future__ import annotations

from ringlet.config.run_config import RunConfig
from ringlet.config.sections import Interval, ResumePoint
from ringlet.config.sources import Settings, gather, read_toml

__all__ = ["Interval", "ResumePoint", "RunConfig", "Settings", "gather", "read_toml"]
