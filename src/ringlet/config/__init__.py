"""RunConfig: one validated description of a run, made of the options that components own.

Takes values under any of their names, gives components. ``sections`` lists what a configuration consists of, ``names``
knows where an option stands, ``assembly`` makes components of values and collects what is wrong, ``run_config`` is the
result; ``sources`` gathers values from defaults < a TOML file < the environment < the command line; ``describe``
explains all options to people and programs.
"""

from __future__ import annotations

from ringlet.config.run_config import RunConfig
from ringlet.config.sections import Interval, ResumePoint
from ringlet.config.sources import Settings, gather, read_toml

__all__ = ["Interval", "ResumePoint", "RunConfig", "Settings", "gather", "read_toml"]
