"""``ringlet bench``: how fast workers exchange data, beside plain MPI, Gloo and DeepSpeed on the same workers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringlet.cli.launching import HostFile, Hosts, Launcher, NumWorkers, launch_plan, start_workers
from ringlet.errors import EXIT_OK, UnknownNameError

if TYPE_CHECKING:
    from ringlet.bench.measurement import Measurement
    from ringlet.comm.contract import Communicator

DEFAULT_WORKERS = 2
DEFAULT_SIZES = "1k,16k,256k,1M,4M,16M,64M"
EXAMPLES = (
    ("ringlet bench", "allreduce between two workers, beside MPI and Gloo"),
    ("ringlet bench -n 4 --collectives all --sizes 1k,1M --plot times.png", "all of them, drawn"),
)


def bench(
    ctx: typer.Context,
    *,
    num_workers: NumWorkers = None,
    hosts: Hosts = None,
    hostfile: HostFile = None,
    launcher: Launcher = "auto",
    collectives: Annotated[
        str, typer.Option("--collectives", metavar="NAME,…", help="which ones, or all (default: allreduce)")
    ] = "allreduce",
    sizes: Annotated[
        str, typer.Option("--sizes", metavar="SIZE,…", help=f"bytes, such as 1k,4M (default: {DEFAULT_SIZES})")
    ] = DEFAULT_SIZES,
    rounds: Annotated[int, typer.Option("--rounds", help="the median of so many counts", min=1, max=1000)] = 9,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="also draw times over sizes (.png, .svg or .pdf)")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the results as one JSON document on stdout")] = False,
) -> int:
    """Measure latency and bandwidth of collectives by size, beside MPI, Gloo and DeepSpeed where they are present.

    Contenders take turns on the same workers; without -n there are two. "shared arrays" is what synchronous training
    does: the data already lie in memory that all workers of a machine share. In brackets: how many times as long as
    Ringlet's collective.
    """
    from ringlet.bench.plotting import check_plot
    from ringlet.bench.report import parse_sizes

    chosen_sizes = parse_sizes(sizes)
    chosen = _collectives(collectives)
    if plot is not None:
        check_plot(plot)
    if num_workers is None and hosts is None and hostfile is None and not _joined():
        num_workers = DEFAULT_WORKERS
    plan = launch_plan(num_workers, hosts, hostfile, launcher)
    exit_code = start_workers(ctx.obj, plan, wants_mpi=True)
    if exit_code is not None:
        return exit_code
    _measure_and_report(chosen, chosen_sizes, rounds, plot, json)
    return EXIT_OK


def _joined() -> bool:
    from ringlet.comm.environments import detect

    return detect() is not None


def _collectives(text: str) -> list[str]:
    from ringlet.bench.measurement import known_collectives

    known = known_collectives()
    if text == "all":
        return known
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise UnknownNameError("collective", name, known)
    return names


def _measure_and_report(collectives: list[str], sizes: list[int], rounds: int, plot: Path | None, json: bool) -> None:
    from ringlet.bench.contenders import contenders
    from ringlet.bench.measurement import measure, takes_data
    from ringlet.comm import world

    comm = world.communicator()
    present = contenders(comm)
    measurements: list[Measurement] = []
    for collective in collectives:
        for size in sizes if takes_data(collective) else [0]:
            measurements += measure(comm, present, collective, size, rounds)
    for contender in present:
        contender.close()
    if comm.rank == 0:
        _report(comm, measurements, plot, json)


def _report(comm: Communicator, measurements: list[Measurement], plot: Path | None, json: bool) -> None:
    from ringlet.bench import report
    from ringlet.cli import display

    machines = len(comm.local_sizes)
    where = "one machine" if machines == 1 else f"{machines} machines"
    title = f"{comm.size} workers on {where} ({comm.name})"
    if plot is not None:
        report.plot(measurements, title).save(plot)
    if json:
        about = {"workers": comm.size, "machines": machines, "communicator": comm.name}
        display.print_json({**about, "measurements": [entry.to_dict() for entry in measurements]})
        return
    display.heading(f"**** {title}")
    display.results_console().print(display.table(*report.table_rows(measurements)))
    if plot is not None:
        display.note(f"plot: {plot}")


def command() -> Any:
    """The command for the root group."""
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command("bench")(bench)
    return typer.main.get_command(app)
