"""Keys of the random streams: pure functions of (seed, step, shard, layer), so nothing depends on who computes what."""

from __future__ import annotations

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def splitmix64(value: int) -> int:
    """Steele, Lea and Flood's finaliser: a bijection of 64-bit numbers that scatters them."""
    value = (value + _GOLDEN) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def mix(key: int, value: int) -> int:
    """A new key from a key and a number."""
    return splitmix64(key ^ splitmix64(value & _MASK))


def step_key(seed: int, step: int, shard: int) -> int:
    """The key of one shard's step."""
    return mix(mix(mix(0, seed), step), shard)


def dropout_key(seed: int, step: int, shard: int, layer: int) -> int:
    """The key of one layer's mask; ``layer`` is the node's position in the spec."""
    return mix(step_key(seed, step, shard), layer)
