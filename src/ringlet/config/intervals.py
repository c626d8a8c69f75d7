"""How often checkpoints are written, and from which one a run resumes: small texts with a meaning."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from ringlet.errors import ConfigError


@dataclass(frozen=True)
class Interval:
    """Every ``count`` steps or epochs; ``never`` has no count; ``auto``: after epochs, but not too often."""

    count: int
    unit: Literal["steps", "epochs", "auto", "never"]

    @classmethod
    def parse(cls, text: str) -> Interval:
        """``100 steps``, ``100`` (steps), ``2 epochs``, ``epoch``, ``auto`` or ``never``."""
        if text.strip().lower() in ("never", "0"):
            return cls(0, "never")
        if text.strip().lower() == "auto":
            return cls(1, "auto")
        match = re.fullmatch(r"\s*(\d{1,12})?\s*(steps?|epochs?)?\s*", text.lower())
        count = int(match[1] or 1) if match and (match[1] or match[2]) else 0
        if match is None or count < 1:
            raise ConfigError(f"expected such as '100 steps', '2 epochs', auto or never, received '{text}'")
        return cls(count, "epochs" if (match[2] or "").startswith("epoch") else "steps")


@dataclass(frozen=True)
class ResumePoint:
    """A checkpoint: the newest good one, or that of a step or of the end of an epoch."""

    step: int | None = None
    epoch: int | None = None

    @classmethod
    def parse(cls, text: str | None) -> ResumePoint | None:
        """``auto``, ``120`` or ``step:120``, ``epoch:3``; None stays None."""
        if text is None:
            return None
        match = re.fullmatch(r"(?:(step|epoch):)?(\d{1,12})", text.strip().lower())
        if text.strip().lower() == "auto":
            return cls()
        if match is None:
            raise ConfigError(f"expected auto, a number of steps such as 120, or epoch:3, received '{text}'")
        number = int(match[2])
        return cls(epoch=number) if match[1] == "epoch" else cls(step=number)
