"""``ringlet doctor``: what works on this machine, what is missing and how to get it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
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
    rows = [(_mark(check), check.name, check.found) for check in checks]
    rows.append(("✓", "Convolutions measured", _counts(choices)))
    console.print(display.table(("", "What", "Found"), rows))
    for advice, names in _by_advice(checks).items():
        console.print(f"{', '.join(names)}: {display.clean(advice)}", soft_wrap=True)
    if not any(check.status == "broken" for check in checks):
        console.print("Ringlet can train here.")


def _mark(check: Check) -> str:
    return {"ok": "✓", "missing": "–", "broken": "✗"}[check.status]


def _counts(choices: Mapping[str, str]) -> str:
    """How many convolutions have a measured algorithm, and which; ``--json`` has every one."""
    if not choices:
        return "none yet"
    counts = Counter(choices.values()).most_common()
    return f"{len(choices)}: " + ", ".join(f"{number} {algorithm}" for algorithm, number in counts)


def _by_advice(checks: Iterable[Check]) -> dict[str, list[str]]:
    """What mends something, and all that it mends."""
    found: dict[str, list[str]] = {}
    for check in checks:
        if check.advice:
            found.setdefault(check.advice, []).append(check.name)
    return found


def command() -> Any:
    """The command for the root group."""
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command("doctor")(doctor)
    return typer.main.get_command(app)
