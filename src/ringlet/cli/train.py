"""``ringlet train``: the layer table, all parameters, live progress, then time, throughput and test figures."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringlet.cli.options import RunCommand, with_run_options

if TYPE_CHECKING:
    from ringlet.config import RunConfig
    from ringlet.training.run import Run, RunResult


def train(
    *,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="TOML file with options; see config.toml of any run")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the results as one JSON document on stdout")] = False,
    **values: Any,
) -> None:
    """Train a network and write its run directory.

    Without options a small network learns the built-in digits within seconds. Values come from, later ones winning:
    defaults, the file of --config, environment variables RINGLET_<OPTION>, options. Dashes and underscores in names are
    the same.
    """
    from ringlet.cli import display
    from ringlet.config import gather

    given = {name: value for name, value in values.items() if value is not None}
    settings = gather(config, os.environ, given)
    run_config = settings.build()
    run = _prepare(run_config)
    for remark in (*settings.remarks, *run.remarks):
        display.note(remark)
    _describe(run, run_config)
    result = _execute(run)
    if json:
        display.print_json(result.to_dict())
    else:
        _print_result(result)


def _prepare(config: RunConfig) -> Run:
    """Import the heavy parts, then check all input."""
    from ringlet.training.run import Run

    return Run(config)


def _describe(run: Run, config: RunConfig) -> None:
    """The network and all parameters of the run, on stderr."""
    from ringlet.cli import display
    from ringlet.cli.layers import layer_table

    trainer, console = run.trainer, display.errors_console()
    display.heading(f"**** Model {trainer.spec.name}: {trainer.spec.num_parameters:,} parameters")
    console.print(layer_table(trainer.spec))
    display.heading("**** Parameters:")
    shown = {**config.to_dict(), "learning_rate": trainer.optimizer.learning_rate, "loss_func": trainer.loss}
    shown |= {"metrics": trainer.metrics, "kernels": trainer.replica.kernels.name}
    console.print(display.pairs({name: _value(shown[name]) for name in config.names() if name in shown}))
    sizes = {name: getattr(trainer.dataset, name) for name in ("train", "validation", "test")}
    counts = ", ".join(f"{len(source):,} {name}" for name, source in sizes.items() if source is not None)
    display.heading(f"**** Data set {trainer.dataset.name}: {counts} samples of shape {trainer.dataset.input_shape}")


def _value(value: object) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    if isinstance(value, dict):
        return ",".join(f"{name}={item}" for name, item in value.items())
    return str(value)


def _execute(run: Run) -> RunResult:
    from ringlet.cli import display
    from ringlet.cli.progress import create_display

    view = create_display(display.errors_console())
    try:
        return run.execute([view])
    finally:
        view.close()


def _print_result(result: RunResult) -> None:
    """The results, on stdout."""
    from ringlet.cli import display

    if result.run_dir is not None:
        print(f"Time: {result.seconds:.2f} s")
        print(f"Throughput: {result.samples_per_second:,.2f} samples/s")
        print(f"Model: {display.clean(result.model_file)}")
    if result.test is not None:
        print(f"Test: {display.short_figures(result.test, 'test_')}")


def command() -> Any:
    """The command for the root group."""
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command("train", cls=RunCommand)(with_run_options(train))
    return typer.main.get_command(app)
