"""``ringlet resume``: resume a run from its newest good checkpoint, with the same or another number of workers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from ringlet.cli.launching import (
    HostFile,
    Hosts,
    Launcher,
    MinWorkers,
    NumWorkers,
    Output,
    Restarts,
    Verbose,
    launch_plan,
)
from ringlet.cli.options import RunCommand, with_run_options
from ringlet.errors import UsageError
from ringlet.output_streams import outlive_output

EXAMPLES = (
    ("ringlet resume runs/night", "from the newest good checkpoint"),
    ("ringlet resume runs/night -n 2 --num-epochs 100", "two workers, more epochs"),
    ("ringlet resume runs/night --at epoch:3", "from the checkpoint after epoch 3"),
)


def resume(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="run directory")],
    *,
    num_workers: NumWorkers = None,
    hosts: Hosts = None,
    hostfile: HostFile = None,
    launcher: Launcher = "auto",
    output: Output = "plain",
    restarts: Restarts = 0,
    min_workers: MinWorkers = None,
    at: Annotated[
        str, typer.Option("--at", metavar="STEP|epoch:N", help="this checkpoint (default: the newest good one)")
    ] = "auto",
    json: Annotated[bool, typer.Option("--json", help="Print the results as one JSON document on stdout")] = False,
    verbose: Verbose = False,
    **values: Any,
) -> int:
    """Resume a run from its newest good checkpoint.

    Its options are those of its config.toml, its workers as many as it had. Options that do not change what is learned
    may be given again: --num-epochs for more epochs, -n for another number of workers, --checkpoint-every, --keep,
    --threads and the like.
    """
    from ringlet.cli.train import start_or_execute
    from ringlet.config import gather
    from ringlet.training.run_directory import CONFIG

    outlive_output()
    stored = run / CONFIG
    if not stored.is_file():
        raise UsageError(f"'{run}' is no run directory: it has no {CONFIG}. Expected the folder that a run has written")
    given = {name: value for name, value in values.items() if value is not None}
    settings = gather(stored, os.environ, given | {"run_dir": str(run), "resume": at})
    config = settings.build()
    if num_workers is None and hosts is None and hostfile is None:
        num_workers = _workers_before(run)
    plan = launch_plan(num_workers, hosts, hostfile, launcher, output, config.engine.threads, restarts, min_workers)
    return start_or_execute(config, settings.remarks, plan, json=json, verbose=verbose)


def _workers_before(run: Path) -> int | None:
    """How many workers the run had, if they can be started here again; None: this process alone, or its launcher's."""
    from ringlet.checkpoint import CheckpointStore
    from ringlet.cli import display
    from ringlet.comm import environments
    from ringlet.training.run_directory import RunDirectory

    if environments.detect() is not None:
        return None
    training = CheckpointStore(RunDirectory.existing(run).checkpoints).last_training()
    counts = training.get("num_workers"), training.get("num_machines", 1)
    if not all(type(count) is int and 1 <= count <= 65_536 for count in counts) or counts[0] == 1:
        return None
    if counts[1] != 1:
        display.note(
            f"the run had {counts[0]} workers on {counts[1]} machines: give --hosts or --hostfile to have them"
        )
        return None
    display.note(f"resuming with {counts[0]} workers, as before; -n changes that")
    return counts[0]


def command() -> Any:
    """The command for the root group."""
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command("resume", cls=RunCommand)(with_run_options(resume))
    return typer.main.get_command(app)
