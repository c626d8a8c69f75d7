"""Dropout whose mask is a pure function of a key: nothing is stored, and no two samples share a mask."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.kernels.contract import Floats
from ringlet.kernels.reference.movement import store


def dropout(x: Floats, y: Floats, *, rate: float, key: int, accumulate: bool) -> None:
    """``y = x * keep / (1 - rate)``, the same function forward and backward."""
    num_lanes = x.shape[-1]
    keep = keep_mask(x.size // num_lanes, num_lanes, rate, key).reshape(x.shape)
    factor = x.dtype.type(1 / (1 - rate))
    store(np.where(keep, x * factor, x.dtype.type(0)), y, accumulate)


def keep_mask(num_elements: int, num_lanes: int, rate: float, key: int) -> NDArray[np.bool_]:
    """``(elements, lanes)``: where ``mix(mix(i ^ low(key)) + j * 0x9E3779B9 ^ high(key)) >= floor(rate * 2^32)``."""
    low, high = np.uint32(key & 0xFFFFFFFF), np.uint32((key >> 32) & 0xFFFFFFFF)
    elements = np.arange(num_elements, dtype=np.uint64).astype(np.uint32)[:, None]
    lanes = np.arange(num_lanes, dtype=np.uint32)
    hashes = mix32((mix32(elements ^ low) + lanes * np.uint32(0x9E3779B9)) ^ high)
    return hashes >= np.uint32(int(rate * 2**32))


def mix32(values: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Scramble each 32-bit number: a bijection in which every input bit flips every output bit about half the time."""
    mixed: NDArray[Any] = values ^ (values >> np.uint32(16))
    mixed *= np.uint32(0x7FEB352D)
    mixed ^= mixed >> np.uint32(15)
    mixed *= np.uint32(0x846CA68B)
    mixed ^= mixed >> np.uint32(16)
    return mixed
