"""``ringlet tune``: which learning rate, which options? A range test, and a search that can be interrupted."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringlet.cli.launching import HostFile, Hosts, Launcher, NumWorkers, launch_plan, start_workers
from ringlet.cli.options import RunCommand, one_file, with_run_options
from ringlet.errors import EXIT_FAILED, EXIT_OK, InterruptedRunError
from ringlet.output_streams import outlive_output

if TYPE_CHECKING:
    from ringlet.config import RunConfig
    from ringlet.tuning.directory import TuneDirectory
    from ringlet.tuning.range_test import Findings
    from ringlet.tuning.runner import TrialProgress

EXAMPLES = (
    ("ringlet tune lr --model resnet20 --dataset cifar10 --optimizer sgd", "which learning rate? One short training"),
    (
        'ringlet tune search --space "learning_rate=log(1e-4,1e-1)" --space optimizer=sgd,adam --num-epochs 9',
        "successive halving",
    ),
    (
        "ringlet tune search run.toml --space 'model.width=8,16,32' --trials 3 --method random --tune-dir widths",
        "every width once or more, to the end",
    ),
    ("ringlet tune resume tunings/night", "continue a search, or report it again"),
)
File = Annotated[Path | None, typer.Argument(metavar="FILE", help="TOML file with options of the run")]
Json = Annotated[bool, typer.Option("--json", help="Print the results as one JSON document on stdout")]
TuneDir = Annotated[
    Path | None, typer.Option("--tune-dir", metavar="DIR", help="default: tunings/<kind>-<network>-<time>")
]


def lr(
    ctx: typer.Context,
    file: File = None,
    *,
    start: Annotated[float, typer.Option("--from", metavar="NUMBER", help="first rate (default: 1e-6)")] = 1e-6,
    end: Annotated[float, typer.Option("--to", metavar="NUMBER", help="last rate (default: 10)")] = 10.0,
    steps: Annotated[int, typer.Option("--steps", metavar="INT", help="steps in between (default: 100)")] = 100,
    num_workers: NumWorkers = None,
    hosts: Hosts = None,
    hostfile: HostFile = None,
    launcher: Launcher = "auto",
    tune_dir: TuneDir = None,
    json: Json = False,
    **values: Any,
) -> int:
    """Find a learning rate by a range test: train a few steps with an ever larger rate.

    Writes the losses as JSON and as a picture, and best.toml, a configuration with the suggested rate. Options are
    those of `ringlet train`; nothing of what is learned is kept.
    """
    from ringlet.tuning.options import check_given

    outlive_output()
    given = {name: value for name, value in values.items() if value is not None}
    check_given(given)
    config = _gathered(file, given).build()
    plan = launch_plan(num_workers, hosts, hostfile, launcher, threads=config.engine.threads)
    exit_code = start_workers(ctx.obj, plan)
    if exit_code is not None:
        return exit_code
    return _test_rates(config, start, end, steps, tune_dir, json=json)


def _test_rates(config: RunConfig, start: float, end: float, steps: int, folder: Path | None, *, json: bool) -> int:
    from ringlet.cli import display
    from ringlet.comm import world
    from ringlet.training.devices import join_workers
    from ringlet.tuning.directory import default_path
    from ringlet.tuning.range_test import range_test, write_findings

    comm = join_workers(config)
    if comm.rank == 0:
        display.heading(f"**** Range test of {config.model.network}: {steps} steps from {start:g} to {end:g}")
    found = range_test(config, start=start, end=end, steps=steps, communicator=comm)
    if world.is_initialized() and comm.rank != 0:
        return EXIT_OK
    written = write_findings(folder or default_path("lr", config.model.network), config, found)
    if json:
        display.print_json({**found.to_dict(), "files": [str(path) for path in written]})
    else:
        _print_rates(found, written)
    return EXIT_OK if found.suggestion is not None else EXIT_FAILED


def _print_rates(found: Findings, written: list[Path]) -> None:
    from ringlet.cli import display

    display.note(f"{len(found.rates)} steps: {found.ended}")
    if found.suggestion is None:
        print("No suggestion: the loss did not fall. Give another range (--from, --to), or more steps (--steps)")
    else:
        print(f"Suggested learning rate: {found.suggestion:g} (the loss falls fastest; lowest at {found.lowest:g})")
    display.note(f"written: {', '.join(map(str, written))}")


def search(
    file: File = None,
    *,
    space: Annotated[
        list[str] | None,
        typer.Option(
            "--space",
            metavar="OPTION=VALUES",
            help="an option and its values: log(1e-4,1e-1), uniform(0,0.5), int(1,8) or a,b,c; may be repeated",
        ),
    ] = None,
    trials: Annotated[int, typer.Option("--trials", metavar="INT", help="configurations to try (default: 20)")] = 20,
    method: Annotated[
        str,
        typer.Option("--method", metavar="NAME", help="random, halving (default; halving:4 keeps a quarter), optuna"),
    ] = "halving",
    metric: Annotated[
        str, typer.Option("--metric", metavar="NAME", help="what counts, such as accuracy (default: validation loss)")
    ] = "",
    parallel: Annotated[
        int, typer.Option("--parallel", metavar="INT", help="trials side by side (default: as the cores allow)")
    ] = 0,
    num_workers: NumWorkers = None,
    hosts: Hosts = None,
    launcher: Launcher = "auto",
    keep_models: Annotated[bool, typer.Option("--keep-models", help="keep the networks of all trials")] = False,
    tune_dir: TuneDir = None,
    json: Json = False,
    **values: Any,
) -> int:
    """Search for the options with which a network learns best.

    Trials are drawn from the space; halving trains all for a few epochs, the best third longer, and so on, each
    resuming its run exactly. Trials are a function of --seed alone. Gives a table, report.html, results.json and
    best.toml for `ringlet train`. Trials that diverge are recorded. The same command on the same --tune-dir continues
    an interrupted search. Options of `ringlet train` apply to all trials; --num-epochs is the length of the longest.
    """
    from ringlet.cli import display
    from ringlet.tuning.directory import create_search, default_path
    from ringlet.tuning.methods.base import METHODS
    from ringlet.tuning.options import SearchOptions, check_given, prepare
    from ringlet.tuning.space import split_assignments

    outlive_output()
    given = {name: value for name, value in values.items() if value is not None}
    check_given(given)
    options = SearchOptions(
        trials=trials,
        method=METHODS.parse(method),
        metric=metric,
        parallel=parallel,
        workers=num_workers or 1,
        keep_models=keep_models,
        launcher=launcher,
        hosts=hosts or "",
    )
    settings = _gathered(file, given)
    found, remarks = prepare(options, split_assignments(space or ()), settings.given)
    for remark in (*settings.remarks, *remarks):
        display.note(remark)
    return _run(create_search(tune_dir or default_path("search", found.base.model.network), found), json=json)


def resume(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="the directory of a search")],
    *,
    json: Json = False,
) -> int:
    """Continue an interrupted search, or report a finished one again."""
    from ringlet.tuning.directory import open_search

    outlive_output()
    return _run(open_search(directory), json=json)


def _gathered(file: Path | None, given: dict[str, Any]) -> Any:
    from ringlet.config import gather

    return gather(one_file(file, None), os.environ, given)


def _run(opened: TuneDirectory, *, json: bool) -> int:
    """Train what is missing and report."""
    from ringlet.cli import display
    from ringlet.tuning.report import write_report
    from ringlet.tuning.runner import run_search

    found, method = opened.search, opened.search.options.method
    side = "" if found.parallel == 1 else f", {found.parallel} side by side"
    display.heading(f"**** Search {opened.path}: {method.describe(found.question)}{side}")
    finished = run_search(opened, partial(_show, found.metric))
    document = write_report(opened)
    if not finished:
        raise InterruptedRunError(
            f"{len(document['trials'])} trials have results. To continue: ringlet tune resume {opened.path}"
        )
    if json:
        display.print_json(document)
    else:
        _print_search(opened)
    return EXIT_OK if document["best"] is not None else EXIT_FAILED


def _show(metric: str, step: TrialProgress) -> None:
    """One line on stderr for every job that has ended."""
    from ringlet.cli import display
    from ringlet.study.tables import metric_text
    from ringlet.tuning.summary import value_text

    record = step.record
    values = ", ".join(f"{name} {value_text(value)}" for name, value in record.values.items())
    epochs = f"{record.epochs} epoch{'s' if record.epochs > 1 else ''}"
    outcome = record.reason if record.value is None else f"{metric} {metric_text(metric, record.value)}"
    is_best = step.best is not None and step.best.trial == record.trial
    best = (
        "" if step.best is None else ", the best so far" if is_best else f"; the best so far is trial {step.best.trial}"
    )
    left = f"; about {display.duration(step.seconds_left)} left" if step.epochs_done < step.epochs_total else ""
    line = f"[{step.epochs_done}/{step.epochs_total} epochs] trial {record.trial} ({values}), {epochs}: {outcome}"
    display.errors_console().print(display.clean(f"{line}{best}{left}"), soft_wrap=True)


def _print_search(opened: TuneDirectory) -> None:
    """The table and the best trial on stdout, the names of files on stderr."""
    from ringlet.bench.plotting import can_draw
    from ringlet.cli import display
    from ringlet.tuning.directory import BEST, REPORT
    from ringlet.tuning.report import NO_PLOTS, best_text
    from ringlet.tuning.summary import best_record, ranked, trials_table

    found, records = opened.search, list(opened.records().values())
    table, best = trials_table(found, records), best_record(found, records)
    console = display.results_console()
    console.print(display.table(table.columns, table.rows))
    failed = sum(record.value is None for record in ranked(found, records))
    console.print(display.clean(best_text(found, best, failed)), soft_wrap=True)
    if best is not None:
        workers = "" if found.options.workers == 1 else f" -n {found.options.workers}"
        display.note(f"to train it: ringlet train {opened.path / BEST}{workers}")
    if not can_draw():
        display.note(NO_PLOTS.replace("DIR", str(opened.path)))
    display.note(f"report: {opened.path / REPORT}")


def _is_offered(name: str) -> bool:
    """Whether an option of a run applies to all trials."""
    return name not in ("run_dir", "resume")


def command() -> Any:
    """The command for the root group."""
    app = typer.Typer(
        rich_markup_mode=None, add_completion=False, no_args_is_help=True, help="Find good options: see each command."
    )
    app.command("lr", cls=RunCommand)(with_run_options(lr, _is_offered))
    app.command("search", cls=RunCommand)(with_run_options(search, _is_offered))
    app.command("resume")(resume)
    return typer.main.get_command(app)
