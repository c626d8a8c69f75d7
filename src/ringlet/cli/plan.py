"""``ringlet plan``: memory, traffic and time of a run on any number of workers, before it is started."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringlet.cli.options import COMMON, RunCommand, with_run_options
from ringlet.errors import EXIT_OK, UsageError

if TYPE_CHECKING:
    from ringlet.planning.planner import CapacityPlan, PlanOptions

EXAMPLES = (
    ("ringlet plan --model vgg16_bn --dataset cifar10 --network 10gbe", "1 to 4,096 workers like this machine"),
    ("ringlet plan --model resnet50 --dataset imagenet --sample-seconds 0.004 --network 25gbe", "machines not at hand"),
    ("ringlet plan --model simplecnn --dataset mnist --global-batch-size 512 --plot plan.png", "a fixed batch, drawn"),
)
_SECTIONS = ("model", "dataset", "optimizer", "engine", "strategy")
_OF_TRAINING = ("local_batch_size", "global_batch_size", "loss", "loss_func", "dtype", "seed", "clip_norm")
_MACHINE, _LINKS = "The machine: measured, unless one of these says how fast it is", "Links between workers"


def _option(flag: str, metavar: str, explanation: str, panel: str) -> Any:
    return typer.Option(flag, metavar=metavar, help=explanation, rich_help_panel=panel, show_default=False)


def plan(
    *,
    workers: Annotated[
        str | None, typer.Option("--workers", metavar="N,N,…", help="numbers of workers (default: 1,2,4,…,4096)")
    ] = None,
    min_efficiency: Annotated[
        float, typer.Option("--min-efficiency", metavar="SHARE", help="what a recommended number must reach")
    ] = 0.7,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="also draw speed-up and steps (.png, .svg or .pdf)")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the plan as one JSON document on stdout")] = False,
    measure: Annotated[
        bool, typer.Option("--measure/--no-measure", help="measure this machine", rich_help_panel=_MACHINE)
    ] = True,
    measure_seconds: Annotated[
        float, _option("--measure-seconds", "NUMBER", "for so long (default: 10)", _MACHINE)
    ] = 10,
    compute_seconds: Annotated[
        str | None, _option("--compute-seconds", "TIME", "a worker's pass and update take so long, as 120ms", _MACHINE)
    ] = None,
    sample_seconds: Annotated[
        str | None, _option("--sample-seconds", "TIME", "the same for each sample of the pass", _MACHINE)
    ] = None,
    flops: Annotated[
        float | None, _option("--flops", "NUMBER", "a worker computes so many operations a second, as 4e12", _MACHINE)
    ] = None,
    variation: Annotated[
        float | None, _option("--variation", "SHARE", "steps vary by this standard deviation (default: 0.02)", _MACHINE)
    ] = None,
    memory: Annotated[
        str | None, _option("--memory", "SIZE", "memory of a worker (default: its share of this machine)", _MACHINE)
    ] = None,
    workers_per_machine: Annotated[
        int | None, _option("--workers-per-machine", "INT", "(default: the cores of this machine)", _LINKS)
    ] = None,
    network: Annotated[
        str | None, _option("--network", "NAME", "1gbe, 10gbe, 25gbe, infiniband-hdr … (default: 10gbe)", _LINKS)
    ] = None,
    network_file: Annotated[
        Path | None, _option("--network-file", "FILE", "TOML file with the options of this section", _LINKS)
    ] = None,
    latency: Annotated[str | None, _option("--latency", "TIME", "of a message, as 20us", _LINKS)] = None,
    bandwidth: Annotated[
        str | None, _option("--bandwidth", "RATE", "of a machine's line, as 25Gbit/s or 3GB/s", _LINKS)
    ] = None,
    efficiency: Annotated[
        float | None, _option("--efficiency", "SHARE", "of the line that payload gets, as 0.94", _LINKS)
    ] = None,
    local_latency: Annotated[
        str | None, _option("--local-latency", "TIME", "inside a machine that is not measured", _LINKS)
    ] = None,
    local_bandwidth: Annotated[
        str | None, _option("--local-bandwidth", "RATE", "inside a machine that is not measured", _LINKS)
    ] = None,
    algorithm: Annotated[
        str, _option("--algorithm", "NAME", "hierarchical (default, as Ringlet does), ring, halving or tree", _LINKS)
    ] = "hierarchical",
    bucket_size: Annotated[
        str | None, _option("--bucket-size", "SIZE", "of a message (default: 1M for each worker of a machine)", _LINKS)
    ] = None,
    whole_tensors: Annotated[
        bool, typer.Option("--whole-tensors", help="messages cut no tensor (Horovod, DDP)", rich_help_panel=_LINKS)
    ] = False,
    **values: Any,
) -> int:
    """Forecast memory, traffic, time per step and epoch of a run, and recommend a number of workers.

    This machine is measured for some seconds: passes of one and of several workers at once, and exchanges by size. With
    --compute-seconds, --sample-seconds or --flops nothing is measured: for machines that are not at hand. Several
    machines are as this one, joined by the described network. --local-batch-size fixes the work of a worker,
    --global-batch-size that of a step.
    """
    from ringlet.bench.quantities import parse_seconds, parse_size
    from ringlet.planning.planner import DescribedMachine, make_plan

    if plot is not None:
        from ringlet.bench.plotting import check_plot

        check_plot(plot)
    described = DescribedMachine(
        None if compute_seconds is None else parse_seconds("compute_seconds", compute_seconds),
        None if sample_seconds is None else parse_seconds("sample_seconds", sample_seconds),
        flops,
        variation,
        None if memory is None else parse_size("memory", memory),
    )
    links = {"network": network, "latency": latency, "bandwidth": bandwidth, "efficiency": efficiency}
    links |= {"local_latency": local_latency, "local_bandwidth": local_bandwidth}
    wanted = _plan_options(
        values,
        workers,
        network=_links(network_file, links | {"workers_per_machine": workers_per_machine}),
        described=described,
        measure=measure,
        measure_seconds=measure_seconds,
        algorithm=algorithm,
        bucket_bytes=None if bucket_size is None else parse_size("bucket_size", bucket_size),
        whole_tensors=whole_tensors,
        min_efficiency=min_efficiency,
    )
    from ringlet.cli import display

    found = make_plan(wanted, display.note)
    if plot is not None:
        from ringlet.planning import report

        report.plot(found).save(plot)
    _print(found, plot, json=json)
    return EXIT_OK


def _plan_options(values: dict[str, Any], workers: str | None, **options: Any) -> PlanOptions:
    from ringlet.config import gather
    from ringlet.planning.planner import DEFAULT_COUNTS, PlanOptions

    given = {name: value for name, value in values.items() if value is not None}
    config = gather(options=given).build()
    counts = DEFAULT_COUNTS if workers is None else tuple(_count(text) for text in workers.split(","))
    return PlanOptions(config, counts, **options)


def _count(text: str) -> int:
    if not text.strip().isdecimal():
        raise UsageError(f"workers: '{text}' is no number, expected a list such as 1,2,4,8")
    return int(text)


def _links(file: Path | None, given: dict[str, Any]) -> dict[str, Any]:
    """Options win over the file."""
    from ringlet.planning.network import read_network_file

    values = {} if file is None else read_network_file(file)
    return values | {name: value for name, value in given.items() if value is not None}


def _print(found: CapacityPlan, plot: Path | None, *, json: bool) -> None:
    from ringlet.cli import display
    from ringlet.planning import report

    for remark in found.remarks:
        display.note(remark)
    if plot is not None:
        display.note(f"plot: {plot}")
    if json:
        display.print_json(found.to_dict())
        return
    display.errors_console().print(display.pairs(report.about(found)))
    console = display.results_console()
    console.print(display.table(report.COLUMNS, report.rows(found)))
    for sentence in report.sentences(found):
        console.print(sentence)


def _is_offered(name: str) -> bool:
    """Whether an option of a run changes what it costs."""
    section, _, rest = name.partition(".")
    if name in COMMON or not rest:
        common = ("model", "dataset", "image_size", "optimizer", "strategy", "engine")
        return name in common or name in _OF_TRAINING or (name not in COMMON and _path(name)[0] in _SECTIONS)
    return section in _SECTIONS or (section == "training" and rest in _OF_TRAINING)


def _path(name: str) -> tuple[str, ...]:
    from ringlet.config.names import locate

    alias = locate(name)
    return ("",) if alias is None else alias.path


def command() -> Any:
    """The command for the root group."""
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command("plan", cls=RunCommand)(with_run_options(plan, _is_offered))
    return typer.main.get_command(app)
