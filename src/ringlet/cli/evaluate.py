"""``ringlet evaluate``: loss and metrics of a trained model on test data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringlet.cli import completers

if TYPE_CHECKING:
    from ringlet.data import Dataset
    from ringlet.training.loaded_model import LoadedModel

EXAMPLES = (
    ("ringlet evaluate runs/night", "on the test data of its data set"),
    ("ringlet evaluate model.safetensors --dataset mnist --dataset-path data/mnist", "on other data"),
)


def evaluate(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="model file (.safetensors) or run directory")],
    dataset: Annotated[
        str | None,
        typer.Option(
            "--dataset",
            autocompletion=completers.datasets,
            help="data set with test data; default: the one it was trained on",
        ),
    ] = None,
    dataset_path: Annotated[str | None, typer.Option("--dataset-path", help="folder or file of the data set")] = None,
    dataset_test_path: Annotated[
        str | None, typer.Option("--dataset-test-path", help="folder of the test data")
    ] = None,
    batch_size: Annotated[int, typer.Option("--batch-size", help="samples at a time", min=1)] = 64,
    threads: Annotated[int | None, typer.Option("--threads", help="default: all cores", min=1, max=4096)] = None,
    kernels: Annotated[str | None, typer.Option("--kernels", metavar="compiled|reference")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the results as one JSON document on stdout")] = False,
) -> None:
    """Evaluate a trained model on test data."""
    from time import perf_counter

    from ringlet.cli import display
    from ringlet.training.devices import blas_threads
    from ringlet.training.loaded_model import load_model

    loaded = load_model(model, batch_size=batch_size, kernels=kernels, threads=threads)
    data = _load_data(loaded, dataset or loaded.dataset_name, dataset_path, dataset_test_path)
    start = perf_counter()
    with blas_threads(threads):
        metrics = loaded.evaluate(data)
    seconds = perf_counter() - start
    num_samples = 0 if data.test is None else len(data.test)
    if json:
        about = {"model": str(model), "network": loaded.spec.name, "dataset": data.name, "num_samples": num_samples}
        display.print_json({**about, "seconds": seconds, "test": metrics})
        return
    display.note(f"{display.clean(loaded.spec.name)} on {num_samples:,} test samples of {display.clean(data.name)}")
    print(f"Test: {display.short_metrics(metrics, 'test_')}")


def _load_data(model: LoadedModel, name: str, path: str | None, test_path: str | None) -> Dataset:
    from ringlet.errors import UsageError
    from ringlet.training.loaded_model import matching_dataset

    if not name:
        raise UsageError("the model file names no data set: give --dataset")
    return matching_dataset(model.spec, name, path=path, test_path=test_path)


def command() -> Any:
    """The command for the root group."""
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command("evaluate")(evaluate)
    return typer.main.get_command(app)
