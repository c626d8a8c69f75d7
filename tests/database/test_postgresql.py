"""Functions inside PostgreSQL servers: results, errors, rights, parallel workers, shards."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from pictures import HOSTILE, ODD_CHANNELS, SHOTS
from private_server import programs
from rowtests import columns, expected_rows

from ringlet.cli.main import main
from ringlet.database import DatabaseError, connect
from ringlet.database.contract import Installation, Scoring
from ringlet.database.functions import FunctionSettings
from ringlet.database.names import TableName

psycopg = pytest.importorskip("psycopg", reason="needs psycopg: pip install 'ringlet[database]'")
pytestmark = pytest.mark.xdist_group("postgresql")
PATH = "set search_path = public, ringlet"
INSIDE = """
create function processes(anything text) returns text language plpython3u volatile parallel safe as $$
import os
from ringlet.database import inside
return f"{os.getpid()} {inside._Process.cache.num_loads}"
$$
"""
"""The process that computed a row and how many models it has loaded; its argument is there to come after that."""


@pytest.fixture(scope="module")
def database(servers, new_model, tmp_path_factory):
    """The address of a database with models, functions and pictures."""
    folder = servers[0].folder / "pictures"
    folder.mkdir()
    folder.chmod(0o755)
    for index, image in enumerate(SHOTS[:2]):
        (folder / f"shot{index}.png").write_bytes(image)
    (folder / "link.png").symlink_to("/etc/passwd")
    address = servers[0].fresh_database()
    with connect(address) as found:
        settings = FunctionSettings(allow_directory=str(folder))
        found.install(Installation(new_model("cars", "classes.xml"), settings))
        more = {"cars": "other.xml", "masks": "masks.xml", "kinds": "kinds.onnx", "native": "masks.safetensors"}
        for name, file in more.items():
            found.install(Installation(new_model(name, file), with_functions=False))
    with psycopg.connect(address, autocommit=True) as connection:
        fill(connection, SHOTS)
    return address


@pytest.fixture(scope="module")
def session(database):
    """One connection, whose process keeps its models."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(PATH)
        yield connection


def fill(connection, images):
    connection.execute("create table shots (id bigint primary key, image bytea)")
    with connection.cursor() as cursor:
        cursor.executemany("insert into shots values (%s, %s)", list(enumerate(images)))


def predicted(connection, model, images):
    rows = "unnest(%s::bytea[]) with ordinality s(image, i), ringlet_predict(%s, image) p"
    return connection.execute(f"select {columns('p.')} from {rows} order by i", [images, model]).fetchall()


def loads(connection):
    return json.loads(connection.execute("select ringlet._about(null)").fetchone()[0])["loads"]


@pytest.mark.parametrize(
    ("model", "file"),
    [
        ("cars:1", "classes.xml"),
        ("cars", "other.xml"),
        ("masks", "masks.xml"),
        ("kinds", "kinds.onnx"),
        ("native", "masks.safetensors"),
    ],
)
def test_results_equal_those_of_predict_exactly(session, models, model, file):
    query = f"select {columns('p.')} from shots, ringlet_predict(%s, image) p order by id"
    assert session.execute(query, [model]).fetchall() == expected_rows(models / file, SHOTS)


def test_every_way_to_write_a_call_gives_the_same(session, models):
    expected = expected_rows(models / "masks.xml", SHOTS)
    star = session.execute("select (ringlet_predict('masks', image)).* from shots order by id").fetchall()
    batch = """
        select p.* from (select array_agg(id order by id) as ids, array_agg(image order by id) as images from shots) s,
        ringlet_predict_batch('masks', ids, images) p
    """
    assert star == expected
    assert session.execute(batch).fetchall() == [(index, *row) for index, row in enumerate(expected)]


def test_real_pictures(session, models, real_data):
    images = [path.read_bytes() for path in sorted((real_data / "carvana/val/images").glob("*.jpg"))[:3]]
    assert predicted(session, "masks", images) == expected_rows(models / "masks.xml", images)


def test_a_warm_call_never_loads_a_model_again(database):
    with psycopg.connect(database, autocommit=True) as connection:
        assert loads(connection) == 0
        for _ in range(2):
            connection.execute("select ringlet.ringlet_predict('masks', image) from shots")
            connection.execute("select ringlet.ringlet_predict('masks:1', image) from shots")
        assert loads(connection) == 1


def test_null_in_null_out(session):
    query = "select ringlet_predict('cars', null) is null, ringlet_predict(null, 'x') is null"
    assert session.execute(query).fetchall() == [(True, True)]
    batch = "select * from ringlet_predict_batch('cars', array[1, null], array[null, %s]::bytea[])"
    [empty, unnamed] = session.execute(batch, [SHOTS[0]]).fetchall()
    assert empty == (1, *[None] * 6)
    assert unnamed[0] is None
    assert unnamed[2] in ("cat", "dog", "cow")


def test_hostile_rows_have_errors_and_harm_nobody(session, models):
    images = [SHOTS[0], *HOSTILE.values(), *ODD_CHANNELS, SHOTS[1]]
    found = predicted(session, "cars:1", images)
    assert [found[0], found[-1]] == expected_rows(models / "classes.xml", SHOTS[:2])
    assert all(reason in row[-1] for reason, row in zip(HOSTILE, found[1:], strict=False))
    assert all(row[-1] is None for row in found[1 + len(HOSTILE) :])


@pytest.mark.parametrize("model", ["car", "cars:3", "cars:x", "cars:", "x'; drop table shots; --", 'a"b', ""])
def test_an_unknown_model_is_an_error_of_the_call(session, model):
    with pytest.raises(psycopg.Error, match=r"no model '.*' is installed"):
        session.execute("select ringlet_predict(%s, image) from shots", [model])
    assert session.execute("select count(*) from shots").fetchone() == (len(SHOTS),)


def test_a_model_whose_hash_does_not_match_is_an_error_of_the_call(database):
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("begin; update ringlet.models set weights = 'x' where name = 'masks'")
        connection.execute("savepoint before")
        with pytest.raises(psycopg.Error, match="not what was installed"):
            connection.execute("select ringlet.ringlet_predict('masks', image) from shots")
        connection.execute("rollback to before")
        connection.execute("select ringlet.ringlet_predict('cars', image) from shots")
        connection.execute("rollback")
        connection.execute("select ringlet.ringlet_predict('masks', image) from shots")


def test_files_are_read_below_the_allowed_directory_only(session, servers, models):
    query = f"select {columns('p.')} from unnest(%s::text[]) s(path), ringlet_predict_file('masks', path) p"
    folder = str(servers[0].folder / "pictures")
    good = session.execute(query, [["shot0.png", f"{folder}/shot1.png"]]).fetchall()
    assert good == expected_rows(models / "masks.xml", SHOTS[:2])
    outside = ["/etc/passwd", "../data/postgresql.conf", "link.png", f"{folder}/../data/PG_VERSION"]
    found = session.execute(query, [[*outside, "none.png"]]).fetchall()
    assert [row[-1] for row in found[:-1]] == [f"{path}: outside of the allowed directory" for path in outside]
    assert "No such file" in found[-1][-1]


def test_parallel_workers_run_the_model(database, models):
    many = "create table many as select s.id * 1000 + i as id, image from shots s, generate_series(1, 100) i"
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(INSIDE)
        connection.execute(many)
        connection.execute("alter table many set (parallel_workers = 2); analyze many")
        connection.execute("set max_parallel_workers_per_gather = 2; set parallel_leader_participation = off")
        query = """
            select processes(error), probability, id from (
                select id, (p).probability, (p).error from (
                    select id, ringlet.ringlet_predict('cars:1', image) as p from many) s) t
        """
        leader = str(connection.info.backend_pid)
        plan = "\n".join(row[0] for row in connection.execute(f"explain {query}"))
        found = connection.execute(query).fetchall()
    assert "Workers Planned: 2" in plan
    owners = {owner.split()[0] for owner, _, _ in found}
    assert len(owners) == 2
    assert leader not in owners
    assert {owner.split()[1] for owner, _, _ in found} == {"1"}
    expected = [row[2] for row in expected_rows(models / "classes.xml", SHOTS)]
    assert all(probability == expected[key // 1000] for _, probability, key in found)


def test_two_servers_are_shards_that_score_their_own_rows(servers, new_model, models):
    model, found = new_model("cars", "classes.xml"), {}
    for number, server in enumerate(servers):
        address = server.fresh_database()
        with connect(address) as database:
            database.install(Installation(model))
        with psycopg.connect(address, autocommit=True) as connection:
            fill(connection, SHOTS)
            connection.execute("delete from shots where id %% 2 <> %s", [number])
            rows = connection.execute(
                f"select id, {columns('p.')} from shots, ringlet.ringlet_predict('cars', image) p"
            )
            part = {row[0]: row[1:] for row in rows}
        assert len(part) == len(SHOTS) // 2
        found |= part
    assert [found[index] for index in range(len(SHOTS))] == expected_rows(models / "classes.xml", SHOTS)


def test_a_role_may_predict_if_it_was_granted_and_nothing_else(postgresql, new_model):
    with psycopg.connect(postgresql, autocommit=True) as connection:
        connection.execute("drop role if exists analyst; drop role if exists stranger")
        connection.execute("create role analyst login; create role stranger login")
    with connect(postgresql) as database:
        database.install(Installation(new_model("cars", "classes.xml"), roles=["analyst"]))
    as_role = "postgresql://{}@" + postgresql.partition("@")[2]
    predict, refused = "select (ringlet.ringlet_predict('cars', %s)).label", psycopg.errors.InsufficientPrivilege
    with psycopg.connect(as_role.format("analyst"), autocommit=True) as connection:
        assert connection.execute(predict, [SHOTS[0]]).fetchone()[0] in ("cat", "dog's", 'cow "x" ü')
        for inner in (
            "select * from ringlet.models",
            "select ringlet._open('x', 'onnx', 'x', null)",
            "select ringlet._predict_file('x', '/etc/passwd')",
            "select ringlet._find('cars')",
            "delete from ringlet.models",
        ):
            with pytest.raises(refused):
                connection.execute(inner)
    with psycopg.connect(as_role.format("stranger"), autocommit=True) as connection, pytest.raises(refused):
        connection.execute(predict, [SHOTS[0]])
    with connect(as_role.format("stranger")) as database, pytest.raises(DatabaseError, match="superuser"):
        database.install(Installation(new_model("cars", "classes.xml"), FunctionSettings()))


def test_a_schema_that_others_use_too_must_hold_no_code_of_theirs(postgresql, new_model):
    wanted = Installation(new_model("cars", "classes.xml"))
    code = "create function public.own() returns text language sql as 'select null::text'"
    with psycopg.connect(postgresql, autocommit=True) as connection, connect(postgresql, schema="public") as database:
        connection.execute("drop role if exists neighbour; create role neighbour")
        connection.execute("grant create on schema public to neighbour; set role neighbour")
        connection.execute("create table public.own (id integer); create view public.seen as select id from public.own")
        assert str(database.install(wanted).reference) == "cars:1"
        connection.execute(code)
        with pytest.raises(DatabaseError, match=re.escape("function public.own() belongs to 'neighbour'")):
            database.install(wanted)
        connection.execute("reset role; drop owned by neighbour; drop role neighbour")


def test_a_schema_of_another_name_and_a_function_in_its_way(postgresql, new_model, models):
    with connect(postgresql, schema="Lab") as database:
        database.install(Installation(new_model("cars", "classes.xml")))
    with psycopg.connect(postgresql, autocommit=True) as connection:
        connection.execute(
            "create function public.split_part(text, text, integer) returns text language sql as 'select null::text'"
        )
        connection.execute("set search_path = public, pg_catalog")
        query = f"select {columns('p.')} from \"Lab\".ringlet_predict('cars', %s) p"
        assert connection.execute(query, [SHOTS[0]]).fetchall() == expected_rows(models / "classes.xml", SHOTS[:1])


def test_a_server_that_cannot_import_ringlet_says_what_to_do_and_keeps_nothing(
    postgresql, new_model, tmp_path, servers
):
    broken = servers[0].folder / "broken"
    (broken / "ringlet").mkdir(parents=True)
    (broken / "ringlet/__init__.py").touch()
    broken.chmod(0o755)
    settings = FunctionSettings(python_path=str(broken))
    with connect(postgresql) as database:
        with pytest.raises(DatabaseError, match=r"No module named 'ringlet.database'.*--python-path"):
            database.install(Installation(new_model("cars", "classes.xml"), settings))
        assert database.models() == []


def test_functions_stay_as_they_are_until_someone_asks_for_others(postgresql, new_model):
    body = "select prosrc from pg_proc where proname = '_predict_file'"
    with connect(postgresql) as database, psycopg.connect(postgresql, autocommit=True) as connection:
        first = Installation(new_model("cars", "classes.xml"), FunctionSettings(allow_directory="/srv/shots"))
        database.install(first)
        database.install(Installation(new_model("cars", "other.xml")))
        assert "'/srv/shots'" in connection.execute(body).fetchone()[0]
        database.install(Installation(new_model("cars", "other.xml"), FunctionSettings()))
        assert "None" in connection.execute(body).fetchone()[0]
        with pytest.raises(psycopg.Error, match="no directory is allowed"):
            connection.execute("select ringlet.ringlet_predict_file('cars', 'a.png')")


def test_what_a_dry_run_prints_can_be_run(postgresql, new_model, models):
    model = new_model("cars", "classes.xml")
    with connect(postgresql, access="pretend") as database:
        text = database.script(database.plan_install(Installation(model, roles=["postgres"])))
    psql(postgresql, text)
    with psycopg.connect(postgresql, autocommit=True) as connection:
        fill(connection, SHOTS[:2])
        query = f"select {columns('p.')} from shots, ringlet.ringlet_predict('cars', image) p order by id"
        assert connection.execute(query).fetchall() == expected_rows(models / "classes.xml", SHOTS[:2])
    wanted = Scoring("cars", model.artifact, "select id, image from shots", TableName.parse("scores"))
    with connect(postgresql, access="pretend") as database:
        psql(postgresql, database.script(database.plan_score(wanted)))
    with psycopg.connect(postgresql) as connection:
        assert connection.execute("select * from scores").fetchall() == []


def psql(address, text):
    """Run a script, stopping at the first error."""
    Path("script.sql").write_text(text, encoding="utf-8")
    command = [programs() / "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", "script.sql", address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_the_command_line_installs_lists_scores_and_removes(postgresql, models, capsys):
    def ringlet(*arguments):
        code = main(["sql", *arguments])
        return code, json.loads(capsys.readouterr().out)

    with psycopg.connect(postgresql, autocommit=True) as connection:
        fill(connection, [*SHOTS[:3], b"bad", None])
    code, document = ringlet("install", postgresql, str(models / "masks.xml"), "--name", "cars", "--json")
    assert (code, document["model"], document["server"]["loads"]) == (0, "cars:1", 0)
    code, document = ringlet("list", postgresql, "--verify", "--json")
    assert (code, document["models"][0]["task"], document["models"][0]["problem"]) == (0, "segmentation", None)
    options = ("--query", "select id, image from shots", "--into", "public.scores", "--batch-size", "2", "--json")
    code, document = ringlet("score", postgresql, "--model", "cars:1", *options)
    assert (code, document["num_rows"], document["num_errors"], document["num_nulls"]) == (1, 5, 1, 1)
    with psycopg.connect(postgresql) as connection:
        found = connection.execute(f"select {columns()} from scores where id < 3 order by id").fetchall()
    assert found == expected_rows(models / "masks.xml", SHOTS[:3])
    assert ringlet("remove", postgresql, "cars", "--json")[1]["removed"] == ["cars:1"]


def test_keys_of_any_type_keep_it(postgresql, new_model):
    query = "select '{1,2}'::numeric(5,2)[] as k, null::bytea as image union all select null, 'x'"
    wanted = Scoring("cars", new_model("cars", "classes.xml").artifact, query, TableName.parse("scores"))
    with connect(postgresql) as database:
        database.score(wanted)
    with psycopg.connect(postgresql) as connection:
        kind, count = connection.execute("select pg_typeof(k)::text, count(*) over () from scores").fetchone()
    assert (kind, count) == ("numeric[]", 2)


def test_a_server_that_is_not_there_is_one_clear_message(tmp_path):
    with pytest.raises(DatabaseError, match=re.escape("postgresql://me:***@/db")) as caught:
        connect(f"postgresql://me:secret@/db?host={tmp_path}")
    assert "secret" not in str(caught.value)


def test_no_process_of_the_servers_has_crashed(servers, session):
    """The last test of this file: all that went before left the servers well."""
    session.execute("select 1")
    lines = [line for server in servers for line in server.log]
    assert not [line for line in lines if "terminated by signal" in line or "PANIC" in line or "corrupt" in line]
