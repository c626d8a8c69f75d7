"""Scoring inside databases: DuckDB on one and two threads, PostgreSQL with a parallel worker, two servers as shards.

    python -m benchmarks.database_scoring [--rows 4096] [--only duckdb,parallel,shards,warm]

A small U-Net (64 x 64, FP16 weights, OpenVINO, one thread per process) predicts the mask of every picture in a table
and encodes it as PNG. "times" compares with the first line of each part. PostgreSQL servers are private ones, started
for this (Debian's postgresql-15 and postgresql-plpython3-15); their clients wait in this process, one thread each.
"warm" is what a row costs when its process has the model, and when it must load it for every row, as functions without
a cache do.
"""

from __future__ import annotations

import io
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image

from benchmarks.common import parser, print_machine, report
from ringlet.bench.timing import Variant, take_turns
from ringlet.data.normalization import BYTES
from ringlet.export import openvino
from ringlet.export.network import fold
from ringlet.inference.description import describe
from ringlet.models import zoo
from ringlet.models.initializers import initial_values

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "database"))  # the private server of the tests

COLUMNS = ("database", "how", "rows", "seconds", "rows/s", "times")
PARTS = ("duckdb", "parallel", "shards", "warm")
COUNT = "select count((p).share) from (select ringlet.ringlet_predict('unet', image) as p from {}) s"
FORGET = """
create function forget(image bytea) returns bytea language plpython3u volatile as $$
from ringlet.database import inside
inside._Process.cache = inside._Process.last = None
return image
$$
"""
NUM_WARM = 32


@dataclass(frozen=True)
class Setting:
    """What all parts share."""

    folder: Path
    images: Sequence[bytes]
    num_rounds: int

    @property
    def model(self) -> Path:
        """The exported network."""
        return self.folder / "unet.xml"


def main() -> None:
    """Measure and print."""
    options = parser(__doc__, num_rounds=3, num_threads=None)
    options.add_argument("--rows", type=int, default=4096, help="pictures (default: %(default)s)")
    options.add_argument("--only", default=",".join(PARTS), help="comma list (default: %(default)s)")
    given = options.parse_args()
    print_machine("duckdb", "openvino", "psycopg")
    rows, results = [], []
    with tempfile.TemporaryDirectory() as folder:
        setting = Setting(Path(folder), pictures(given.rows), given.rounds)
        write_model(setting.model)
        for part in given.only.split(","):
            entries, num_rows = MEASURES[part](setting)
            rows += [_row(part, entry, num_rows, entries[0]) for entry in entries]
            results.append({"part": part, "rows": num_rows, "variants": [entry.to_dict() for entry in entries]})
            print(f"  {part}: {entries[0].median / entries[-1].median:.2f} x", flush=True)
    print()
    report(given, "database_scoring", COLUMNS, rows, num_keys=2, results=results)


def pictures(count: int) -> list[bytes]:
    """PNG files of 64 x 64 pixels."""
    rng, found = np.random.default_rng(0), []
    for _ in range(count):
        stream = io.BytesIO()
        coarse = PIL.Image.fromarray(rng.integers(0, 256, (8, 8, 3)).astype(np.uint8))
        coarse.resize((64, 64), PIL.Image.Resampling.BICUBIC).save(stream, "PNG")
        found.append(stream.getvalue())
    return found


def write_model(path: Path) -> None:
    """A narrow U-Net that is not trained."""
    spec = zoo.create("unet", input_shape=(3, 64, 64), width=4, levels=3)
    tensors = {info.name: initial_values(info, 0, "float32") for info in (*spec.parameters, *spec.state)}
    description = describe(spec, BYTES, ("object",), weights="fp16")
    openvino.save(openvino.build_model(fold(spec, tensors), description), path, description)


def measure_duckdb(setting: Setting) -> tuple[list[Variant], int]:
    """Threads of one query, over row groups of 2,048 rows (or fewer pictures than that on one)."""
    import duckdb
    import pyarrow

    from ringlet.database import register

    table = pyarrow.table({"id": range(len(setting.images)), "image": setting.images})
    query = "select count(p.share) from (select ringlet_predict('unet', image) as p from rows.shots)"
    with duckdb.connect() as connection, ExitStack() as stack:
        connection.execute(f"attach '{setting.folder / 'rows.db'}' as rows (row_group_size 2048)")
        connection.register("pictures", table)
        connection.execute("create table rows.shots as select * from pictures")
        registered: list[Any] = []
        stack.callback(lambda: [functions.close() for functions in registered])

        def enter(threads: int) -> None:
            while registered:
                registered.pop().close()
            registered.append(register(connection, threads=threads, models={"unet": setting.model}))
            connection.execute(f"set threads = {threads}")
            connection.execute("select ringlet_predict('unet', image) from rows.shots limit 1").fetchall()

        entries = [
            Variant(name, _counting(lambda: connection.execute(query).fetchall()[0], setting), lambda n=n: enter(n))
            for n, name in ((1, "one thread"), (2, "two threads"))
        ]
        take_turns(entries, setting.num_rounds)
    return entries, len(setting.images)


def measure_parallel(setting: Setting) -> tuple[list[Variant], int]:
    """The leader alone, and sharing with one worker, which is a new process with every query."""
    with _servers(setting, [setting.images]) as [connection]:
        connection.execute("alter table shots set (parallel_workers = 1)")

        def enter(workers: int) -> None:
            connection.execute(f"set max_parallel_workers_per_gather = {workers}")

        step = _counting(lambda: connection.execute(COUNT.format("shots")).fetchone(), setting)
        entries = [
            Variant("leader alone", step, lambda: enter(0)),
            Variant("leader and one worker", step, lambda: enter(1)),
        ]
        take_turns(entries, setting.num_rounds)
    return entries, len(setting.images)


def measure_shards(setting: Setting) -> tuple[list[Variant], int]:
    """One server with all rows, and two that have half of them each."""
    parts = [setting.images, setting.images[::2], setting.images[1::2]]
    with _servers(setting, parts) as connections, ThreadPoolExecutor(2) as clients:
        for connection in connections:
            connection.execute("set max_parallel_workers_per_gather = 0")

        def ask(shards: Sequence[Any]) -> tuple[int]:
            return (sum(clients.map(lambda one: one.execute(COUNT.format("shots")).fetchone()[0], shards)),)

        entries = [
            Variant("one server", _counting(lambda: ask(connections[:1]), setting)),
            Variant("two servers", _counting(lambda: ask(connections[1:]), setting)),
        ]
        take_turns(entries, setting.num_rounds)
    return entries, len(setting.images)


def measure_warm(setting: Setting) -> tuple[list[Variant], int]:
    """A row with the model in its process, and with the model loaded for every row."""
    with _servers(setting, [setting.images[:NUM_WARM]]) as [connection]:
        connection.execute(FORGET)
        entries = [
            Variant(
                "loaded for every row",
                lambda: connection.execute(COUNT.format("(select forget(image) as image from shots offset 0) r")),
            ),
            Variant("warm, row by row", lambda: connection.execute(COUNT.format("shots"))),
        ]
        batch = """
            select count(share) from (select array_agg(id) as ids, array_agg(image) as images from shots) s,
            ringlet.ringlet_predict_batch('unet', ids, images)
        """
        entries.append(Variant("warm, one batch", lambda: connection.execute(batch)))
        take_turns(entries, setting.num_rounds)
    return entries, NUM_WARM


MEASURES: dict[str, Callable[[Setting], tuple[list[Variant], int]]] = {
    "duckdb": measure_duckdb,
    "parallel": measure_parallel,
    "shards": measure_shards,
    "warm": measure_warm,
}


@contextmanager
def _servers(setting: Setting, parts: Sequence[Sequence[bytes]]) -> Iterator[list[Any]]:
    """A server for each part of the pictures, with the model; connections to them."""
    import psycopg
    from private_server import Server, missing

    from ringlet.database import connect
    from ringlet.database.contract import Installation
    from ringlet.database.models import NewModel

    reason = missing()
    if reason is not None:
        raise SystemExit(reason)
    model = NewModel.read(setting.model, "unet")
    with ExitStack() as stack:
        found = []
        for part in parts:
            server = Server({"shared_buffers": "256MB"})
            stack.callback(server.stop)
            with connect(server.url()) as database:
                database.install(Installation(model))
            # Prepared statements keep their plan when the settings change: the leader would never be alone.
            client = psycopg.connect(server.url(), autocommit=True, prepare_threshold=None)
            connection = stack.enter_context(client)
            connection.execute("create table shots (id bigint primary key, image bytea)")
            with connection.cursor().copy("copy shots from stdin") as copy:
                for row in enumerate(part):
                    copy.write_row(row)
            connection.execute("vacuum analyze shots")
            found.append(connection)
        yield found


def _counting(ask: Callable[[], Any], setting: Setting) -> Callable[[], object]:
    """A step that fails if any row lacks its result."""

    def step() -> None:
        [count] = ask()
        if count != len(setting.images):
            raise SystemExit(f"{count} of {len(setting.images)} rows have a result")

    return step


def _row(part: str, entry: Variant, num_rows: int, first: Variant) -> tuple[object, ...]:
    rate = f"{num_rows / entry.median:,.0f}"
    database = "DuckDB" if part == "duckdb" else "PostgreSQL"
    return database, entry.name, num_rows, f"{entry.median:.3f}", rate, f"{first.median / entry.median:.2f} x"


if __name__ == "__main__":
    main()
