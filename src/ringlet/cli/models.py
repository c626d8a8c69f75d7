"""``ringlet models``: the networks of the zoo, or the layers of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringlet.cli import completers

if TYPE_CHECKING:
    from ringlet.models.spec import ModelSpec
    from ringlet.models.zoo import Member

EXAMPLES = (
    ("ringlet models", "all networks"),
    ("ringlet models resnet50", "the layers of one"),
    ("ringlet models unet --input-shape 3,128,128 --model-options width=8", "the same with parameters of its family"),
)


def models(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", autocompletion=completers.models, help="network whose layers to show"),
    ] = None,
    input_shape: Annotated[
        str | None, typer.Option("--input-shape", metavar="C,H,W", help="shape of an image; default: the family's")
    ] = None,
    num_classes: Annotated[int | None, typer.Option("--num-classes", help="number of classes", min=1)] = None,
    model_options: Annotated[
        str | None, typer.Option("--model-options", metavar="NAME=VALUE,…", help="parameters of the family")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout")] = False,
) -> None:
    """List the networks of the zoo with their parameters, or show the layers of one with counts and FLOPs."""
    from ringlet.config import gather
    from ringlet.models import zoo

    given = {"input_shape": input_shape, "model_options": model_options}
    config = gather(options={key: value for key, value in given.items() if value is not None}).build()
    if name is None:
        _list(json)
        return
    spec = zoo.create(name, input_shape=config.model.input_shape, num_classes=num_classes, **config.model.options)
    _show(spec, json)


def _list(json: bool) -> None:
    from ringlet import plugins
    from ringlet.cli import display
    from ringlet.errors import RingletError
    from ringlet.models import zoo

    rows: list[tuple[object, ...]] = []
    for name in zoo.names():
        member, spec = zoo.describe(name), zoo.create(name)
        shape = "x".join(map(str, spec.input_shape))
        rows.append((name, spec.num_parameters, shape, member.num_classes, _options(member), member.summary))
    for name in plugins.names("models"):
        try:
            member, spec = zoo.describe(name), zoo.create(name)
        except RingletError as error:
            rows.append((name, None, "", None, "", str(error)))
            continue
        shape, summary = "x".join(map(str, spec.input_shape)), f"{member.summary} ({plugins.origin('models', name)})"
        rows.append((name, spec.num_parameters, shape, member.num_classes, _options(member), summary))
    columns = ("Name", "Parameters", "Input", "Classes", "Options", "Summary")
    if json:
        display.print_json({"models": [dict(zip(map(str.lower, columns), row, strict=True)) for row in rows]})
        return
    display.results_console().print(display.table(columns, rows))
    display.note("`ringlet models NAME` shows the layers; `ringlet train --model NAME` trains it")


def _options(member: Member) -> str:
    return ", ".join(f"{name}={value}" for name, value in member.options.values().items())


def _show(spec: ModelSpec, json: bool) -> None:
    from ringlet.cli import display
    from ringlet.cli.display import layer_table
    from ringlet.models.table import layer_rows

    totals = {
        "name": spec.name,
        "input_shape": list(spec.input_shape),
        "output_shape": list(spec.output_shape),
        "num_parameters": spec.num_parameters,
        "forward_flops": spec.forward_flops,
        "training_flops": spec.training_flops,
    }
    if json:
        layers = [
            {"name": row.name, "type": row.type, "num_parameters": row.num_parameters, "flops": row.flops}
            | {"output_shape": list(row.output_shape)}
            for row in layer_rows(spec)
        ]
        display.print_json({**totals, "layers": layers})
        return
    console = display.results_console()
    console.print(layer_table(spec, with_flops=True))
    console.print(
        f"{spec.name}: {spec.num_parameters:,} parameters ({4 * spec.num_parameters / 2**20:,.1f} MiB float32)"
    )
    forward, training = spec.forward_flops / 1e6, spec.training_flops / 1e6
    console.print(f"Per sample: {forward:,.2f} MFLOP forward, {training:,.2f} MFLOP training")


def command() -> Any:
    """The command for the root group."""
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command("models")(models)
    return typer.main.get_command(app)
