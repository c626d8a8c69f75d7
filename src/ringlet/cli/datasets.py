"""``ringlet datasets``: list what can be trained on, ``fetch`` one into the data cache, ``inspect`` one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringlet.cli import completers, inspection

if TYPE_CHECKING:
    from ringlet.data.catalogue import CatalogueEntry

app = typer.Typer(
    rich_markup_mode=None, add_completion=False, help="List the data sets, fetch one, or look at one's samples."
)
CacheDirectory = Annotated[
    Path | None,
    typer.Option("--cache-dir", metavar="DIR", help="data cache; default: RINGLET_CACHE or ~/.cache/ringlet"),
]
EXAMPLES = (
    ("ringlet datasets", "all data sets, and which are here"),
    ("ringlet datasets fetch cifar10", "download one"),
    ("ringlet datasets fetch mnist --base-url https://mirror.example.org/mnist/", "from a mirror; checksums stay"),
    *inspection.EXAMPLES,
)


@app.callback(invoke_without_command=True)
def list_datasets(
    context: typer.Context,
    cache_dir: CacheDirectory = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout")] = False,
) -> None:
    """List the data sets: what each is, whether it is here, and how to get it."""
    if context.invoked_subcommand is not None:
        return
    from ringlet.cli import display
    from ringlet.data.catalogue import catalogue, plugin_entries

    entries = [*catalogue(cache_dir), *plugin_entries()]
    if json:
        display.print_json({"datasets": [_plain(entry) for entry in entries]})
        return
    columns = ("Name", "Task", "Shape", "Classes", "Where", "Licence", "What")
    display.results_console().print(display.table(columns, [_row(entry) for entry in entries]))
    own = "npz:PATH, folder:PATH, masks:PATH, table:PATH"
    display.note(f"`ringlet train --dataset NAME` trains on it; own files: --dataset {own}")


def _row(entry: CatalogueEntry) -> tuple[object, ...]:
    shape = "any" if entry.shape is None else "x".join(map(str, entry.shape))
    where: str = entry.origin
    if entry.origin == "downloadable":
        size = f"{entry.num_bytes / 1e6:,.0f} MB"
        where = "in the cache" if entry.present else f"fetch it ({size})"
    return entry.name, entry.task, shape, entry.num_classes, where, entry.licence, entry.description


def _plain(entry: CatalogueEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "task": entry.task,
        "shape": None if entry.shape is None else list(entry.shape),
        "num_classes": entry.num_classes,
        "origin": entry.origin,
        "present": entry.present,
        "path": None if entry.path is None else str(entry.path),
        "num_bytes": entry.num_bytes,
        "licence": entry.licence,
        "description": entry.description,
    }


@app.command("fetch")
def fetch_dataset(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", autocompletion=completers.fetched, help="mnist, fashion-mnist, cifar10 or cifar100"
        ),
    ],
    cache_dir: CacheDirectory = None,
    base_url: Annotated[
        str | None, typer.Option("--base-url", metavar="URL", help="mirror to fetch from; checksums stay")
    ] = None,
) -> None:
    """Fetch a data set into the cache; an interrupted download goes on where it stopped, checksums are verified."""
    from ringlet.cli import display
    from ringlet.cli.progress import DownloadDisplay
    from ringlet.data.download import fetch
    from ringlet.errors import InterruptedRunError

    try:
        with DownloadDisplay(display.errors_console()) as progress:
            folder = fetch(name, cache_dir=cache_dir, base_url=base_url, progress=progress)
    except KeyboardInterrupt:
        raise InterruptedRunError("what has arrived is kept: the same command goes on where it stopped") from None
    if not progress.was_used:
        display.note(f"{name} is already complete in the cache")
    print(display.clean(folder))


app.command("inspect")(inspection.inspect_dataset)


def command() -> Any:
    """The command for the root group."""
    return typer.main.get_command(app)
