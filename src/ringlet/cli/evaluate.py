"""``ringlet evaluate``: loss, metrics and a detailed report of a trained model on test data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringlet.cli import completers
from ringlet.cli.launching import Launcher, NumWorkers, launch_plan, start_workers
from ringlet.errors import EXIT_OK

if TYPE_CHECKING:
    from ringlet.comm.contract import Communicator
    from ringlet.evaluation import Report
    from ringlet.training.evaluation_data import Selection
    from ringlet.training.loaded_model import LoadedModel

EXAMPLES = (
    ("ringlet evaluate runs/night", "on the test data of its data set"),
    ("ringlet evaluate runs/night --on validation", "on the data that it was validated on"),
    ("ringlet evaluate runs/night --on photos/new", "on other files, in the same form"),
    ("ringlet evaluate runs/night --tta flip --report answers", "averaged over flips; tables and pictures to a folder"),
    ("ringlet evaluate model.safetensors --dataset mnist --dataset-path data/mnist", "on other data"),
)


def evaluate(
    ctx: typer.Context,
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="model file (.safetensors) or run directory")],
    on: Annotated[
        str | None,
        typer.Option(
            "--on",
            metavar="test|validation|train|PATH",
            help="which samples; default: test, or validation where there are no test data",
        ),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            "--dataset",
            autocompletion=completers.datasets,
            help="data set; default: the one it was trained on",
        ),
    ] = None,
    dataset_path: Annotated[str | None, typer.Option("--dataset-path", help="folder or file of the data set")] = None,
    dataset_test_path: Annotated[
        str | None, typer.Option("--dataset-test-path", help="folder of the test data")
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report",
            metavar="DIR",
            help="folder for report.json, tables and pictures; default: 'evaluation' in the run directory",
        ),
    ] = None,
    classes: Annotated[
        int, typer.Option("--classes", metavar="INT", help="classes to show; of more the weakest; 0: all", min=0)
    ] = 30,
    examples: Annotated[
        int, typer.Option("--examples", metavar="INT", help="samples of each kind in pictures", min=0, max=1000)
    ] = 16,
    tta: Annotated[
        str | None,
        typer.Option("--tta", metavar="flip|flips|shift", help="average the outputs over flipped or moved images"),
    ] = None,
    batch_size: Annotated[int, typer.Option("--batch-size", help="samples at a time", min=1)] = 64,
    threads: Annotated[
        int | None, typer.Option("--threads", help="of each worker; default: the cores, shared by all", min=1, max=4096)
    ] = None,
    kernels: Annotated[str | None, typer.Option("--kernels", metavar="compiled|reference")] = None,
    num_workers: NumWorkers = None,
    launcher: Launcher = "auto",
    json: Annotated[bool, typer.Option("--json", help="Print the results as one JSON document on stdout")] = False,
) -> int:
    """Evaluate a trained model on test data, or on others.

    Beside loss and metrics: precision, recall and F1 of every class (of masks: IoU and dice), which classes are
    confused, calibration, and the samples that went most wrong. With -n each worker takes its share; the numbers stay
    the same.
    """
    from time import perf_counter

    from ringlet.cli import display
    from ringlet.comm import world
    from ringlet.launch.resources import usable_cores
    from ringlet.training.devices import blas_threads
    from ringlet.training.evaluation_data import select_source
    from ringlet.training.loaded_model import load_model

    exit_code = start_workers(ctx.obj, launch_plan(num_workers, None, None, launcher, threads=threads))
    if exit_code is not None:
        return exit_code
    comm = world.communicator()
    if threads is None and comm.local_size > 1:
        threads = max(1, usable_cores() // comm.local_size)
    loaded = load_model(model, batch_size=batch_size, kernels=kernels, threads=threads)
    chosen = select_source(model, loaded, on, dataset=dataset, path=dataset_path, test_path=dataset_test_path)
    start = perf_counter()
    with blas_threads(threads):
        found = _evaluate(loaded, chosen, tta, examples, comm)
    if comm.rank == 0:
        folder = _keep(found, model, report)
        about = {"model": str(model), "network": loaded.spec.name, "on": chosen.name}
        if loaded.best is not None:
            about["best"] = display.best_epoch(loaded.best.epoch, loaded.best.metric, loaded.best.value)
        _tell(found, about, perf_counter() - start, folder, num_classes=classes, json=json)
    return EXIT_OK


_PREFIXES = {"test": "test_", "validation": "val_"}


def _evaluate(model: LoadedModel, chosen: Selection, tta: str | None, num_examples: int, comm: Communicator) -> Report:
    """The report, the same on all workers; rank 0 shows how far it is."""
    from ringlet.cli import display
    from ringlet.cli.progress import Counter

    about: dict[str, Any] = {
        "split": chosen.part,
        "name": chosen.dataset,
        "tta": tta,
        "num_examples": num_examples,
        "communicator": comm,
    }
    if comm.rank != 0:
        return model.report(chosen.source, **about)
    label = "Evaluating" if comm.size == 1 else f"Evaluating (rank 0 of {comm.size})"
    with Counter(display.errors_console(), label, -(-len(chosen.source) // comm.size), "samples") as progress:
        return model.report(chosen.source, **about, progress=progress)


def _keep(found: Report, model: Path, folder: Path | None) -> Path | None:
    """Write the report to the folder asked for, else into the run directory if that can be written."""
    from ringlet.cli import display
    from ringlet.errors import RingletError
    from ringlet.training.run_directory import CONFIG, EVALUATION

    if folder is not None:
        found.write(folder)
        return folder
    if not (model / CONFIG).is_file():
        return None
    try:
        found.write(model / EVALUATION)
    except RingletError as error:
        display.note(f"the report is not kept in the run directory: {error}")
        return None
    return model / EVALUATION


def _tell(
    found: Report, about: dict[str, Any], seconds: float, folder: Path | None, *, num_classes: int, json: bool
) -> None:
    from ringlet.cli import display
    from ringlet.cli.answers import report_parts

    if json:
        counts = {"dataset": found.dataset, "num_samples": found.num_samples, "seconds": seconds}
        written = {"report_folder": None if folder is None else str(folder)}
        document = found.to_dict()
        display.print_json({**about, **counts, **written, found.split: document["metrics"], "report": document})
        return
    means = "" if found.tta is None else f", outputs averaged ({found.tta})"
    network, dataset = display.clean(about["network"]), display.clean(found.dataset)
    if "best" in about:
        network += f" (best: {display.clean(about['best'])})"
    display.note(f"{network} on {found.num_samples:,} {found.split} samples of {dataset}{means}")
    metrics = display.short_metrics(found.metrics, _PREFIXES.get(found.split, ""))
    print(f"{found.split.capitalize()}: {metrics}", flush=True)
    console = display.results_console()
    for part in report_parts(found, console.width, num_classes):
        console.print(part)
    if folder is not None:
        print(f"Report: {display.clean(folder)}")


def command() -> Any:
    """The command for the root group."""
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command("evaluate")(evaluate)
    return typer.main.get_command(app)
