"""``ringlet datasets inspect``: what a data set holds and what is wrong with it, before training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringlet.cli import completers

if TYPE_CHECKING:
    from ringlet.data.inspection import Inspection

MAX_CLASSES_SHOWN = 40
MAX_LISTED = 10
EXAMPLES = (
    ("ringlet datasets inspect photos", "classes, sizes, broken files, copies"),
    ("ringlet datasets inspect photos --sheet sheet.png", "and a picture of some samples"),
    ("ringlet datasets inspect measurements.csv --target kind", "a table"),
)


def inspect_dataset(
    data: Annotated[
        str,
        typer.Argument(
            metavar="PATH|NAME", autocompletion=completers.datasets, help="folder, npz or table, or a data set's name"
        ),
    ],
    *,
    dataset_path: Annotated[
        str | None, typer.Option("--dataset-path", help="folder or file of a named data set")
    ] = None,
    num_classes: Annotated[int | None, typer.Option("--num-classes", help="classes that masks hold", min=1)] = None,
    target: Annotated[str | None, typer.Option("--target", help="columns of a table that are to be predicted")] = None,
    ignore: Annotated[str | None, typer.Option("--ignore", help="columns of a table that are left out")] = None,
    sheet: Annotated[
        Path | None, typer.Option("--sheet", metavar="FILE", help="write a picture of some samples to this file")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print all of it as one JSON document on stdout")] = False,
) -> None:
    """Look at all samples of a data set: what there is of what, and what is wrong with it.

    Every picture is decoded, so that broken files are found, and every sample is compared with all others: copies of
    training samples in validation or test data make a network look better than it is.
    """
    from ringlet.cli import display
    from ringlet.data.contact_sheet import write_sheet
    from ringlet.data.inspection import format_of, inspect

    chosen = format_of(data, path=dataset_path, target=target, ignore=ignore, skip_broken=True)
    with ExitStack() as stack:
        found, parts = inspect(chosen, num_classes=num_classes, progress=_shown(stack))
    if sheet is not None:
        write_sheet(parts.train, parts.class_names, sheet)
    if json:
        display.print_json(found.to_dict() | {"sheet": None if sheet is None else str(sheet)})
        return
    _print(found)
    if sheet is not None:
        print(f"Sheet: {display.clean(sheet)}")


def _shown(stack: ExitStack) -> Callable[[int, int], None]:
    """Shows how many samples were compared, once it is known how many there are."""
    from ringlet.cli import display
    from ringlet.cli.progress import Counter as Progress

    bars: list[Progress] = []

    def show(done: int, total: int) -> None:
        if not bars:
            bars.append(stack.enter_context(Progress(display.errors_console(), "Comparing", total, "samples")))
        bars[0](done)

    return show


def _print(found: Inspection) -> None:
    from ringlet.cli import display

    shape = "x".join(map(str, found.input_shape))
    counts = ", ".join(f"{part.num_samples:,} {name}" for name, part in found.parts.items())
    print(f"{display.clean(found.name)}: {found.task}, samples of {shape}: {counts}")
    if found.parts["train"].class_counts:
        display.results_console().print(_class_table(found))
    if found.pictures is not None:
        facts = {"Sizes": found.pictures.sizes, "Modes": found.pictures.modes, "Formats": found.pictures.formats}
        facts |= {"Mask values": found.pictures.mask_values} if found.pictures.mask_values else {}
        for name, counter in facts.items():
            print(f"{name}: {display.clean(_listed(counter))}")
    for one in found.broken[:MAX_LISTED]:
        print(f"Broken: {display.clean(one.path)} ({display.clean(one.reason)})")
    if len(found.broken) > MAX_LISTED:
        print(f"Broken: {len(found.broken) - MAX_LISTED:,} more; --json lists all")
    for group in found.duplicates[:MAX_LISTED]:
        print(f"Same: {display.clean(' = '.join(group.samples))}")
    if len(found.duplicates) > MAX_LISTED:
        print(f"Same: {len(found.duplicates) - MAX_LISTED:,} more groups; --json lists all")
    for finding in found.findings():
        print(f"Note: {display.clean(finding)}")


def _class_table(found: Inspection) -> Any:
    """How many samples of each class every part has; of very many classes the first ones."""
    from ringlet.cli import display

    num_classes = len(found.parts["train"].class_counts)
    parts = found.parts.values()
    rows: list[tuple[object, ...]] = [
        (found.class_name(index), *(part.class_counts[index] for part in parts))
        for index in range(min(num_classes, MAX_CLASSES_SHOWN))
    ]
    if num_classes > MAX_CLASSES_SHOWN:
        rows.append((f"… {num_classes - MAX_CLASSES_SHOWN:,} more, see --json", *(None for _ in found.parts)))
    return display.table(("Class", *(name.capitalize() for name in found.parts)), rows)


def _listed(counter: Counter[str]) -> str:
    """The most frequent values with their numbers."""
    shown = ", ".join(f"{value} ({count:,})" for value, count in counter.most_common(6))
    return shown + (f", and {len(counter) - 6:,} more" if len(counter) > 6 else "")
