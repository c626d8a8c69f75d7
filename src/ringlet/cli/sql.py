"""``ringlet sql``: models in databases, and predictions for their rows."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringlet.cli.sql_score import score
from ringlet.errors import EXIT_FAILED, EXIT_OK, RingletError, UsageError

if TYPE_CHECKING:
    from ringlet.database.contract import Database, Installed
    from ringlet.database.functions import FunctionSettings
    from ringlet.database.models import Entry

URL_HELP = "duckdb:FILE, or postgresql://USER@HOST/DATABASE (also Greenplum and Cloudberry)"
Url = Annotated[str, typer.Argument(metavar="URL", help=URL_HELP)]
Schema = Annotated[
    str, typer.Option("--schema", metavar="NAME", help="PostgreSQL: where models and functions are kept")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the SQL and change nothing")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout")]
EXAMPLES = (
    ("ringlet sql install duckdb:photos.db runs/night --name night", "store a model"),
    ("ringlet sql list duckdb:photos.db --verify", "what is stored, every byte verified"),
    (
        "ringlet sql score duckdb:photos.db --model night --query 'SELECT id, image FROM photos' --into scores",
        "predict rows",
    ),
    ("ringlet sql remove postgresql://me@host/photos night:1 --dry-run", "print the SQL that removes a version"),
)


def install(
    url: Url,
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="an OpenVINO (.xml) or ONNX export, a run directory, .safetensors")
    ],
    *,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="how queries call it; default: that of the file")
    ] = None,
    schema: Schema = "ringlet",
    functions: Annotated[
        bool | None,
        typer.Option(
            "--functions/--no-functions",
            help="PostgreSQL: make the functions anew, or store the model alone; default: make them if missing",
        ),
    ] = None,
    python_path: Annotated[
        str | None,
        typer.Option("--python-path", metavar="DIR", help="PostgreSQL: where the server finds Ringlet"),
    ] = None,
    allow_directory: Annotated[
        str | None,
        typer.Option("--allow-directory", metavar="DIR", help="PostgreSQL: where ringlet_predict_file may read"),
    ] = None,
    language: Annotated[
        str | None, typer.Option("--language", metavar="NAME", help="plpython3u, or plcontainer on Greenplum")
    ] = None,
    container: Annotated[str | None, typer.Option("--container", metavar="NAME", help="runtime of plcontainer")] = None,
    grant: Annotated[
        list[str] | None, typer.Option("--grant", metavar="ROLE", help="a role that may predict; may be repeated")
    ] = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Store a model in a database, as the next version of its name, with the functions that run it.

    In PostgreSQL the functions ringlet_predict, ringlet_predict_file and ringlet_predict_batch run in the server, in
    the language plpython3u: to make them takes a superuser, to call them a role named by --grant. In DuckDB they are
    registered by ringlet.database.register, in every connection.
    """
    from ringlet.database.contract import Installation, connect
    from ringlet.database.models import NewModel
    from ringlet.database.names import model_name

    settings = _settings(functions, python_path, allow_directory, language, container)
    called = model_name(name if name is not None else model.stem)
    wanted = Installation(NewModel.read(model, called), settings, functions is not False, grant or ())
    with connect(url, schema=schema, access="pretend" if dry_run else "create") as database:
        if dry_run:
            print_script(database, database.plan_install(wanted))
            return
        outcome = database.install(wanted)
        _tell_installed(database, outcome, wanted.model.sha256, json)


def list_models(
    url: Url,
    *,
    schema: Schema = "ringlet",
    verify: Annotated[bool, typer.Option("--verify", help="read every model and compare its SHA-256")] = False,
    json: Json = False,
) -> int:
    """List the models of a database; with --verify the exit code is 1 if any is damaged."""
    from ringlet.cli import display
    from ringlet.database.contract import connect

    with connect(url, schema=schema, access="read") as database:
        entries = database.models()
        problems = [_problem(database, entry) if verify else None for entry in entries]
    if json:
        rows = [_document(entry, problem) for entry, problem in zip(entries, problems, strict=True)]
        display.print_json({"url": database.shown, "models": rows})
    elif entries:
        display.results_console().print(_table(entries, problems if verify else None))
    else:
        display.note(f"{database.shown} holds no models: `ringlet sql install` stores one")
    return EXIT_FAILED if any(problem is not None for problem in problems) else EXIT_OK


def remove(
    url: Url,
    model: Annotated[str, typer.Argument(metavar="NAME[:VERSION]", help="a bare name means all its versions")],
    *,
    schema: Schema = "ringlet",
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Remove a version of a model from a database, or all of them."""
    from ringlet.cli import display
    from ringlet.database.contract import connect
    from ringlet.database.names import Reference

    reference = Reference.parse(model)
    with connect(url, schema=schema, access="read" if dry_run else "change") as database:
        if dry_run:
            print_script(database, database.plan_remove(reference))
            return
        removed = [str(found) for found in database.remove(reference)]
    if json:
        display.print_json({"url": database.shown, "removed": removed})
    else:
        print(f"Removed: {', '.join(removed)}")


def print_script(database: Database, statements: Any) -> None:
    """The SQL on stdout; for eyes without most of the bytes of a model."""
    import sys

    from ringlet.cli import display

    shorten = sys.stdout.isatty()
    print(database.script(statements, shorten=shorten), end="")
    if shorten:
        display.note("bytes are cut for the terminal: redirect it to a file to get all")


def _settings(
    functions: bool | None,
    python_path: str | None,
    allow_directory: str | None,
    language: str | None,
    container: str | None,
) -> FunctionSettings | None:
    """Settings if functions shall be made, whether some are there or not."""
    from ringlet.database.functions import PLPYTHON, FunctionSettings

    given = (python_path, allow_directory, language, container)
    if functions is False and any(value is not None for value in given):
        raise UsageError("--no-functions leaves nothing for --python-path, --allow-directory, --language, --container")
    if not functions and all(value is None for value in given):
        return None
    return FunctionSettings(language or PLPYTHON, container, python_path, allow_directory)


def _tell_installed(database: Database, outcome: Installed, sha256: str, json: bool) -> None:
    from ringlet import __version__
    from ringlet.cli import display

    if json:
        facts = {"model": str(outcome.reference), "sha256": sha256, "is_new": outcome.is_new}
        display.print_json({"url": database.shown, **facts, "server": outcome.server or None})
        return
    theirs = outcome.server.get("ringlet")
    if theirs is not None and theirs != __version__:
        display.note(f"the server has Ringlet {theirs}, this is {__version__}")
    if not outcome.is_new:
        display.note("the newest version has the same bytes: nothing was stored")
    print(f"Installed: {outcome.reference}")


def _problem(database: Database, entry: Entry) -> str | None:
    try:
        database.load(entry.reference)
    except RingletError as error:
        return str(error)
    return None


def _document(entry: Entry, problem: str | None) -> dict[str, Any]:
    description = entry.description
    return {
        "name": entry.name,
        "version": entry.version,
        "sha256": entry.sha256,
        "kind": entry.kind,
        "task": description.task,
        "network": description.network,
        "labels": list(description.labels),
        "preprocessing": description.preprocessing.to_dict(),
        "num_bytes": entry.num_bytes,
        "created": entry.created.isoformat(timespec="seconds"),
        "problem": problem,
    }


def _table(entries: list[Entry], problems: list[str | None] | None) -> Any:
    from ringlet.cli import display

    columns = ["Model", "Kind", "Task", "Network", "Classes", "Size", "Created", "SHA-256"]
    rows: list[list[object]] = [
        [
            entry.reference,
            entry.kind,
            entry.description.task,
            entry.description.network,
            entry.description.num_classes,
            f"{entry.num_bytes / 1e6:,.2f} MB",
            _minute(entry.created),
            entry.sha256[:12],
        ]
        for entry in entries
    ]
    if problems is not None:
        columns.append("State")
        for row, problem in zip(rows, problems, strict=True):
            row.append("ok" if problem is None else f"damaged: {problem}")
    return display.table(columns, rows)


def _minute(when: datetime) -> str:
    return when.strftime("%Y-%m-%d %H:%M")


def command() -> Any:
    """The command for the root group."""
    app = typer.Typer(
        rich_markup_mode=None, add_completion=False, no_args_is_help=True, help="Models in databases: see each command."
    )
    app.command("install")(install)
    app.command("list")(list_models)
    app.command("remove")(remove)
    app.command("score")(score)
    return typer.main.get_command(app)
