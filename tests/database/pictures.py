"""Pictures for rows: good ones, odd ones and hostile ones."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import PIL.Image


def encoded(image: PIL.Image.Image, kind: str = "PNG") -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind)
    return stream.getvalue()


def picture(seed: int, height: int = 20, width: int = 30, mode: str = "RGB") -> bytes:
    """The content of a PNG file: coarse coloured noise."""
    values = np.random.default_rng(seed).integers(0, 256, (4, 5, 3)).astype(np.uint8)
    return encoded(PIL.Image.fromarray(values).resize((width, height), PIL.Image.Resampling.BICUBIC).convert(mode))


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _huge(size: int) -> bytes:
    header = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    parts = (_chunk(b"IHDR", header), _chunk(b"IDAT", zlib.compress(b"\0" * 1000)), _chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def _cmyk() -> bytes:
    values = np.random.default_rng(6).integers(0, 256, (20, 20, 3)).astype(np.uint8)
    return encoded(PIL.Image.fromarray(values).convert("CMYK"), "JPEG")


SHOTS = [picture(index, 20 + index, 31 - index) for index in range(12)]
"""Of different sizes."""

ODD_CHANNELS = [picture(5, mode="LA"), picture(5, mode="RGBA"), picture(5, mode="L"), _cmyk()]
"""Pictures with other channels than the networks take; they are converted."""

HOSTILE = {
    "not a readable image": b"<html>'; drop table shots; --</html>",
    "damaged": picture(3)[:60],
    "50000 x 50000 pixels: implausible": _huge(50_000),
    "13000 x 13000 pixels: expected at most 64,000,000": _huge(13_000) + bytes(2_700_000),
    "no bytes": b"",
    "none of PNG": b"\0" * 64,
}
"""Rows that are no pictures, by what their error says."""
