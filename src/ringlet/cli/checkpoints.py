"""``ringlet checkpoints``: what a run has saved, read completely and verified."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ringlet.checkpoint import CheckpointStore, Entry

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
EXAMPLES = (
    ("ringlet checkpoints runs/night", "list and verify"),
    ("ringlet checkpoints runs/night --json", "the same for a program"),
)


def checkpoints(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="run directory")],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout")] = False,
) -> None:
    """List the checkpoints of a run and verify every byte of them; the exit code is 1 if any cannot be used."""
    from ringlet.cli import display
    from ringlet.training.run_directory import superseded_runs

    store = _open(run)
    entries = store.entries(verify=True)
    best = _best_step(entries)
    if json:
        rows = [_document(entry, best) for entry in entries]
        display.print_json({"run": str(run), "directory": str(store.path), "checkpoints": rows})
    elif entries:
        _print(entries, best)
    else:
        display.note(f"{display.clean(store.path)} holds no checkpoints")
    for folder in superseded_runs(Path(str(store.path)).parent):
        display.note(f"superseded checkpoints are in {display.clean(folder)}")
    if any(entry.problem is not None for entry in entries):
        raise typer.Exit(1)


def _open(run: Path) -> CheckpointStore:
    """The checkpoints of a run directory; their own directory is accepted too."""
    from ringlet.checkpoint import CheckpointStore
    from ringlet.cli import display
    from ringlet.errors import UsageError
    from ringlet.training.run_directory import RunDirectory

    if not run.is_dir():
        raise UsageError(f"'{run}' is not a directory: give the run directory that `ringlet train` wrote")
    inner = RunDirectory.existing(run).checkpoints
    is_there = not isinstance(inner, Path) or inner.is_dir()
    return CheckpointStore(run if not is_there and CheckpointStore(run).steps() else inner, say=display.note)


def _print(entries: list[Entry], best: int | None) -> None:
    from time import time

    from ringlet.cli import display

    rows = [
        (
            entry.step,
            _epoch(entry),
            f"{entry.num_bytes / 1e6:,.1f} MB",
            _age(time() - entry.time),
            "best" if entry.step == best else "",
            entry.state if entry.problem is None else f"{entry.state}: {entry.problem}",
        )
        for entry in entries
    ]
    display.results_console().print(display.table(("Step", "Epoch", "Size", "Age", "Best", "State"), rows))
    num_unusable = sum(entry.problem is not None for entry in entries)
    if num_unusable:
        display.note(f"{num_unusable} of {len(entries)} cannot be used; `ringlet resume` uses the newest good one")


def _document(entry: Entry, best: int | None) -> dict[str, Any]:
    from datetime import UTC, datetime

    return {
        "step": entry.step,
        "epoch": _epoch(entry),
        "num_bytes": entry.num_bytes,
        "written": datetime.fromtimestamp(entry.time, UTC).isoformat(timespec="seconds"),
        "best": entry.step == best,
        "state": entry.state,
        "problem": entry.problem,
        "path": str(entry.path),
    }


def _epoch(entry: Entry) -> int | None:
    """How many epochs were finished; the file is not trusted to say it."""
    progress = entry.checkpoint.training.get("progress") if entry.checkpoint is not None else None
    return _number(progress.get("num_epochs")) if isinstance(progress, dict) else None


def _best_step(entries: list[Entry]) -> int | None:
    """The step of the best checkpoint, as the newest good one knows it."""
    good = [entry.checkpoint for entry in entries if entry.checkpoint is not None]
    return _number(good[-1].training.get("best_step")) if good else None


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _age(seconds: float) -> str:
    size, unit = next(((size, unit) for size, unit in _UNITS if seconds >= size), _UNITS[-1])
    return f"{max(seconds, 0) / size:.0f} {unit}"


def command() -> Any:
    """The command for the root group."""
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command("checkpoints")(checkpoints)
    return typer.main.get_command(app)
