"""Classes of very different size: a network may learn to name the usual one always."""

from __future__ import annotations

from collections.abc import Sequence

IMBALANCE = 10.0
"""A class with so many times fewer samples than another is worth a word."""


def imbalance(counts: Sequence[int], class_names: Sequence[str]) -> list[str]:
    """A remark about training samples of each class, if their numbers differ much; classes without any are another."""
    filled = [(count, index) for index, count in enumerate(counts) if count]
    if len(filled) < 2 or max(filled)[0] < IMBALANCE * min(filled)[0]:
        return []
    (fewest, rare), (most, usual) = min(filled), max(filled)
    names = [class_names[index] if index < len(class_names) else str(index) for index in (usual, rare)]
    return [f"classes are out of balance: '{names[0]}' has {most:,} training samples, '{names[1]}' {fewest:,}"]
