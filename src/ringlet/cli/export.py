"""``ringlet export``: a trained model for another framework, compared with the training engine before it is kept."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ringlet.export import Export

TITLES = {"openvino": "OpenVINO", "onnx": "ONNX", "torch": "PyTorch", "keras": "Keras"}
EXAMPLES = (
    ("ringlet export runs/night --to onnx", "beside the model"),
    ("ringlet export runs/night --to openvino --weights int8 -o model.xml", "small and fast on processors"),
)


def export(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="run directory or model file (.safetensors)")],
    to: Annotated[str, typer.Option("--to", metavar="openvino|onnx|torch|keras", help="what to write")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="PATH", help="file or folder; default: beside the model")
    ] = None,
    weights: Annotated[
        str, typer.Option("--weights", metavar="fp32|fp16|int8", help="precision of the weights (default: fp32)")
    ] = "fp32",
    calibration: Annotated[
        str | None,
        typer.Option(
            "--calibration",
            metavar="DATASET|FOLDER|FILE",
            help="samples for int8 weights, and to compare on if the run's own data are gone; default: the run's data",
        ),
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(
            "--samples",
            metavar="INT",
            help="samples to compare (default: 64) and to calibrate with (default: 300)",
            min=1,
            max=1_000_000,
        ),
    ] = None,
    threads: Annotated[int | None, typer.Option("--threads", help="default: all cores", min=1, max=4096)] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the results as one JSON document on stdout")] = False,
) -> None:
    """Export a trained model to OpenVINO, ONNX, PyTorch or Keras.

    The result needs nothing else: normalisation, labels and all that is to know about its input are inside. Before it
    is kept, its outputs are compared with those of the training engine on samples of the run's own data.
    """
    from ringlet.cli import display
    from ringlet.export.exporter import plan_export

    plan = plan_export(model, to, output, weights)
    if not json:
        display.heading(f"**** Export of {display.clean(model)} to {TITLES[plan.target]}, {plan.weights} weights")
    result = plan.run(calibration, samples, threads, display.note)
    if json:
        display.print_json(result.to_dict())
        return
    _print(result)


def _print(result: Export) -> None:
    from ringlet.cli import display

    parity = result.parity
    if result.calibration is not None:
        display.note(f"calibrated with {result.calibration}")
    if not parity.is_real:
        display.note(
            "compared on random numbers, since no data are at hand: name a data set or folder with --calibration"
        )
    console = display.results_console()
    print(
        f"{display.clean(result.network)}, compared with the training engine on {parity.num_samples} samples "
        f"({display.clean(parity.origin)}):"
    )
    facts = {
        "largest difference": f"{parity.largest:.1e}",
        "mean difference": f"{parity.mean:.1e}",
        "same class" if parity.dice is None else "pixels of the same class": f"{100 * parity.agreement:.2f}%",
    }
    if parity.dice is not None:
        facts["dice between the masks"] = f"{100 * parity.dice:.2f}%"
    if result.num_batch_norms:
        facts["batch norms folded"] = f"{result.num_folded} of {result.num_batch_norms}"
    console.print(display.pairs(facts))
    if result.plain is not None and result.advice:
        where = f"by the defaults of {TITLES[result.target]} on this processor"
        how_far = f"{result.plain.largest:.1e} ({100 * result.plain.agreement:.2f}% of the same class)"
        display.note(f"opened without Ringlet, {where}, its outputs differ by up to {how_far}. {result.advice}")
    size = f"{result.artifact.num_bytes / 1e6:,.2f} MB; the model file has {result.num_model_bytes / 1e6:,.2f} MB"
    print(f"Model: {', '.join(display.clean(path) for path in result.files)} ({size})")


def command() -> Any:
    """The command for the root group."""
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command("export")(export)
    return typer.main.get_command(app)
