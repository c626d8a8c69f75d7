"""``ringlet watch``: a live page of runs on this machine, or the same page as one file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringlet.output_streams import outlive_output

if TYPE_CHECKING:
    from ringlet.watch.run_view import RunView

EXAMPLES = (
    ("ringlet watch", "the newest run in runs/"),
    ("ringlet watch runs/day runs/night --open", "two runs in one page, in the browser"),
    ("ringlet watch runs/night --save night.html", "the page as one file"),
)


def watch(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[RUN]…", help="run directories; default: the newest in runs/"),
    ] = None,
    port: Annotated[
        int, typer.Option("--port", metavar="INT", help="port of the page (default: a free one)", min=0, max=65535)
    ] = 0,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in the browser")] = False,
    save: Annotated[
        Path | None,
        typer.Option("--save", metavar="FILE.html", help="Write the page as one file, serve nothing"),
    ] = None,
    until_finished: Annotated[
        bool, typer.Option("--until-finished", help="End when the runs have ended, not only with Ctrl-C")
    ] = False,
) -> None:
    """Show curves, times and events of runs on a local page, while they are going on or afterwards.

    Only this machine can open the page, and it fetches nothing from elsewhere. Several runs are compared:
    `ringlet watch runs/a runs/b`. On a cluster, forward the port: `ssh -L 8000:127.0.0.1:8000 HOST`.
    """
    from ringlet.watch.run_view import RunView

    outlive_output()
    views = [RunView(path) for path in _chosen(runs or [])]
    if save is not None:
        from ringlet.watch.pages import save_page

        save_page(views, save)
        print(save)
        return
    from ringlet.watch.server import serve

    serve(views, port, lambda address: _tell(address, open_page), until_finished=until_finished)
    for view in views:
        if until_finished and view.is_lost:
            _tell_of_loss(view)


def _chosen(given: list[Path]) -> list[Path]:
    from ringlet.errors import UsageError
    from ringlet.watch.run_files import find_run, newest_runs

    if given:
        return [find_run(path) for path in dict.fromkeys(given)]
    found = newest_runs(Path("runs"))
    if not found:
        raise UsageError("there is no run in the folder 'runs': give a run directory, as in `ringlet watch runs/mine`")
    return found[:1]


def _tell(address: str, open_page: bool) -> None:
    """The address is the result; where it is meant for people, they are told how to end."""
    from ringlet.cli import display

    print(address, flush=True)
    display.note("Ctrl-C ends it")
    if open_page:
        import webbrowser

        webbrowser.open(address)


def _tell_of_loss(view: RunView) -> None:
    """The run cannot say it any more."""
    from ringlet.cli import display

    display.note(
        f"{view.path}: its process is gone and has not said that it ended; `ringlet resume {view.path}` goes on"
    )


def command() -> Any:
    """The command for the root group."""
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command("watch")(watch)
    return typer.main.get_command(app)
