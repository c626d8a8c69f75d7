"""How much memory it takes to decode large pictures for a network of 224x224.

    python -m benchmarks.picture_memory

Every picture is decoded in a process of its own; the result is how far resident memory rises above what is there before
the file is read, without the bytes of the file. The limit of pixels is lifted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import PIL.Image

from benchmarks.common import parser, print_machine, report
from benchmarks.served import forget_peak, resident_bytes

PICTURES: dict[str, tuple[str, int, str, dict[str, object]]] = {
    "JPEG": ("RGB", 100, ".jpg", {}),
    "PNG, colour": ("RGB", 64, ".png", {"compress_level": 1}),
    "GIF": ("RGB", 64, ".gif", {}),
    "larger PNG, colour": ("RGB", 100, ".png", {"compress_level": 1}),
    "TIFF in strips, colour": ("RGB", 169, ".tif", {"compression": "tiff_lzw"}),
    "TIFF in one strip, colour": ("RGB", 169, ".tif", {"compression": "tiff_lzw", "strip_size": 1 << 31}),
}
"""Mode, million pixels, ending, options of Pillow."""
SHAPE = (3, 224, 224)


def main() -> None:
    """Measure and print."""
    if sys.argv[1:2] == ["--decode"]:
        print(json.dumps(decoding_bytes(Path(sys.argv[2]))))
        return
    given = parser(__doc__, num_rounds=1, num_threads=None).parse_args()
    print_machine("pillow")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, (mode, million, ending, options) in PICTURES.items():
            path = Path(folder) / f"picture{ending}"
            write(path, mode, million, options)
            rows.append((name.removeprefix("larger "), million, f"{decode(path) / 2**20:,.0f}"))
            path.unlink()
    report(given, "picture_memory", ("picture", "million pixels", "MiB"), rows, num_keys=2)


def write(path: Path, mode: str, million: int, options: dict[str, object]) -> None:
    """A picture of coarse noise (plain ones would be refused), made in a process that ends with its memory."""
    edge = round((million * 1e6) ** 0.5)
    program = (
        "import json, sys, numpy, PIL.Image\n"
        "mode, edge, path, options = json.loads(sys.argv[1])\n"
        "shape = (-(-edge // 16), -(-edge // 16), *((3,) if mode == 'RGB' else ()))\n"
        "noise = numpy.random.default_rng(0).integers(0, 256, shape).astype('uint8')\n"
        "picture = noise.repeat(16, 0)[:edge].repeat(16, 1)[:, :edge]\n"
        "PIL.Image.fromarray(picture).save(path, **options)\n"
    )
    subprocess.run([sys.executable, "-c", program, json.dumps([mode, edge, str(path), options])], check=True)


def decode(path: Path) -> int:
    """Bytes, measured in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.picture_memory", "--decode", str(path)]
    environment = os.environ | {"RINGLET_MAX_PIXELS": str(1 << 30)}
    return int(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


def decoding_bytes(path: Path) -> int:
    """How far memory rises while a picture is decoded."""
    from ringlet.data.images import decode_image

    content = path.read_bytes()
    PIL.Image.init()
    baseline = resident_bytes()
    forget_peak()
    decode_image(content, SHAPE, path)
    return resident_bytes("VmHWM") - baseline


if __name__ == "__main__":
    main()
