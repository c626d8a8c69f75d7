"""``ringlet study``: run a grid of trainings, then say whether another worker, engine or strategy pays off."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringlet.cli.launching import Hosts, Launcher
from ringlet.cli.options import COMMON, RunCommand, with_run_options
from ringlet.errors import EXIT_FAILED, EXIT_OK, InterruptedRunError, UsageError
from ringlet.output_streams import outlive_output

if TYPE_CHECKING:
    from ringlet.study.directory import StudyDirectory
    from ringlet.study.runner import RunProgress
    from ringlet.study.summary import Summary
    from ringlet.study.tables import TextTable

EXAMPLES = (
    ("ringlet study --model simplecnn --dataset mnist -n 1,2", "does the second worker pay?"),
    ("ringlet study --model simplecnn,vgg16_bn --dataset cifar10 --engine native,torch", "engine against engine"),
    (
        "ringlet study --model unet --dataset shapes -n 1,2 --scaling weak --distribution both",
        "with and without shares",
    ),
    ("ringlet study studies/night", "go on with a study, or report it again"),
)
_Text = str | None


def study(
    target: Annotated[
        Path | None, typer.Argument(metavar="[FILE.toml|DIR]", help="a study to run, or one to go on with")
    ] = None,
    *,
    model: Annotated[_Text, typer.Option("--model", metavar="NAME,…", help="networks, also NAME@DATASET")] = None,
    workers: Annotated[
        _Text, typer.Option("-n", "--workers", metavar="N,N,…", help="numbers of workers (default: 1, 2, 4 … cores)")
    ] = None,
    engine: Annotated[
        _Text, typer.Option("--engine", metavar="NAME,…", help="native, torch, keras, keras:jax … (default: native)")
    ] = None,
    strategy: Annotated[
        _Text,
        typer.Option("--strategy", metavar="NAME,…", help="how workers agree: sync, average:10 … (default: sync)"),
    ] = None,
    batch: Annotated[
        _Text, typer.Option("--batch", metavar="N,N,…", help="batch sizes (default: 64; masks: 8)")
    ] = None,
    scaling: Annotated[
        _Text, typer.Option("--scaling", metavar="strong|weak", help="the batch is that of all workers, or of each")
    ] = None,
    distribution: Annotated[
        _Text, typer.Option("--distribution", metavar="on|off|both", help="share the data out, or all data to each")
    ] = None,
    repeats: Annotated[_Text, typer.Option("--repeats", metavar="INT", help="runs of every cell (default: 3)")] = None,
    epochs: Annotated[_Text, typer.Option("--epochs", metavar="INT", help="epochs of a run (default: 2)")] = None,
    steps: Annotated[
        _Text, typer.Option("--steps", metavar="auto|all|INT", help="steps of an epoch (default: auto, by arithmetic)")
    ] = None,
    target_metric: Annotated[
        _Text, typer.Option("--target", metavar="METRIC=VALUE", help="report the time to it, such as dice=90%")
    ] = None,
    target_accuracy: Annotated[
        float | None, typer.Option("--target-accuracy", metavar="NUMBER", help="the same as --target accuracy=NUMBER")
    ] = None,
    all_cores: Annotated[
        bool | None, typer.Option("--all-cores", help="divide all cores among the workers of each cell")
    ] = None,
    keep_models: Annotated[bool | None, typer.Option("--keep-models", help="keep the networks of all runs")] = None,
    launcher: Launcher = "auto",
    hosts: Hosts = None,
    study_dir: Annotated[
        Path | None, typer.Option("--study-dir", metavar="DIR", help="default: studies/<networks>-<time>")
    ] = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="run failed cells of DIR again")] = False,
    by_epoch: Annotated[bool, typer.Option("--by-epoch", help="also print every epoch's time and metrics")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the results as one JSON document on stdout")] = False,
    **values: Any,
) -> int:
    """Run a grid of trainings and report whether another worker pays off.

    Every combination of networks, engines, strategies, batches and workers is trained in turn, repeated, and compared:
    a table here, and study.json, report.html and plots in the study's directory. A study that was interrupted goes on
    with `ringlet study DIR`. FILE.toml holds the same names as options. Options of `ringlet train` apply to all runs.
    """
    from ringlet.study.report import collect, write_report

    outlive_output()
    own: dict[str, Any] = {"model": model, "workers": workers, "engine": engine, "strategy": strategy, "batch": batch}
    own |= {"scaling": scaling, "distribution": distribution, "repeats": repeats, "epochs": epochs, "steps": steps}
    own |= {"target": _target(target_metric, target_accuracy), "all_cores": all_cores, "keep_models": keep_models}
    own |= {"launcher": None if launcher == "auto" else launcher, "hosts": hosts}
    given = {name: value for name, value in {**own, **values}.items() if value is not None}
    opened = _open(target, study_dir, given)
    finished = _run(opened, retry_failed=retry_failed)
    summary = collect(opened)
    document = write_report(opened, summary)
    if not finished:
        raise InterruptedRunError(_interruption(opened))
    if json:
        from ringlet.cli import display

        display.print_json(document)
    else:
        _print(opened, summary, by_epoch=by_epoch)
    return EXIT_FAILED if any(row.failures for row in summary.rows) else EXIT_OK


def _target(metric: str | None, accuracy: float | None) -> str | None:
    if metric is not None and accuracy is not None:
        raise UsageError("--target and --target-accuracy exclude each other: give one of them")
    return metric if accuracy is None else f"accuracy={accuracy}"


def _open(target: Path | None, study_dir: Path | None, given: dict[str, Any]) -> StudyDirectory:
    """The study of a directory, or a new one from a file and options."""
    from ringlet.cli import display
    from ringlet.study.design import prepare
    from ringlet.study.directory import create_study, default_path, is_study, open_study
    from ringlet.study.options import read_options

    if target is not None and (target.is_dir() or target.suffix != ".toml"):
        if given or study_dir is not None:
            raise UsageError(
                f"'{target}' is a study that has its options: leave out {_flags(given, study_dir)}, or begin another"
            )
        return open_study(target)
    if study_dir is not None and is_study(study_dir):
        raise UsageError(f"'{study_dir}' holds a study already. To go on with it: ringlet study {study_dir}")
    options, remarks = read_options(target, os.environ, given)
    design, more = prepare(options)
    for remark in (*remarks, *more):
        display.note(remark)
    return create_study(study_dir or default_path(options.model), design)


def _flags(given: dict[str, Any], study_dir: Path | None) -> str:
    names = [*given, *(["study_dir"] if study_dir is not None else [])]
    return ", ".join(f"--{name.replace('_', '-')}" for name in names)


def _run(opened: StudyDirectory, *, retry_failed: bool) -> bool:
    from ringlet.cli import display
    from ringlet.study.runner import run_study

    options, cells = opened.design.options, opened.design.cells
    repeats = f"{options.repeats} repeat{'s' if options.repeats > 1 else ''}"
    runs = f"{len(cells)} cells, {repeats}: {len(cells) * options.repeats} runs"
    display.heading(f"**** Study {opened.path}: {runs}")
    return run_study(opened, _show, retry_failed=retry_failed)


def _show(step: RunProgress) -> None:
    """One line on stderr for every run that has ended."""
    from ringlet.cli import display
    from ringlet.study.verdicts import word

    if step.record is None:
        return
    cell = step.place.cell
    words = [cell.model, *(word(cell, name) for name in ("engine", "strategy", "batch", "workers"))]
    words += [] if cell.distribution else [word(cell, "distribution")]
    where = f"[{step.number}/{step.total}] {', '.join(words)}, repeat {step.place.repeat}"
    left = f", about {display.duration(step.seconds_left)} left" if step.seconds_left else ""
    display.errors_console().print(
        display.clean(f"{where}: {_outcome(step.record)} ({step.record['seconds']:.0f} s{left})"), soft_wrap=True
    )


def _outcome(record: Any) -> str:
    if record["status"] == "failed":
        return f"failed, {record['reason']}"
    epoch = record["measurement"]["epochs"][-1]
    return f"{epoch['seconds']:.3g} s per epoch, {epoch['num_samples'] / max(epoch['seconds'], 1e-9):,.0f} samples/s"


def _interruption(opened: StudyDirectory) -> str:
    from ringlet.study.runner import missing_runs

    total = len(opened.design.cells) * opened.design.options.repeats
    done = total - len(missing_runs(opened))
    return f"{done} of {total} runs are done and kept. To go on: ringlet study {opened.path}"


def _print(opened: StudyDirectory, summary: Summary, *, by_epoch: bool) -> None:
    """Tables and verdicts on stdout, the names of files on stderr."""
    from ringlet.bench.plotting import can_draw
    from ringlet.cli import display
    from ringlet.study import tables
    from ringlet.study.report import NO_PLOTS
    from ringlet.study.verdicts import all_verdicts

    console = display.results_console()
    console.print(display.clean(tables.common_text(summary)), soft_wrap=True)
    shown = [tables.results_table(summary), tables.epochs_table(summary) if by_epoch else None]
    for table in (*shown, tables.failures_table(summary)):
        if table is not None:
            _print_table(table)
    for verdict in all_verdicts(summary):
        console.print(display.clean(f"{verdict.context}: {verdict.sentence}"), soft_wrap=True)
    if not can_draw():
        display.note(NO_PLOTS.replace("DIR", str(opened.path)))
    display.note(f"report: {opened.path / 'report.html'}")


def _print_table(table: TextTable) -> None:
    from ringlet.cli import display

    display.results_console().print(display.table(table.columns, table.rows))


def _is_offered(name: str) -> bool:
    """Whether an option of a run applies to all runs of a study."""
    if name in COMMON:
        return name in ("dataset", "image_size", "optimizer", "learning_rate", "schedule", "shards", "seed")
    from ringlet.study.options import is_set_by_study

    return not is_set_by_study(name)


def command() -> Any:
    """The command for the root group."""
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command("study", cls=RunCommand)(with_run_options(study, _is_offered))
    return typer.main.get_command(app)
