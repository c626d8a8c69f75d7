"""``ringlet sql score``: predictions for the rows of a query, into a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ringlet.errors import EXIT_FAILED, EXIT_OK, UsageError

if TYPE_CHECKING:
    from ringlet.cli.progress import Counter
    from ringlet.database.contract import Database, Scored, Scoring
    from ringlet.inference.artifact import Artifact


def score(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="duckdb:FILE, or postgresql://USER@HOST/DATABASE (and its relatives)")
    ],
    *,
    model: Annotated[
        str, typer.Option("--model", metavar="NAME|PATH", help="a stored model (NAME, NAME:VERSION), or a file")
    ],
    query: Annotated[
        str,
        typer.Option("--query", metavar="SQL", help="gives a key, and a picture: bytes, or the path of a file"),
    ],
    into: Annotated[str, typer.Option("--into", metavar="TABLE", help="table for the results")],
    append: Annotated[bool, typer.Option("--append", help="add to the table if it exists")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="make the table anew if it exists")] = False,
    allow_directory: Annotated[
        Path | None,
        typer.Option(
            "--allow-directory", metavar="DIR", help="below which files may be read; relative paths begin here"
        ),
    ] = None,
    batch_size: Annotated[
        int, typer.Option("--batch-size", metavar="INT", help="images at a time", min=1, max=65536)
    ] = 32,
    threads: Annotated[
        int | None, typer.Option("--threads", metavar="INT", help="default: the cores", min=1, max=4096)
    ] = None,
    schema: Annotated[
        str, typer.Option("--schema", metavar="NAME", help="PostgreSQL: where stored models are kept")
    ] = "ringlet",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the SQL and change nothing")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout")] = False,
) -> int:
    """Predict every row of a query and store the results in a table, in one transaction.

    The table has the key and the columns class, label, probability, mask (PNG), share and error. A row whose picture
    cannot be read has its error there, and the exit code is 1. PostgreSQL needs no functions for this: rows come to
    this machine. In DuckDB all happens in this process.
    """
    from ringlet.cli.sql import print_script
    from ringlet.database.contract import Scoring, connect
    from ringlet.database.names import TableName
    from ringlet.launch.resources import usable_cores

    if append and replace:
        raise UsageError("--append and --replace contradict each other: give one of them")
    table = TableName.parse(into)
    directory = None if allow_directory is None else str(allow_directory.absolute())
    with connect(url, schema=schema, access="read" if dry_run else "change") as database:
        wanted = Scoring(
            model=model,
            artifact=_artifact(database, model),
            query=query,
            into=table,
            append=append,
            replace=replace,
            batch_size=batch_size,
            threads=usable_cores() if threads is None else threads,
            allow_directory=directory,
        )
        if dry_run:
            print_script(database, database.plan_score(wanted))
            return EXIT_OK
        return _score(database, wanted, json)


def _artifact(database: Database, model: str) -> Artifact:
    """A stored model, else a file."""
    from ringlet.database.models import read_artifact
    from ringlet.database.names import Reference

    try:
        return database.load(Reference.parse(model))
    except UsageError as error:
        if Path(model).exists():
            return read_artifact(model)
        raise UsageError(f"{error}. There is no such file either") from error


def _score(database: Database, wanted: Scoring, json: bool) -> int:
    from time import perf_counter

    from ringlet.cli import display

    start = perf_counter()
    with _Progress() as progress:
        outcome = database.score(wanted, progress)
    seconds = perf_counter() - start
    if json:
        about = {"url": database.shown, "model": wanted.model, "into": wanted.into.table, "seconds": seconds}
        counts = {"num_rows": outcome.num_rows, "num_errors": outcome.num_errors, "num_nulls": outcome.num_nulls}
        display.print_json({**about, **counts})
    else:
        _tell(wanted, outcome, seconds)
    return EXIT_FAILED if outcome.num_errors else EXIT_OK


def _tell(wanted: Scoring, outcome: Scored, seconds: float) -> None:
    from ringlet.cli import display
    from ringlet.cli.progress import short_rate

    good = outcome.num_rows - outcome.num_errors - outcome.num_nulls
    nulls = f", {outcome.num_nulls:,} without a picture" if outcome.num_nulls else ""
    rate = short_rate(outcome.num_rows, seconds)
    display.note(f"{good:,} rows predicted{nulls}, {rate} rows/s, by {display.clean(wanted.model)}")
    if outcome.num_errors:
        which = "1 row has a picture" if outcome.num_errors == 1 else f"{outcome.num_errors:,} rows have pictures"
        display.complain(f"{which} that cannot be read: see column error", "skipped")
    print(f"Scores: {wanted.into.quoted}")


class _Progress:
    """Shows a counter from the moment at which the number of rows is known."""

    def __init__(self) -> None:
        self._counter: Counter | None = None

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._counter is not None:
            self._counter.__exit__(None, None, None)

    def __call__(self, done: int, total: int) -> None:
        """So many of so many are done."""
        from ringlet.cli import display
        from ringlet.cli.progress import Counter

        if self._counter is None:
            self._counter = Counter(display.errors_console(), "Predicting", total, "rows").__enter__()
        self._counter(done)
