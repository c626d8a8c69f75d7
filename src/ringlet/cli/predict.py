"""``ringlet predict``: classes or masks of image files, by a run, a model file or an export."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringlet.cli.launching import Launcher, NumWorkers, launch_plan, start_workers
from ringlet.errors import EXIT_FAILED, EXIT_OK, UsageError

if TYPE_CHECKING:
    from ringlet.comm.contract import Communicator
    from ringlet.inference.description import Description
    from ringlet.inference.inputs import Input
    from ringlet.inference.predictor import Predictor
    from ringlet.inference.scoring import Record
    from ringlet.launch.plan import LaunchPlan

MAX_ERRORS_SHOWN = 20
MAX_SHARES_SHOWN = 6
STDIN = "-"
EXAMPLES = (
    ("ringlet predict runs/night photo.png more/", "a file and a folder, as a table"),
    ("ringlet predict model.onnx photos/ --top-k 3 -o classes.csv", "the three best classes, into a file"),
    ("ringlet predict runs/unet photos/ --overlay -o masks", "masks, and pictures with the mask painted over"),
    ("ringlet predict runs/unet photos/ --csv shares.csv", "the share of every class in each picture"),
    ("ringlet predict runs/night @list.txt -n 2", "paths of a file, two workers"),
)


@dataclass(frozen=True)
class Request:
    """What the command line asks for."""

    model: Path
    inputs: tuple[str, ...]
    output: Path | None
    top_k: int
    overlay: bool
    threshold: float
    batch_size: int
    threads: int | None
    json: bool
    csv: Path | None = None
    tta: str | None = None


def predict(
    ctx: typer.Context,
    model: Annotated[
        Path,
        typer.Argument(metavar="MODEL", help="run directory, .safetensors, .xml, .onnx, .py or .keras of an export"),
    ],
    inputs: Annotated[
        list[str],
        typer.Argument(metavar="INPUTS", help="image files, folders, .npz files; @FILE or -: a list of paths"),
    ],
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="OUT",
            help="file for classes or shares (.csv, .json, .parquet), or folder for masks; default: a table",
        ),
    ] = None,
    csv: Annotated[
        Path | None,
        typer.Option(
            "--csv", metavar="FILE", help="also write the table: classes, or the share of each class in masks"
        ),
    ] = None,
    top_k: Annotated[
        int, typer.Option("--top-k", metavar="INT", help="so many classes with their probabilities", min=1, max=1000)
    ] = 1,
    overlay: Annotated[bool, typer.Option("--overlay", help="also write pictures with the mask painted over")] = False,
    threshold: Annotated[
        float, typer.Option("--threshold", metavar="NUMBER", help="probability from which a pixel counts as object")
    ] = 0.5,
    tta: Annotated[
        str | None,
        typer.Option("--tta", metavar="flip|flips|shift", help="average over flipped or moved images"),
    ] = None,
    batch_size: Annotated[
        int, typer.Option("--batch-size", metavar="INT", help="images at a time", min=1, max=65536)
    ] = 32,
    threads: Annotated[
        int | None, typer.Option("--threads", help="of each worker; default: the cores, shared by all", min=1, max=4096)
    ] = None,
    num_workers: NumWorkers = None,
    launcher: Launcher = "auto",
    json: Annotated[bool, typer.Option("--json", help="Print the results as one JSON document on stdout")] = False,
) -> int:
    """Predict classes or masks of images.

    Results come in the order of the inputs; folders are searched recursively, by name. Masks have the size of their
    image. An image that cannot be read is reported and skipped, and the exit code is 1. With -n each worker takes its
    share.
    """
    request = Request(model, tuple(inputs), output, top_k, overlay, threshold, batch_size, threads, json, csv, tta)
    plan = launch_plan(num_workers, None, None, launcher, threads=threads)
    with _readable_by_workers(ctx.obj, plan) as arguments:
        exit_code = start_workers(arguments, plan)
    return _work(request) if exit_code is None else exit_code


@contextmanager
def _readable_by_workers(arguments: Sequence[str], plan: LaunchPlan | None) -> Iterator[Sequence[str]]:
    """Workers have no terminal to read from: what stdin says goes to a file that they are given instead."""
    from ringlet.launch.plan import must_start

    if STDIN not in arguments or plan is None or not must_start(plan):
        yield arguments
        return
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8", errors="surrogateescape") as file:
        file.write("\n".join(_stdin_lines()) + "\n")
        file.flush()
        yield [f"@{file.name}" if argument == STDIN else argument for argument in arguments]


def _stdin_lines() -> list[str]:
    if sys.stdin.isatty():
        raise UsageError("'-' reads a list of paths from stdin, and nothing is piped there: find … | ringlet predict …")
    return [line.rstrip("\r\n") for line in sys.stdin]


def _work(request: Request) -> int:
    """Predict as one of the workers; rank 0 tells and writes."""
    from time import perf_counter

    from ringlet.cli import display
    from ringlet.comm import world
    from ringlet.inference.artifact import Artifact
    from ringlet.inference.inputs import list_inputs
    from ringlet.inference.predictor import Predictor

    comm = world.communicator()
    artifact = Artifact.find(request.model)
    if artifact.is_program and comm.rank == 0:
        display.note(f"{display.clean(request.model)} is a program and is run now: use only programs that you trust")
    with Predictor(
        artifact,
        threads=_threads(request.threads, comm),
        batch_size=request.batch_size,
        threshold=request.threshold,
        tta=request.tta,
    ) as predictor:
        folder = _check_output(request, predictor, comm)
        shape, table = predictor.description.preprocessing.input_shape, predictor.description.table
        listing = list_inputs(request.inputs, shape, lambda: _shared_lines(comm), table)
        _check_same(comm, listing.inputs)
        if comm.rank == 0:
            for remark in listing.remarks:
                display.note(remark)
        start = perf_counter()
        records = _score(request, predictor, listing.inputs, folder, comm)
        seconds = perf_counter() - start
        errors = [record["error"] for record in records if record["error"] is not None]
        if comm.rank == 0:
            _tell(request, predictor, records, errors, seconds)
    return EXIT_FAILED if errors else EXIT_OK


def _threads(given: int | None, comm: Communicator) -> int:
    from ringlet.launch.resources import usable_cores

    return given if given is not None else max(1, usable_cores() // comm.local_size)


def _check_output(request: Request, predictor: Predictor, comm: Communicator) -> Path | None:
    """Refuse an output that does not suit the task; the folder for masks, made by rank 0."""
    from ringlet.inference.scoring import ENDINGS, check_table

    output, masks = request.output, predictor.description.task == "segmentation"
    if request.csv is not None:
        if request.csv.suffix.lower() != ".csv":
            raise UsageError(f"--csv '{request.csv}': expected a name that ends in .csv; -o takes other formats")
        check_table(request.csv)
    if not masks and request.overlay:
        raise UsageError(f"'{predictor.description.network}' predicts classes, not masks: leave --overlay out")
    if masks and request.top_k > 1:
        raise UsageError(f"'{predictor.description.network}' predicts masks, not classes: leave --top-k out")
    if output is None:
        if request.overlay:
            raise UsageError("--overlay needs a folder for the pictures: give -o FOLDER")
        return None
    if not masks or output.suffix.lower() in ENDINGS:
        if request.overlay:
            raise UsageError(f"--overlay writes pictures, and '{output}' is a table: give -o FOLDER, and --csv FILE")
        check_table(output)
        return None
    if output.exists() and not output.is_dir():
        raise UsageError(
            f"'{predictor.description.network}' predicts masks: '{output}' is neither a folder nor a table "
            f"({', '.join(ENDINGS)})"
        )
    if comm.rank == 0:
        try:
            output.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"cannot make folder '{output}': {error.strerror}. Choose another with -o") from None
    comm.barrier()
    return output


def _shared_lines(comm: Communicator) -> Iterable[str]:
    """The lines of rank 0's stdin, on all ranks."""
    content = "\n".join(_stdin_lines()).encode("utf-8", "surrogateescape") if comm.rank == 0 else None
    return comm.broadcast_bytes(content).decode("utf-8", "surrogateescape").splitlines()


def _check_same(comm: Communicator, inputs: Sequence[Input]) -> None:
    """Refuse workers that see different files; every worker must call."""
    import hashlib

    from ringlet.errors import DataError

    names = "\n".join(item.name for item in inputs).encode()
    if len(set(comm.allgather_bytes(hashlib.sha256(names).digest()))) > 1:
        raise DataError("the workers see different files: name a folder that all of them share and nobody changes")


def _score(
    request: Request, predictor: Predictor, inputs: Sequence[Input], folder: Path | None, comm: Communicator
) -> list[Record]:
    """The records of all workers, in the order of the inputs; every worker must call."""
    import json

    from ringlet.cli import display
    from ringlet.cli.progress import Counter
    from ringlet.data.partition import bounds
    from ringlet.inference.scoring import Scorer

    own = inputs[slice(*bounds(len(inputs), comm.rank, comm.size))]
    scorer = Scorer(predictor, request.top_k, folder, request.overlay)
    if comm.rank != 0:
        records = list(scorer.score(own))
    else:
        label = "Predicting" if comm.size == 1 else f"Predicting (rank 0 of {comm.size})"
        with Counter(display.errors_console(), label, len(own), "images") as progress:
            records = list(scorer.score(own, progress))
    if comm.size == 1:
        return records
    parts = comm.allgather_bytes(json.dumps(records).encode())
    return [record for part in parts for record in json.loads(part)]


def _tell(request: Request, predictor: Predictor, records: list[Record], errors: list[str], seconds: float) -> None:
    """Results on stdout or in the file, errors on stderr."""
    from ringlet.cli import display
    from ringlet.cli.progress import short_rate
    from ringlet.inference.scoring import write_table

    description, output = predictor.description, request.output
    tables = [] if output is None or output.is_dir() else [output]
    for table in tables + ([] if request.csv is None else [request.csv]):
        write_table(table, records, request.top_k)
    for error in errors[:MAX_ERRORS_SHOWN]:
        display.complain(error, "skipped")
    if len(errors) > MAX_ERRORS_SHOWN:
        display.complain(f"{len(errors) - MAX_ERRORS_SHOWN:,} more images that cannot be read", "skipped")
    good = len(records) - len(errors)
    predicted = f"{good:,} image{'' if good == 1 else 's'} predicted"
    if request.json:
        about = {"model": str(request.model), "network": description.network, "task": description.task}
        counts = {"num_inputs": len(records), "num_errors": len(errors), "seconds": seconds}
        written = {"output": None if output is None else str(output)}
        display.print_json({**about, **counts, **written, "predictions": records})
        return
    if output is None:
        display.results_console().print(_table(records, request.top_k, description))
    skipped = f", {len(errors):,} skipped" if errors else ""
    rate = short_rate(len(records), seconds)
    display.note(f"{predicted}{skipped}, {rate} images/s, by {display.clean(description.network)}")
    if output is not None:
        print(f"{'Predictions' if tables else 'Masks'}: {display.clean(output)}")
    if request.csv is not None:
        print(f"Table: {display.clean(request.csv)}")


def _table(records: Sequence[Record], top_k: int, description: Description) -> Any:
    from ringlet.cli import display
    from ringlet.inference.scoring import flat

    if description.task == "segmentation":
        return _share_table(records, description.num_classes)
    if description.task == "regression":
        values = [(record["file"], record["label"] if record["error"] is None else "(skipped)") for record in records]
        return display.table(("File", ", ".join(description.labels) or "Value"), values)
    columns = ["File", "Label", "Probability"]
    for place in range(2, top_k + 1):
        columns += [f"{place}.", "Probability"]
    rows = []
    for record in records:
        plain = flat(record, top_k)
        cells = [plain["file"], plain["label"] if plain["error"] is None else "(skipped)", _share(plain["probability"])]
        for place in range(2, top_k + 1):
            cells += [plain[f"label_{place}"], _share(plain[f"probability_{place}"])]
        rows.append(tuple(cells))
    return display.table(columns, rows)


def _share_table(records: Sequence[Record], num_classes: int) -> Any:
    """The share of the object in each picture; of several classes the largest shares, by name."""
    from ringlet.cli import display

    if num_classes <= 2:
        rows = [(record["file"], *_size(record), _share(record["share"])) for record in records]
        return display.table(("File", "Width", "Height", "Object"), rows)
    rows = [(record["file"], *_size(record), _largest_shares(record["shares"] or {})) for record in records]
    return display.table(("File", "Width", "Height", "Share of pixels"), rows)


def _largest_shares(shares: Mapping[str, float]) -> str:
    """``road 61.20%, car 3.10%``: the classes that occur, the largest first."""
    found = sorted(((share, name) for name, share in shares.items() if share > 0), key=lambda pair: -pair[0])
    text = ", ".join(f"{name} {_share(share)}" for share, name in found[:MAX_SHARES_SHOWN])
    return text if len(found) <= MAX_SHARES_SHOWN else f"{text}, {len(found) - MAX_SHARES_SHOWN} more"


def _size(record: Record) -> tuple[object, object]:
    return (record["width"], record["height"]) if record["error"] is None else ("(skipped)", None)


def _share(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.2f}%"


def command() -> Any:
    """The command for the root group."""
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command("predict")(predict)
    return typer.main.get_command(app)
