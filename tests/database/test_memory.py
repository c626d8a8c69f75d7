"""Rows that wait take no memory: pictures are read and decoded a few at a time, however many a query gives."""

from __future__ import annotations

import tracemalloc
import weakref
from pathlib import Path
from threading import Lock

import pytest
from pictures import SHOTS, picture
from rowtests import columns, expected_rows

from ringlet.database import connect, inside, register
from ringlet.database.contract import Scoring
from ringlet.database.names import TableName
from ringlet.database.rows import AllowedDirectory, file_item, predict_rows, read_item
from ringlet.inference import Predictor

NUM_ROWS = 2048
"""As many as DuckDB gives to a function at a time."""
PADDING = 100_000
THREADS = 2
pytestmark = pytest.mark.xdist_group("postgresql")


class Content(bytes):
    """The content of a file, which knows how many of them there are."""

    lock = Lock()
    num_read = num_alive = most = 0

    def __new__(cls, content: bytes) -> Content:
        with cls.lock:
            cls.num_read += 1
            cls.num_alive += 1
            cls.most = max(cls.most, cls.num_alive)
        return super().__new__(cls, content)

    def __del__(self) -> None:
        with Content.lock:
            Content.num_alive -= 1


@pytest.fixture
def contents(monkeypatch):
    """Counts what :class:`AllowedDirectory` reads."""
    read = AllowedDirectory.read
    monkeypatch.setattr(AllowedDirectory, "read", lambda directory, path: Content(read(directory, path)))
    Content.num_read = Content.num_alive = Content.most = 0
    return Content


@pytest.fixture
def shots(own_folder):
    """Pictures that are small to decode and large to read; the last path leads nowhere."""
    for index, shot in enumerate(SHOTS):
        Path(f"shot{index}.png").write_bytes(shot + bytes(PADDING))
    return [f"shot{index % len(SHOTS)}.png" for index in range(NUM_ROWS - 1)] + ["none.png"]


def execute(database, text, values=None):
    mark = "?" if database.shown.startswith("duckdb") else "%s"
    cursor = database.connection.cursor()
    cursor.execute(text.replace("?", mark), *([values] if values else []))
    return cursor.fetchall() if text.startswith("select") else []


def test_files_are_read_when_they_are_decoded_and_no_sooner(url, new_model, models, own_folder, shots, contents):
    artifact, query = new_model("masks", "masks.xml").artifact, "select id, path from paths"
    options = {"threads": THREADS, "batch_size": 8, "allow_directory": str(own_folder)}
    with connect(url) as database:
        execute(database, "create table paths (id bigint, path text)")
        for start in range(0, NUM_ROWS, 512):
            rows = ", ".join(f"({start + index}, '{path}')" for index, path in enumerate(shots[start : start + 512]))
            execute(database, f"insert into paths values {rows}")
        outcome = database.score(Scoring("masks", artifact, query, TableName.parse("scores"), **options))
        found = execute(database, f'select {columns()} from "scores" order by id')
    assert (outcome.num_rows, outcome.num_errors, contents.num_read) == (NUM_ROWS, 1, NUM_ROWS - 1)
    assert contents.most <= THREADS
    expected = expected_rows(models / "masks.xml", SHOTS)
    assert found[:-1] == [expected[index % len(SHOTS)] for index in range(NUM_ROWS - 1)]
    assert found[-1][-1] == "none.png: cannot be read: No such file or directory"


@pytest.mark.parametrize("source", ["files", "bytes"])
def test_a_chunk_of_duckdb_takes_the_memory_of_a_few_pictures(own_folder, models, shots, source):
    duckdb = pytest.importorskip("duckdb", reason="needs DuckDB: pip install 'ringlet[database]'")
    given = {"masks": models / "masks.xml"}
    with (
        duckdb.connect() as connection,
        register(connection, threads=THREADS, batch_size=8, allow_directory=own_folder, models=given),
    ):
        connection.execute("set threads = 1; create table paths as select unnest(?) as path", [shots])
        function = "ringlet_predict_file('masks', path)"
        if source == "bytes":
            connection.execute("create table files as select filename, content from read_blob('shot*.png')")
            connection.execute("alter table paths add image blob")
            connection.execute(
                "update paths set image = content from files where filename like '%/' || path or filename = path"
            )
            function = "ringlet_predict('masks', image)"
        tracemalloc.start()
        try:
            query = f"select count(p.mask) from (select {function} as p from paths)"
            assert connection.execute(query).fetchall() == [(NUM_ROWS - 1,)]
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < NUM_ROWS * PADDING / 10, f"{peak:,} bytes for {NUM_ROWS * PADDING:,} bytes of pictures"


def test_masks_of_a_batch_are_made_one_after_the_other(models, monkeypatch):
    alive, most = [], []
    with Predictor(models / "masks.xml", threads=1, batch_size=8) as predictor:
        interpret = predictor._interpret

        def watch(*arguments):
            found = interpret(*arguments)
            alive.append(weakref.ref(found.mask))
            return found

        def count(prediction):
            most.append(sum(mask() is not None for mask in alive))
            return prediction.share

        monkeypatch.setattr(predictor, "_interpret", watch)
        shares = predictor.map(count, [picture(index, 300, 200) for index in range(8)])
    assert (len(alive), len(shares)) == (8, 8)
    assert max(most) <= 2  # one, and the one before it that the loop has not let go of


def test_a_file_that_has_changed_is_predicted_again_inside_a_server(new_model, own_folder, monkeypatch):
    monkeypatch.setattr(inside._Process, "cache", None)
    monkeypatch.setattr(inside._Process, "last", None)
    model = new_model("masks", "masks.xml")
    opened = inside.open_model(model.sha256, "openvino", model.artifact.network, model.artifact.weights)
    found = []
    for shot in SHOTS[:2]:
        Path("a.png").write_bytes(shot)
        found.append(inside.predict_file(opened, "a.png", str(own_folder)))
    assert found == [inside.predict(opened, shot) for shot in SHOTS[:2]]
    assert found[0] != found[1]
    inside._Process.cache.close()


def test_a_path_that_cannot_be_read_has_the_same_error_whenever_it_is_read(models, own_folder):
    directory = AllowedDirectory(str(own_folder))
    items = [file_item(path, directory) for path in ("none.png", "../secret.png", "a\0b", None)]
    with Predictor(models / "masks.xml", threads=1) as predictor:
        later, sooner = predict_rows(predictor, items), predict_rows(predictor, [read_item(item) for item in items])
    assert later == sooner
    assert [row and row["error"] for row in later] == [
        "none.png: cannot be read: No such file or directory",
        "../secret.png: outside of the allowed directory",
        "the path holds a zero byte",
        None,
    ]
