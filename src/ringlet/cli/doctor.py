"""``ringlet doctor``: what works on this machine, what is missing and how to get it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ringlet.cli.checks import Check

EXAMPLES = (
    ("ringlet doctor", "what works here, what is missing"),
    ("ringlet doctor --json", "the same for a report of a problem"),
)


def doctor(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout")] = False,
) -> None:
    """Say what works on this machine, what is missing and how to get it."""
    from ringlet.cli import display
    from ringlet.cli.checks import all_checks, tuning_choices

    checks = all_checks()
    choices = tuning_choices()
    if json:
        display.print_json({"checks": [check.to_dict() for check in checks], "tuning": choices})
        return
    console = display.results_console()
    console.print(display.table(("", "What", "Found"), [(_mark(check), check.name, check.found) for check in checks]))
    missing = [check for check in checks if check.advice]
    for check in missing:
        console.print(f"{check.name}: {display.clean(check.advice)}", soft_wrap=True)
    if choices:
        console.print(display.table(("Convolution", "Chosen algorithm"), choices.items()))
    if not any(check.status == "broken" for check in checks):
        console.print("Ringlet can train here.")


def _mark(check: Check) -> str:
    return {"ok": "✓", "missing": "–", "broken": "✗"}[check.status]


def command() -> Any:
    """The command for the root group."""
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command("doctor")(doctor)
    return typer.main.get_command(app)
