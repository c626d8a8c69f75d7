"""What may be written where, before any database is asked."""

from __future__ import annotations

import re

import pytest

from ringlet.database.drivers import DatabaseError
from ringlet.database.functions import FunctionSettings, create_functions, grant_functions
from ringlet.database.names import DatabaseUrl, Reference, TableName, identifier, model_name, quoted
from ringlet.database.ownership import runs_when_read, strangers_at_table, strangers_in_schema
from ringlet.database.statements import PLACE, Dialect, Statement, create_models, script
from ringlet.errors import UsageError

POSTGRESQL = Dialect.detect("PostgreSQL 15.18 (Debian 15.18-0+deb12u1) on x86_64", 150018)
GREENPLUM_6 = Dialect.detect("PostgreSQL 9.4.26 (Greenplum Database 6.25.3 build commit:1) on x86_64", 90426)
GREENPLUM_7 = Dialect.detect("PostgreSQL 12.12 (Greenplum Database 7.1.0 build commit:1) on x86_64", 120012)
CLOUDBERRY = Dialect.detect("PostgreSQL 14.4 (Apache Cloudberry 2.0.0-incubating build 1) on x86_64", 140004)


@pytest.mark.parametrize(("text", "name", "version"), [("cars", "cars", None), ("_a.b-c:12", "_a.b-c", 12)])
def test_a_reference_is_a_name_with_or_without_a_version(text, name, version):
    assert Reference.parse(text) == Reference(name, version)
    assert str(Reference.parse(text)) == text


@pytest.mark.parametrize(
    "text", ["", "1cars", "ca rs", "cars'", 'cars"', "cars:0", "cars:x", "cars:1:2", "cars;", "a" * 64, "cars\n", "ü"]
)
def test_any_other_reference_is_refused(text):
    with pytest.raises(UsageError, match="names no model"):
        Reference.parse(text)


def test_a_new_model_does_not_choose_its_version():
    with pytest.raises(UsageError, match="leave ':3' out"):
        model_name("cars:3")


@pytest.mark.parametrize("text", ['a"b', "a b", "a-b", "1a", "", "a;drop table x", "a" * 64])
def test_identifiers_are_from_an_allowlist(text):
    with pytest.raises(UsageError, match="cannot be the name of a schema"):
        identifier("schema", text)
    with pytest.raises(UsageError):
        TableName.parse(text)


def test_names_are_quoted_all_the_same():
    assert TableName.parse("lab.Scores").quoted == '"lab"."Scores"'
    assert quoted('a"b') == '"a""b"'


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_passwords_are_never_shown(scheme):
    url = DatabaseUrl.parse(f"{scheme}://me:s%3Acret@host:5433/db?sslpassword=hidden&x=1")
    assert url.shown == f"{scheme}://me:***@host:5433/db?sslpassword=***&x=1"
    assert "cret" not in repr(url) + url.hide("failed for s%3Acret, s:cret and hidden")


@pytest.mark.parametrize(
    "text", ["", "cars.db", "mysql://me:secret@host/db", "postgresql:me:secret@host", "duckdb:", "duckdb::memory:"]
)
def test_other_addresses_are_refused_without_repeating_them(text):
    with pytest.raises(UsageError, match="expected duckdb:FILE or postgresql://") as caught:
        DatabaseUrl.parse(text)
    assert "secret" not in str(caught.value)


def test_a_script_writes_values_out_and_leaves_per_cent_signs_alone():
    statement = Statement(f"select {PLACE}, {PLACE}, {PLACE}, {PLACE}, '%s'", ("it's", 3, None, b"\0\xff"))
    assert statement.script(blob="x'{}'") == "select 'it''s', 3, null, x'00ff', '%s';"
    assert statement.bound("%s") == "select %s, %s, %s, %s, '%%s'"
    assert script([Statement("select 1")], blob="") == "begin;\nselect 1;\ncommit;\n"


def test_a_script_for_eyes_cuts_long_bytes():
    shown = Statement(f"select {PLACE}", (bytes(1000),)).script(blob="x'{}'", shorten=True)
    assert len(shown) < 100
    assert "1,000 bytes" in shown


@pytest.mark.parametrize(
    ("dialect", "name", "parallel", "distributed"),
    [
        (POSTGRESQL, "PostgreSQL", True, False),
        (GREENPLUM_6, "Greenplum", False, True),
        (GREENPLUM_7, "Greenplum", True, True),
        (CLOUDBERRY, "Cloudberry", True, True),
    ],
)
def test_relatives_of_postgresql_get_what_they_know(dialect, name, parallel, distributed):
    functions = create_functions("ringlet", FunctionSettings(), dialect)
    made = [statement.text for statement in functions if statement.text.startswith("create")]
    table = create_models("m", blob="bytea", created="date", check="name ~ '{}'", dialect=dialect).text
    assert dialect.name == name
    assert all(("parallel safe" in text) == parallel for text in made)
    assert table.endswith("distributed replicated") == distributed
    assert ("distributed by" in dialect.distributed_by('"id"')) == distributed


@pytest.mark.parametrize("dialect", [POSTGRESQL, GREENPLUM_6, GREENPLUM_7, CLOUDBERRY])
def test_owners_are_asked_for_with_what_the_server_knows(dialect):
    searches = [
        strangers_in_schema("ringlet", dialect),
        strangers_at_table(1, dialect),
        runs_when_read("ringlet", dialect),
    ]
    for search in searches:
        assert ("pg_policy" in search.text or "relrowsecurity" in search.text) == (dialect != GREENPLUM_6)
        assert "recursive" not in search.text
        assert search.text.count(PLACE) == len(search.values)
        assert not re.search(r"(?:from|join) pg_(?!catalog\.)", search.text)


def test_greenplum_without_replicated_tables_is_refused():
    with pytest.raises(DatabaseError, match="Greenplum 5"):
        Dialect.detect("PostgreSQL 8.3.23 (Greenplum Database 5.28.0 build 1)", 80323)


def test_a_container_runs_the_same_body_below_its_name():
    settings = FunctionSettings("plcontainer", "plc_ringlet")
    plain = FunctionSettings().body("predict(sha256, image)")
    assert settings.body("predict(sha256, image)") == f"# container: plc_ringlet\n{plain}"
    texts = [statement.text for statement in create_functions("ringlet", settings, GREENPLUM_7)]
    assert sum("language plcontainer" in text for text in texts) == 7


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"language": "plpythonu"}, "unknown language"),
        ({"language": "plcontainer"}, "belong together"),
        ({"container": "x"}, "belong together"),
        ({"language": "plcontainer", "container": "x\nimport os"}, "cannot be the name of a container"),
        ({"python_path": "packages"}, "begins with '/'"),
        ({"python_path": "/a\n/b"}, "begins with '/'"),
        ({"allow_directory": "shots"}, "begins with '/'"),
        ({"allow_directory": "/a$ringlet$"}, "begins with '/'"),
    ],
)
def test_settings_that_could_leave_their_place_are_refused(options, message):
    with pytest.raises(UsageError, match=message):
        FunctionSettings(**options)


def test_paths_stand_in_function_bodies_as_python_texts():
    body = FunctionSettings(python_path='/it\'s "here"\\').body("is_open(sha256)")
    compile(f"def f():\n {body.replace(chr(10), chr(10) + ' ')}", "body", "exec")
    assert repr('/it\'s "here"\\') in body


def test_only_what_predicts_is_granted_and_roles_are_names():
    texts = [statement.text for statement in grant_functions("ringlet", ["analyst", "public"])]
    assert sum("_predict" in text and ".ringlet_predict" not in text for text in texts) == 0
    assert 'grant usage on schema "ringlet" to "analyst"' in texts
    assert 'grant usage on schema "ringlet" to public' in texts
    with pytest.raises(UsageError, match="name of a role"):
        grant_functions("ringlet", ["a; drop"])
