"""How long it takes to stop a run, and to start again after a worker has died.

    python -m benchmarks.recovery [--rounds 3]

Two workers train on synthetic images with Adam. "from SIGTERM to the end": the launcher is asked to stop, a checkpoint
is written, all processes end. "from the death of a worker to the next step": after a checkpoint a worker is killed, the
launcher starts all again (``--restarts``, after a second of waiting), and the run resumes; the clock stops when
the first step after the restart is done.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.common import parser, print_machine, report
from ringlet.bench.timing import estimate

COLUMNS = ("what", "network", "checkpoint MB", "seconds")
STOP, RESTART = "from SIGTERM to the end", "from the death of a worker to the next step"
PATIENCE = 300.0


def main() -> None:
    """Measure and print."""
    options = parser(__doc__, num_rounds=3, num_threads=None)
    options.add_argument("--stopped", default="vgg16_bn", help="network that is stopped (default: %(default)s)")
    options.add_argument("--killed", default="resnet18", help="network that loses a worker (default: %(default)s)")
    given = options.parse_args()
    print_machine(workers=2)
    rows, results = [], {}
    for what, model, measure in ((STOP, given.stopped, stop_seconds), (RESTART, given.killed, restart_seconds)):
        found = [measure(model) for _ in range(given.rounds)]
        seconds = estimate([taken for taken, _ in found])
        spread = f"{seconds.low:.1f} to {seconds.high:.1f}" if given.rounds > 1 else f"{seconds.median:.1f}"
        rows.append((what, model, f"{found[0][1] / 1e6:.0f}", spread))
        results[f"{what} / {model}"] = seconds.to_dict()
        print(f"  {what}, {model}: {spread} s", flush=True)
    print()
    report(given, "recovery", COLUMNS, rows, num_keys=2, results=results)


def stop_seconds(model: str) -> tuple[float, int]:
    """Seconds from the signal to the end of the launcher, and the bytes of the checkpoint."""
    with running(model) as (process, folder):
        wait_for(lambda: count(folder, "step_finished") >= 3, process)
        start = time.perf_counter()
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)
        return time.perf_counter() - start, checkpoint_bytes(folder)


def restart_seconds(model: str) -> tuple[float, int]:
    """Seconds from the death to the first step after it, and the bytes of the checkpoint."""
    with running(model, "--checkpoint-every", "4 steps", "--restarts", "3") as (process, folder):
        wait_for(lambda: checkpoint_bytes(folder) and count(folder, "step_finished") >= 6, process)
        killed = time.time()
        os.kill(workers(process.pid)[-1], signal.SIGKILL)
        wait_for(lambda: steps_after_restart(folder), process)
        return steps_after_restart(folder)[0]["time"] - killed, checkpoint_bytes(folder)


@contextmanager
def running(model: str, *options: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A run of two workers that would train for long."""
    with tempfile.TemporaryDirectory(dir=".") as folder:
        data = ("--dataset", "synthetic", "--num-samples", "6400", "--input-shape", "3,32,32", "--num-classes", "10")
        how = ("--local-batch-size", "32", "--num-epochs", "1000", "--validation-split", "0", "--no-evaluate")
        command = [sys.executable, "-m", "ringlet", "train", "-n", "2", "--model", model, *data, *how, *options]
        process = subprocess.Popen(
            [*command, "--run-dir", f"{folder}/run"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            yield process, Path(folder) / "run"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def wait_for(ready: Callable[[], Any], process: subprocess.Popen[bytes]) -> None:
    """Until the run has come so far."""
    deadline = time.monotonic() + PATIENCE
    while not ready():
        if process.poll() is not None:
            raise SystemExit(f"the run ended with exit code {process.returncode}: try the same by `ringlet train`")
        if time.monotonic() > deadline:
            raise SystemExit(f"the run did not come so far within {PATIENCE:.0f} s")
        time.sleep(0.01)


def events(folder: Path) -> list[dict[str, Any]]:
    """The log of the run; a last line that is not complete is left out."""
    path = folder / "events.ndjson"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def count(folder: Path, name: str) -> int:
    """How many events of a kind there are."""
    return sum(event["event"] == name for event in events(folder))


def steps_after_restart(folder: Path) -> list[dict[str, Any]]:
    """Steps that were finished after the workers were started again."""
    found = events(folder)
    places = [place for place, event in enumerate(found) if event["event"] == "run_resumed"]
    return [event for event in found[places[-1] :] if event["event"] == "step_finished"] if places else []


def checkpoint_bytes(folder: Path) -> int:
    """The size of the newest complete checkpoint; 0 if there is none."""
    found = sorted(path.parent for path in folder.glob("checkpoints/*/manifest.json"))
    return sum(file.stat().st_size for file in found[-1].rglob("*") if file.is_file()) if found else 0


def workers(launcher: int) -> list[int]:
    """The processes of the ranks, by their number."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().split(b"\0")
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
        if parent == launcher and b"ringlet.launch.worker" in words:
            found.append(int(path.name))
    if not found:
        raise SystemExit("no worker was found among the processes that the launcher has started")
    return sorted(found)


if __name__ == "__main__":
    main()
