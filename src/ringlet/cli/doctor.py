"""``ringlet doctor``: what works on this machine, what is missing and how to get it."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Annotated, Any, Literal

import typer

from ringlet.machine import describe_machine, versions

EXAMPLES = (
    ("ringlet doctor", "what works here, what is missing"),
    ("ringlet doctor --json", "the same for a report of a problem"),
)


def doctor(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout")] = False,
) -> None:
    """Say what works on this machine, what is missing and how to get it."""
    from ringlet.cli import display

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


OPTIONAL_LIBRARIES = (
    ("MPI", "mpi4py", "mpi"),
    ("PyTorch", "torch", "torch"),
    ("Keras", "keras", "keras"),
    ("TensorFlow", "tensorflow", "keras"),
    ("JAX", "jax", "jax"),
    ("OpenVINO", "openvino", "openvino"),
    ("Quantisation (nncf)", "nncf", "openvino"),
    ("ONNX", "onnx", "onnx"),
    ("ONNX Runtime", "onnxruntime", "onnx"),
    ("DuckDB", "duckdb", "database"),
    ("PostgreSQL (psycopg)", "psycopg", "database"),
    ("Matplotlib", "matplotlib", "report"),
    ("Live page (starlette)", "starlette", "watch"),
    ("TensorBoard", "tensorboard", "tensorboard"),
    ("MLflow", "mlflow", "mlflow"),
    ("Prometheus client", "prometheus_client", "prometheus"),
)
NEEDED_LIBRARIES = (
    "ml_dtypes",
    "numpy",
    "pillow",
    "pydantic",
    "rich",
    "safetensors",
    "threadpoolctl",
    "tomli-w",
    "typer",
)
INSTALL = 'pip install "ringlet[{extra}]"'


@dataclass(frozen=True)
class Check:
    """One line of the report: ``ok``, ``missing`` (works without) or ``broken``; advice says how to fix it."""

    name: str
    status: Literal["ok", "missing", "broken"]
    found: str
    advice: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def all_checks() -> list[Check]:
    """Every check, in the order in which they are shown."""
    machine = describe_machine()
    return [
        Check("Ringlet", "ok", machine.versions["ringlet"]),
        Check("Python", "ok", f"{machine.python} on {machine.system} {machine.architecture}"),
        *(_needed(name) for name in NEEDED_LIBRARIES),
        *_kernels(),
        Check("Cores", "ok", f"{machine.cores} usable"),
        *_blas(),
        *(_optional(*entry) for entry in OPTIONAL_LIBRARIES),
        Check("Engines", "ok", _engines()),
        _launcher(),
        _data_cache(),
    ]


def tuning_choices() -> dict[str, str]:
    """The algorithm chosen for each convolution that was measured on this machine."""
    import json

    from ringlet.engines.native.tuning import cache_path

    try:
        stored = json.loads(cache_path().read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    entries = stored.items() if isinstance(stored, dict) else ()
    return {str(key): value for key, value in entries if isinstance(value, str)}


def _needed(name: str) -> Check:
    version = versions(name).get(name)
    if version is None:
        return Check(name, "broken", "not installed", f"pip install {name}")
    return Check(name, "ok", version)


def _optional(title: str, module: str, extra: str) -> Check:
    if find_spec(module) is None:
        return Check(title, "missing", "not installed", INSTALL.format(extra=extra))
    return Check(title, "ok", versions(module).get(module, "installed"))


def _engines() -> str:
    """What --engine can be here, and on which backends Keras could run."""
    found = ["native"]
    if find_spec("torch") is not None:
        found.append("torch")
    backends = [name for name in ("tensorflow", "torch", "jax") if find_spec(name) is not None]
    if find_spec("keras") is not None and backends:
        found.append(f"keras (on {', '.join(backends)}: KERAS_BACKEND)")
    return ", ".join(found)


def _kernels() -> list[Check]:
    from ringlet.errors import RingletError
    from ringlet.kernels import load

    try:
        kernels: Any = load("compiled")
    except RingletError as error:
        advice = "install Ringlet where a C++20 compiler is there; until then the slower NumPy kernels serve"
        return [Check("Compiled kernels", "missing", str(error).split(". ")[0], advice)]
    sets = kernels.instruction_sets()
    return [
        Check("Compiled kernels", "ok", f"{len(sets)} instruction sets built: {', '.join(map(str, sets))}"),
        Check("Instruction set", "ok", f"{kernels.instruction_set()} in use"),
        Check("Kernel threads", "ok", str(kernels.num_threads())),
    ]


def _blas() -> list[Check]:
    import numpy  # noqa: F401 - loads the BLAS library that threadpoolctl then finds
    from threadpoolctl import threadpool_info

    libraries = [entry for entry in threadpool_info() if entry.get("user_api") == "blas"]
    if not libraries:
        return [Check("BLAS", "missing", "not recognised", "NumPy's own is used; its threads cannot be limited")]
    return [Check("BLAS", "ok", _describe_blas(entry)) for entry in libraries]


def _describe_blas(entry: dict[str, Any]) -> str:
    name = " ".join(str(entry[key]) for key in ("internal_api", "version") if entry.get(key))
    kind = f", {entry['architecture']}" if entry.get("architecture") else ""
    return f"{name}{kind}, {entry.get('num_threads')} threads"


def _launcher() -> Check:
    found = next((name for name in ("mpiexec", "mpirun", "srun") if shutil.which(name)), None)
    if found is None:
        return Check("MPI launcher", "missing", "no mpiexec, mpirun or srun", INSTALL.format(extra="mpi"))
    return Check("MPI launcher", "ok", str(shutil.which(found)))


def _data_cache() -> Check:
    from ringlet.data.cache import cache_directory
    from ringlet.data.catalogue import catalogue
    from ringlet.errors import RingletError

    try:
        folder = cache_directory()
        present = [entry.name for entry in catalogue() if entry.origin == "downloadable" and entry.present]
    except RingletError as error:
        return Check("Data cache", "broken", "no folder", str(error))
    parent = next(path for path in (folder, *folder.parents) if path.exists())
    if not os.access(parent, os.W_OK):
        return Check("Data cache", "broken", f"{folder} cannot be written", "set RINGLET_CACHE to a folder of yours")
    held = ", ".join(present) if present else "nothing fetched yet"
    advice = "" if present else "`ringlet datasets fetch mnist`"
    return Check("Data cache", "ok", f"{folder}: {held}", advice)
