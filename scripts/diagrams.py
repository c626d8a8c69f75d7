"""The diagrams of the documentation, written from this source: ``python scripts/diagrams.py [--check]``.

Each function is one picture of ``docs/diagrams/``; the layers come from the import rules that ``make test`` enforces.
With ``--check`` nothing is written, and a picture that is not that of the source is an error.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

from drawing import Drawing

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "diagrams"


def way_of_the_data() -> Drawing:
    """From files to predictions, in the order of the packages."""
    d = Drawing(960, 470, "The way of the data through the packages of Ringlet")
    d.box(30, 40, 170, 60, "1  data", "files → batches")
    d.box(30, 140, 170, 60, "2  models", "a network as data")
    d.box(270, 140, 170, 60, "3  engines", "loss and gradients")
    d.box(270, 240, 170, 60, "kernels", "arithmetic, twice", kind="cool")
    d.box(522, 140, 178, 60, "6  strategies", "workers agree")
    d.box(522, 240, 178, 60, "4  comm", "shared memory, MPI", kind="cool")
    d.box(522, 40, 178, 60, "5  optim", "updates, schedules")
    d.box(770, 140, 160, 60, "7  training", "steps, epochs, runs")
    d.box(770, 240, 160, 60, "8  checkpoint", "exact resume")
    d.box(30, 370, 240, 64, "9  export", "OpenVINO, ONNX, torch, Keras", kind="warm")
    d.box(395, 370, 200, 64, "10  inference", "files, folders, arrays", kind="warm")
    d.box(730, 370, 200, 64, "11  database", "SQL where the rows are", kind="warm")
    d.arrow((200, 70), (355, 70), (355, 138), label="")
    d.text(276, 62, "batches", kind="small")
    d.arrow((200, 170), (268, 170), label="spec")
    d.arrow((440, 170), (520, 170), label="gradients")
    d.arrow((611, 100), (611, 138))
    d.arrow((355, 240), (355, 202))
    d.arrow((611, 240), (611, 202))
    d.arrow((700, 170), (768, 170), label="update")
    d.arrow((850, 200), (850, 238), both=True)
    d.arrow((770, 285), (740, 285), (740, 335), (150, 335), (150, 368))
    d.text(435, 327, "a trained model", kind="small")
    d.arrow((270, 402), (393, 402), label="artifact")
    d.arrow((595, 402), (728, 402), label="predictions")
    return d


def shared_weights() -> Drawing:
    """Two workers of a machine around one copy of the weights."""
    d = Drawing(960, 480, "One copy of the weights per machine")
    d.frame(30, 50, 700, 400, "machine a")
    d.frame(790, 50, 140, 400, "machine b")
    d.frame(270, 90, 440, 340, "shared memory")
    for number, y in enumerate((110, 330)):
        d.box(50, y, 160, 80, f"worker {number}", "its own samples,", "forward, backward", kind="cool")
        d.text(290, y + 12 if number == 0 else y + 86, f"row of worker {number}", anchor="start", kind="small")
        d.box(290, y + 20, 200, 40, "gradients, part 0", kind="warm")
        d.box(490, y + 20, 200, 40, "gradients, part 1", kind="warm")
        d.arrow((210, y + 40), (288, y + 40))
        d.text(240, y + 32, "writes", kind="small")
    for part, x in enumerate((290, 490)):
        d.box(x, 240, 200, 46, f"parameters, part {part}")
        d.arrow((x + 40, 170), (x + 40, 238))
        d.arrow((x + 40, 350), (x + 40, 288))
        d.text(x + 50, 210, f"worker {part} adds up", anchor="start", kind="small")
        d.text(x + 50, 324, "and updates", anchor="start", kind="small")
    d.arrow((288, 263), (130, 263), (130, 192))
    d.arrow((130, 263), (130, 328))
    d.text(140, 254, "both read", anchor="start", kind="small")
    d.box(800, 233, 120, 60, "the same", "shared memory")
    d.arrow((692, 263), (798, 263), both=True)
    d.text(760, 252, "MPI", kind="small")
    return d


def shard_tree() -> Drawing:
    """Four shards, added along one tree, on one, two and four workers."""
    d = Drawing(960, 480, "Shards are added along a fixed tree, whoever computes them")
    xs = (210, 410, 610, 810)
    for number, x in enumerate(xs):
        d.box(x - 92, 40, 184, 56, f"shard {number}", "always the same work", kind="cool")
    for left, right, x in ((210, 410, 310), (610, 810, 710)):
        d.box(x - 60, 150, 120, 46, "+")
        d.arrow((left, 96), (x - 25, 148))
        d.arrow((right, 96), (x + 25, 148))
    d.box(450, 240, 120, 46, "+")
    d.arrow((310, 196), (480, 238))
    d.arrow((710, 196), (540, 238))
    d.arrow((570, 263), (670, 263))
    d.box(672, 238, 180, 50, "one update", "the same bits", kind="warm")
    for row, (count, label) in enumerate(((1, "1 worker"), (2, "2 workers"), (4, "4 workers"))):
        y = 330 + 46 * row
        d.text(30, y + 22, label, anchor="start", kind="small")
        per = 4 // count
        for worker in range(count):
            x = xs[worker * per] - 92
            width = xs[worker * per + per - 1] + 92 - x
            d.box(x, y, width, 34, f"rank {worker}")
    return d


def layers() -> Drawing:
    """Who may import whom, from the import rules."""
    rules = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    rows = next(rule["layers"] for rule in rules if rule["type"] == "layers")
    d = Drawing(960, 60 + 42 * len(rows), "Layers of packages: imports point downwards")
    for number, row in enumerate(rows):
        names = [name.strip().removeprefix("ringlet.") for name in row.split("|")]
        x, letters = 60.0, sum(len(name) + 2 for name in names)
        for name in names:
            width = 640 * (len(name) + 2) / letters if len(names) > 3 else 640 / len(names)
            d.box(x, 36 + 42 * number, width - 10, 34, name, kind="cool" if len(names) > 1 else "box")
            x += width
    d.arrow((760, 40), (760, 30 + 42 * len(rows)))
    d.text(778, 60, "may import", anchor="start", kind="small")
    d.text(778, 80, "what is below,", anchor="start", kind="small")
    d.text(778, 100, "never beside", anchor="start", kind="small")
    d.text(778, 120, "or above", anchor="start", kind="small")
    return d


def batch_innermost() -> Drawing:
    """The layout of activations: samples lie side by side."""
    d = Drawing(960, 330, "Batch innermost: the samples of one pixel lie side by side")
    d.text(40, 45, "memory of one channel, batch innermost", anchor="start", kind="bold")
    for pixel in range(3):
        for sample in range(8):
            d.box(40 + pixel * 300 + sample * 34, 60, 34, 34, str(sample), kind="cool" if pixel != 1 else "warm")
        d.text(40 + pixel * 300 + 136, 115, f"pixel {pixel}: samples 0 … 7", kind="small")
    d.text(40, 165, "one step of a convolution", anchor="start", kind="bold")
    d.box(40, 180, 272, 44, "8 samples of one pixel", kind="warm")
    d.text(336, 208, "×")
    d.box(360, 180, 150, 44, "one weight")
    d.text(558, 208, "added to")
    d.box(606, 180, 272, 44, "8 sums, in a register", kind="cool")
    remarks = (
        "One load serves every output channel; nothing is packed or shuffled, however few channels there are.",
        "Channels are outermost: a concatenation is two writers of one buffer, and no copy.",
        "A sample's result does not depend on its neighbours.",
    )
    for number, remark in enumerate(remarks):
        d.text(40, 262 + 22 * number, remark, anchor="start", kind="small")
    return d


def database_scoring() -> Drawing:
    """From a run to predictions inside a database."""
    d = Drawing(960, 400, "Scoring inside a database")
    d.box(30, 60, 170, 60, "run", "model.safetensors")
    d.box(290, 60, 170, 60, "artifact", "graph, weights, labels")
    d.arrow((200, 90), (288, 90), label="export,")
    d.text(244, 110, "compared", kind="small")
    d.frame(530, 50, 400, 320, "DuckDB, PostgreSQL, Greenplum")
    d.box(555, 70, 350, 56, "table of models", "name, version, bytes, SHA-256", kind="warm")
    d.arrow((460, 90), (553, 90))
    d.text(495, 80, "install", kind="small")
    d.box(555, 170, 350, 56, "ringlet_predict('cars', image)", "loads once per process, verifies", kind="cool")
    d.arrow((730, 126), (730, 168))
    d.box(555, 290, 160, 56, "rows", "id, image")
    d.box(745, 290, 160, 56, "results", "label, mask, error")
    d.arrow((635, 290), (635, 228))
    d.arrow((825, 226), (825, 288))
    d.box(30, 290, 260, 56, "select … from shots", "any client, any language")
    d.arrow((290, 318), (553, 318), both=True)
    d.text(410, 308, "SQL in, rows out", kind="small")
    d.text(410, 340, "pictures stay where they are", kind="small")
    return d


DIAGRAMS = (way_of_the_data, shared_weights, shard_tree, layers, batch_innermost, database_scoring)


def main() -> None:
    """Write or check every picture."""
    stale = []
    FOLDER.mkdir(parents=True, exist_ok=True)
    for draw in DIAGRAMS:
        path = FOLDER / f"{draw.__name__.replace('_', '-')}.svg"
        fresh = draw().svg()
        if not path.is_file() or path.read_text(encoding="utf-8") != fresh:
            stale.append(path.name)
            if "--check" not in sys.argv[1:]:
                path.write_text(fresh, encoding="utf-8")
    if stale and "--check" in sys.argv[1:]:
        sys.exit(f"pictures are not those of scripts/diagrams.py ({', '.join(stale)}): run `make docs`")


if __name__ == "__main__":
    main()
