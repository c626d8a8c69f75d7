"""``ringlet train``: the layer table, its options, live progress, then time, throughput and test metrics."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringlet.cli.launching import (
    HostFile,
    Hosts,
    Launcher,
    MinWorkers,
    NumWorkers,
    Output,
    Resolved,
    Restarts,
    Verbose,
    as_attempt,
    delivered,
    launch_plan,
    resolved_config,
    start_run,
)
from ringlet.cli.options import RunCommand, one_file, with_run_options
from ringlet.errors import EXIT_OK
from ringlet.output_streams import outlive_output

if TYPE_CHECKING:
    from ringlet.config import RunConfig
    from ringlet.launch import LaunchPlan
    from ringlet.models.spec import ModelSpec
    from ringlet.training.progress import RunResult
    from ringlet.training.session import Session

EXAMPLES = (
    ("ringlet train", "a small network on built-in digits, within seconds"),
    ("ringlet train run.toml --num-epochs 5", "options of a file (see ringlet init), one changed"),
    ("ringlet train --model resnet20 --dataset cifar10 --flip-images", "after: ringlet datasets fetch cifar10"),
    ("ringlet train --model unet --dataset masks:photos --image-size 128", "masks, from your own folders"),
    ("ringlet train -n 4 --shards 4 --restarts 3 --run-dir runs/night", "four workers; survives faults"),
    ("ringlet train --hosts node1:8,node2:8 --global-batch-size 1024", "two machines"),
)


def train(
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="TOML file with options")] = None,
    *,
    num_workers: NumWorkers = None,
    hosts: Hosts = None,
    hostfile: HostFile = None,
    launcher: Launcher = "auto",
    output: Output = "plain",
    restarts: Restarts = 0,
    min_workers: MinWorkers = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="the same; see `ringlet init`, and config.toml of any run"),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the results as one JSON document on stdout")] = False,
    verbose: Verbose = False,
    resolved: Resolved = None,
    **values: Any,
) -> int:
    """Train a network and write its run directory.

    Without options a small network learns the built-in digits within seconds; -n 2 lets two workers learn together.
    Values come from, later ones winning:
    defaults, the file, environment variables RINGLET_<OPTION>, options. Dashes and underscores in names are
    the same.
    """
    from ringlet.config import gather

    outlive_output()
    given = {name: value for name, value in values.items() if value is not None}
    if resolved is not None:
        return execute(resolved_config(resolved, given), (), json=json, verbose=verbose)
    settings = gather(one_file(file, config), os.environ, given)
    run_config = settings.build()
    threads = run_config.engine.threads
    plan = launch_plan(num_workers, hosts, hostfile, launcher, output, threads, restarts, min_workers)
    return start_or_execute(run_config, settings.remarks, plan, json=json, verbose=verbose)


def start_or_execute(
    config: RunConfig, remarks: Sequence[str], plan: LaunchPlan | None, *, json: bool, verbose: bool = False
) -> int:
    """Start the workers of the plan and stay with them, or do the run as the worker that this process is."""
    from ringlet.cli import display
    from ringlet.launch import must_start

    if plan is None or not must_start(plan):
        return execute(config, remarks, json=json, verbose=verbose)
    for remark in remarks:
        display.note(remark)
    return delivered(start_run(config, plan, json=json, verbose=verbose), json=json)


def execute(config: RunConfig, remarks: Sequence[str], *, json: bool, verbose: bool = False) -> int:
    """Do the run as one of its workers; the leader tells what happens."""
    from ringlet.cli import display
    from ringlet.training.display import create_display
    from ringlet.training.session import Session

    for tracker in config.trackers:
        tracker.check_library()
    session = Session.open(as_attempt(config), say=display.note)
    if not session.is_leader:
        session.run()
        return EXIT_OK
    for remark in (*remarks, *session.remarks):
        display.note(remark)
    _describe(session, verbose=verbose)
    with closing(create_display(display.errors_console())) as view:
        result = session.run([view], lambda folder: [tracker.build(folder) for tracker in config.trackers])
    for remark in session.strategy.remarks:
        display.note(remark)
    if result.profile is not None:
        _print_profile(result.profile)
    if json:
        display.print_json(result.to_dict())
    else:
        _print_result(result)
    return EXIT_OK


def _describe(session: Session, *, verbose: bool) -> None:
    """The network and the options of the run, on stderr."""
    from ringlet.cli import display
    from ringlet.cli.display import layer_table
    from ringlet.models.spec import ModelSpec

    console, config, spec, dataset = display.errors_console(), session.config, session.spec, session.dataset
    display.heading(f"**** Model {spec.name}: {spec.num_parameters:,} parameters")
    if not isinstance(spec, ModelSpec):
        console.print("  a network of the program's own")
    elif verbose:
        console.print(layer_table(spec))
    else:
        console.print(f"  {_size_text(spec)}; --verbose shows the layers")
    shown = config.flat() if verbose else config.changed()
    shown = {path: value for path, value in shown.items() if not path.startswith("loss.")}  # "loss" tells them all
    shown |= {"optimizer.learning_rate": session.optimizer.learning_rate, "loss": session.loss}
    if verbose:
        shown |= {"metrics": session.metrics, "engine.kernels": session.kernels.name}
        shown |= {"engine.device": session.device}
    order = list(config.flat())
    paths = sorted(shown, key=lambda path: order.index(path) if path in order else len(order))
    display.heading("**** Options:" if verbose else "**** Options (defaults left out, --verbose shows all):")
    console.print(display.pairs({path: display.plain_value(shown[path]) for path in paths}))
    sizes = {name: getattr(dataset, name) for name in ("train", "validation", "test")}
    display.heading(_workers_line(session))
    counts = ", ".join(f"{len(source):,} {name}" for name, source in sizes.items() if source is not None)
    display.heading(f"**** Data set {dataset.name}: {counts} samples of shape {dataset.input_shape}")


def _size_text(spec: ModelSpec) -> str:
    """``12 layers, 1.9 MFLOP to train on a sample``."""
    flops = spec.training_flops
    amount = f"{flops / 1e9:,.1f} GFLOP" if flops >= 1e9 else f"{flops / 1e6:,.1f} MFLOP"
    return f"{len(spec.nodes) - 1} layers, {amount} to train on a sample"


def _workers_line(session: Session) -> str:
    """``**** Workers: 4 on 2 machines (mpi), global batch of 256 samples in 4 shards``."""
    comm = session.comm
    machines = "" if len(comm.local_sizes) == 1 else f" on {len(comm.local_sizes)} machines"
    kind = "" if comm.size == 1 else f" ({comm.name})"
    shards = "" if session.num_shards == 1 else f" in {session.num_shards} shards"
    return f"**** Workers: {comm.size}{machines}{kind}, global batch of {session.global_batch_size} samples{shards}"


def _print_profile(profile: Sequence[Mapping[str, float]]) -> None:
    """Seconds and shares of every phase, one row per worker, on stderr."""
    from ringlet.cli import display

    phases = [phase for phase in profile[0] if any(own[phase] > 0 for own in profile)]
    rows = []
    for rank, own in enumerate(profile):
        total = max(sum(own.values()), 1e-9)
        rows.append([rank, *(f"{own[phase]:.2f} s, {100 * own[phase] / total:.0f}%" for phase in phases)])
    display.heading("**** Where the time went:")
    display.errors_console().print(display.table(["rank", *phases], rows))


def _print_result(result: RunResult) -> None:
    """The results, on stdout, in one piece: a remark on stderr does not come between them."""
    from ringlet.cli import display

    lines = []
    if result.run_dir is not None:
        lines.append(f"Time: {result.seconds:.2f} s")
        lines.append(f"Throughput: {result.samples_per_second:,.2f} samples/s")
        lines.append(f"Model: {display.clean(result.model_file)}")
    if result.best is not None:
        lines.append(f"Best: {display.best_epoch(**result.best)}")
    if result.test is not None:
        lines.append(f"Test: {display.short_metrics(result.test, 'test_')}")
    if lines:
        print("\n".join(lines))


def command() -> Any:
    """The command for the root group."""
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command("train", cls=RunCommand)(with_run_options(train))
    return typer.main.get_command(app)
