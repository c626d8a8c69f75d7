"""DuckDB's functions, on connections of the user's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from pictures import HOSTILE, SHOTS
from rowtests import columns, expected_rows

from ringlet.database import connect, register
from ringlet.database.contract import Installation, Scoring
from ringlet.database.names import TableName

duckdb = pytest.importorskip("duckdb", reason="needs DuckDB: pip install 'ringlet[database]'")
FILE = "shots.db"


@pytest.fixture
def connection(own_folder, new_model):
    """A file with two models and a table of several row groups."""
    with connect(f"duckdb:{FILE}") as database:
        for name, file in (("cars", "classes.xml"), ("cars", "other.xml"), ("masks", "masks.xml")):
            database.install(Installation(new_model(name, file)))
    found = duckdb.connect(FILE)
    found.execute("create table shots (id bigint, image blob)")
    found.executemany("insert into shots values (?, ?)", [[index, image] for index, image in enumerate(SHOTS)])
    yield found
    found.close()


@pytest.fixture
def functions(connection, own_folder):
    found = register(connection, threads=2, batch_size=4, allow_directory=own_folder)
    yield found
    found.close()


def predicted(connection, model, table="shots"):
    query = f"select id, ringlet_predict(?, image) as p from {table}"
    return connection.execute(f"select {columns('p.')} from ({query}) order by id", [model]).fetchall()


def test_results_equal_those_of_predict_exactly(connection, functions, models):
    assert predicted(connection, "cars:1") == expected_rows(models / "classes.xml", SHOTS)
    assert predicted(connection, "cars") == expected_rows(models / "other.xml", SHOTS)
    assert predicted(connection, "masks") == expected_rows(models / "masks.xml", SHOTS)


def test_real_pictures_in_parquet_files_are_predicted(connection, functions, models, real_data):
    files = [str(file) for file in sorted((real_data / "carvana/val/images").glob("*.jpg"))[:6]]
    for name, part in (("a", files[:3]), ("b", files[3:])):
        connection.execute(f"copy (select filename, content from read_blob(?)) to '{name}.parquet'", [part])
    query = "select filename, ringlet_predict('masks', content) as p from '*.parquet'"
    found = connection.execute(f"select {columns('p.')} from ({query}) order by filename").fetchall()
    assert found == expected_rows(models / "masks.xml", [Path(file).read_bytes() for file in files])


def test_threads_share_one_model(connection, functions, models):
    connection.execute("attach 'many.db' (row_group_size 2048)")
    connection.execute("create table many.shots as select i as id, image from shots, range(600) t(i)")
    connection.execute("set threads = 4")
    query = "select ringlet_predict('cars:1', image) as p, image from many.shots"
    found = connection.execute(f"select count(*), count(distinct p.probability) from ({query})").fetchall()
    expected = {row[2] for row in expected_rows(models / "classes.xml", SHOTS)}
    assert found == [(600 * len(SHOTS), len(expected))]
    assert functions.cache.num_loads == 1


def test_a_warm_call_never_loads_a_model_again(connection, functions):
    for _ in range(3):
        predicted(connection, "masks")
    assert functions.cache.num_loads == 1
    predicted(connection, "cars")
    predicted(connection, "cars:2")
    assert functions.cache.num_loads == 2


def test_several_models_in_one_query_and_several_columns_of_one_call(connection, functions, models):
    query = """
        select ringlet_predict(case when id % 2 = 0 then 'cars:1' when id = 3 then null else 'cars:2' end, image).class,
               ringlet_predict('masks', image).share from shots order by id
    """
    found = connection.execute(query).fetchall()
    even, odd = (expected_rows(models / file, SHOTS) for file in ("classes.xml", "other.xml"))
    mixed = [(odd if index % 2 else even)[index][0] for index in range(len(SHOTS))]
    mixed[3] = None
    assert [row[0] for row in found] == mixed
    assert [row[1] for row in found] == [row[4] for row in expected_rows(models / "masks.xml", SHOTS)]


def test_null_in_null_out_and_hostile_rows_have_errors(connection, functions, models):
    images = [None, *HOSTILE.values(), SHOTS[0]]
    connection.execute("create table rough (id bigint, image blob)")
    connection.executemany("insert into rough values (?, ?)", [[index, image] for index, image in enumerate(images)])
    found = predicted(connection, "cars:1", "rough")
    assert set(found[0]) == {None}
    assert all(reason in row[-1] for reason, row in zip(HOSTILE, found[1:-1], strict=True))
    assert found[-1:] == expected_rows(models / "classes.xml", SHOTS[:1])
    assert connection.execute("select ringlet_predict('cars', null) is null").fetchall() == [(True,)]


def test_files_are_read_below_the_allowed_directory(connection, functions, models, tmp_path):
    Path("a.png").write_bytes(SHOTS[0])
    (tmp_path / "outside.png").write_bytes(SHOTS[0])
    Path("list.csv").write_text("path\na.png\n../outside.png\n", encoding="utf-8")
    query = "select ringlet_predict_file('masks', path) as p from 'list.csv'"
    good, bad = connection.execute(f"select {columns('p.')} from ({query})").fetchall()
    assert [good] == expected_rows(models / "masks.xml", SHOTS[:1])
    assert bad[-1] == "../outside.png: outside of the allowed directory"


def test_without_an_allowed_directory_no_file_is_read(connection):
    found = register(connection, threads=1)
    with pytest.raises(duckdb.Error, match="no directory is allowed"):
        connection.execute("select ringlet_predict_file('masks', 'a.png')").fetchall()
    found.close()


@pytest.mark.parametrize(
    ("model", "message"),
    [("car", "Did you mean 'cars'"), ("cars:9", "unknown model"), ("x' or '1'='1", "names no model")],
)
def test_an_unknown_model_is_an_error_of_the_call_and_nothing_else(connection, functions, model, message):
    with pytest.raises(duckdb.Error, match=message):
        predicted(connection, model)
    assert len(predicted(connection, "cars")) == len(SHOTS)


def test_a_changed_model_is_an_error_of_the_call(connection, functions):
    connection.execute("update ringlet_models set network = 'x'::blob where name = 'masks'")
    with pytest.raises(duckdb.Error, match="not what was installed"):
        predicted(connection, "masks")
    assert len(predicted(connection, "cars")) == len(SHOTS)


def test_models_in_files_need_no_table(own_folder, models):
    with duckdb.connect() as connection:
        found = register(connection, threads=1, models={"mine": models / "kinds.onnx"})
        connection.execute("create table shots as select 0 as id, ?::blob as image", [SHOTS[0]])
        assert predicted(connection, "mine") == expected_rows(models / "kinds.onnx", SHOTS[:1])
        with pytest.raises(duckdb.Error, match="unknown model 'cars'"):
            predicted(connection, "cars")
        found.close()


def test_closing_takes_the_functions_away(connection, functions):
    functions.close()
    with pytest.raises(duckdb.Error, match="ringlet_predict"):
        predicted(connection, "cars")


def test_what_a_dry_run_prints_can_be_run(own_folder, new_model, models):
    address, model = "duckdb:new.db", new_model("cars", "classes.xml")
    with connect(address, access="pretend") as database:
        install = database.script(database.plan_install(Installation(model)))
    with duckdb.connect("new.db") as connection:
        connection.execute(install)
        connection.execute("create table shots as select 7 as id, ?::blob as image", [SHOTS[0]])
    wanted = Scoring("cars", model.artifact, "select id, image from shots", TableName.parse("scores"))
    with connect(address, access="pretend") as database:
        score = database.script(database.plan_score(wanted))
    with duckdb.connect("new.db") as connection:
        functions = register(connection, threads=1)
        connection.execute(score)
        found = connection.execute(f"select {columns()} from scores").fetchall()
        functions.close()
    assert found == expected_rows(models / "classes.xml", SHOTS[:1])


def test_a_new_file_stays_if_something_was_stored_in_it(own_folder, new_model):
    for number, text in enumerate(("create table t (i integer)", "create sequence s", "create schema x", "select 1")):
        with connect(f"duckdb:{number}.db") as database:
            database.connection.execute(text)
    with connect("duckdb:model.db") as database:
        database.install(Installation(new_model("cars", "classes.xml")))
    with duckdb.connect("old.db"), connect("duckdb:other.db", access="pretend"):
        pass
    with connect("duckdb:old.db"):
        pass
    assert sorted(path.name for path in own_folder.iterdir()) == ["0.db", "1.db", "2.db", "model.db", "old.db"]
