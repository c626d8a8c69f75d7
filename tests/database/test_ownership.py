"""Code that strangers have left in a PostgreSQL database never runs with the rights of someone else."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pictures import SHOTS
from private_server import programs
from traps import (
    CARELESS,
    DOMAIN,
    FIRE,
    FUNCTIONS,
    OPERATOR,
    POLICY,
    STRANGER,
    TABLE,
    TRAPS,
    TRIGGER,
    VIEW,
    alarm,
    hijackers,
)

from ringlet.cli.main import main
from ringlet.database import DatabaseError, Reference, connect
from ringlet.database.contract import Database, Installation, Scoring
from ringlet.database.functions import FunctionSettings
from ringlet.database.models import NewModel
from ringlet.database.names import TableName
from ringlet.database.session import Session

psycopg = pytest.importorskip("psycopg", reason="needs psycopg: pip install 'ringlet[database]'")
pytestmark = pytest.mark.xdist_group("postgresql")


@dataclass
class Prepared:
    """A database with a stranger in it."""

    address: str
    folder: Path
    model: NewModel

    @property
    def ran(self) -> list[str]:
        """Who has run the stranger's code."""
        return [path.read_text().strip() for path in self.folder.iterdir()]

    def as_role(self, role: str, options: str = "") -> str:
        return f"postgresql://{role}@{self.address.partition('@')[2]}{options}"

    def execute(self, text: str, role: str = "postgres") -> list[Any]:
        with psycopg.connect(self.as_role(role), autocommit=True) as connection:
            cursor = connection.execute(text)
            while cursor.nextset():
                pass
            return cursor.fetchall() if cursor.description else []

    def objects(self) -> list[Any]:
        """All that was ever made here, with the transaction that changed it last."""
        catalogs = "namespace", "class", "proc", "type", "extension", "trigger", "constraint"
        parts = [f"select '{name}', oid::text, xmin::text from pg_{name} where oid >= 16384" for name in catalogs]
        return sorted(self.execute(" union all ".join(parts)))

    def commands(self) -> dict[str, tuple[str, Callable[[Database], Any]]]:
        """Everything that touches the schema: how it is opened, and what is done."""
        functions, alone = Installation(self.model), Installation(self.model, with_functions=False)
        again = Installation(self.model, FunctionSettings())
        return {
            "install": ("create", lambda database: database.install(functions)),
            "install --functions": ("create", lambda database: database.install(again)),
            "install --no-functions": ("create", lambda database: database.install(alone)),
            "install --dry-run": ("pretend", lambda database: database.plan_install(functions)),
            "install --no-functions --dry-run": ("pretend", lambda database: database.plan_install(alone)),
            "list": ("read", lambda database: database.models()),
            "score": ("change", lambda database: database.load(Reference("cars"))),
            "score --dry-run": ("read", lambda database: database.load(Reference("cars", 1))),
            "remove": ("change", lambda database: database.remove(Reference("cars"))),
            "remove --dry-run": ("read", lambda database: database.plan_remove(Reference("cars"))),
        }

    def outcome(self, command: str, address: str | None = None) -> str:
        """What goes wrong with a command; nothing if it does its work."""
        access, run = self.commands()[command]
        try:
            with connect(address or self.address, access=access) as database:
                run(database)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return ""


@pytest.fixture
def prepared(servers, new_model):
    """``schemer`` may make schemas, and nothing else; ``clerk`` may write files on the server, so traps can tell."""
    address = servers[0].fresh_database()
    name = psycopg.conninfo.conninfo_to_dict(address)["dbname"]
    found = Prepared(address, servers[0].folder / name, new_model("cars", "classes.xml"))
    found.folder.mkdir()
    found.folder.chmod(0o777)
    for role in (STRANGER, "clerk"):
        found.execute(f"drop role if exists {role}; create role {role} login")
    found.execute(f"grant create on database {name} to {STRANGER}; grant pg_write_server_files to clerk")
    yield found
    found.execute(f"alter database {name} owner to postgres; alter database {name} reset all")
    for role in (STRANGER, "clerk"):
        found.execute(f"drop owned by {role} cascade; drop role {role}")


def refused(outcome: str, what: str = "") -> bool:
    return outcome.startswith("DatabaseError") and f"{what} belongs to '{STRANGER}'" in outcome


def prepare(prepared: Prepared, trap: str) -> None:
    """As the stranger, in a schema of its own."""
    prepared.execute(f"create schema ringlet; {alarm(prepared.folder)} {trap}", STRANGER)


@pytest.mark.parametrize("trap", TRAPS.values(), ids=list(TRAPS))
def test_every_trap_works_on_someone_careless(prepared, trap):
    prepare(prepared, f"{trap}; grant usage on schema ringlet to clerk")
    prepared.execute("grant all on all tables in schema ringlet to clerk")
    role = "clerk" if trap == POLICY else "postgres"  # superusers are above policies
    for text in CARELESS:
        with suppress(psycopg.Error):  # not every trap answers every statement
            prepared.execute(text, role)
    assert prepared.ran == [role]


@pytest.mark.parametrize("trap", TRAPS.values(), ids=list(TRAPS))
def test_a_schema_that_a_stranger_has_prepared_is_refused_and_nothing_in_it_runs(prepared, trap):
    prepare(prepared, trap)
    before = prepared.objects()
    for name in prepared.commands():
        outcome = prepared.outcome(name)
        assert (name, prepared.ran, refused(outcome, "schema ringlet")) == (name, [], True), outcome
        assert prepared.objects() == before, name


@pytest.mark.parametrize("options", [(), ("--no-functions",), ("--dry-run",)])
def test_the_command_line_refuses_a_prepared_schema(prepared, models, capsys, options):
    prepare(prepared, f"{TABLE} {FUNCTIONS} {TRIGGER}")
    code = main(["sql", "install", prepared.address, str(models / "classes.xml"), "--name", "cars", *options])
    message = capsys.readouterr().err
    assert (code, prepared.ran) == (1, [])
    assert f"schema ringlet belongs to '{STRANGER}', whose code could run with your rights" in message
    assert "give another --schema" in message


@pytest.mark.parametrize(
    ("what", "trap"),
    [
        ("table ringlet.models", f"{TABLE} {TRIGGER}"),
        ("view ringlet.models", VIEW),
        ("function ringlet._about(text)", FUNCTIONS),
        ("function ringlet.ran()", ""),
        ("operator ringlet.=(text,text)", OPERATOR),
        ("type ringlet.d", DOMAIN),
    ],
)
def test_what_a_stranger_has_put_into_a_schema_of_ours_is_refused_by_its_name(prepared, what, trap):
    prepared.execute("create schema ringlet; grant usage, create on schema ringlet to schemer")
    prepared.execute(f"{alarm(prepared.folder)} {trap}", STRANGER)
    if not what.startswith("function"):  # what else there is comes later in the alphabet
        prepared.execute("alter function ringlet.ran() owner to postgres")
    if trap == OPERATOR:
        prepared.execute("alter function ringlet.same(text, text) owner to postgres")
    before = prepared.objects()
    for name in prepared.commands():
        outcome = prepared.outcome(name)
        assert (name, prepared.ran, refused(outcome, what)) == (name, [], True), outcome
    assert prepared.objects() == before


ATTACHED = {
    "function elsewhere.fire()": (
        "grant trigger on ringlet.models to schemer",
        "create trigger t before insert or delete on ringlet.models for each row execute function elsewhere.fire()",
    ),
    "trigger t on table ringlet.models": (
        "grant trigger on ringlet.models to schemer",
        "create trigger t before insert or delete on ringlet.models for each row when ("
        "query_to_xml('select elsewhere.ran()', true, true, '') is not null) "
        "execute function suppress_redundant_updates_trigger()",
    ),
    "function elsewhere.ran()": (
        "alter table ringlet.models add more boolean, alter more set default elsewhere.ran()",
        "select 1",
    ),
    "table elsewhere.rows": (
        "grant references on ringlet.models to schemer",
        "create table elsewhere.rows (name text, version integer, foreign key (name, version) references "
        "ringlet.models on delete cascade); insert into elsewhere.rows values ('cars', 1); create constraint trigger t "
        "after delete on elsewhere.rows initially deferred for each row execute function elsewhere.fire()",
    ),
}
"""What may hang on a table of ours, by what is refused: what its owner has done, and what a stranger made of it."""


@pytest.mark.parametrize("what", ATTACHED)
def test_what_hangs_on_our_table_is_not_run_if_a_stranger_has_written_it(prepared, what):
    assert prepared.outcome("install") == ""
    mistake, attach = ATTACHED[what]
    elsewhere = f"create schema elsewhere; {alarm(prepared.folder)} {FIRE}"
    prepared.execute(elsewhere.replace("ringlet.", "elsewhere."), STRANGER)
    prepared.execute(f"{mistake}; grant usage on schema ringlet to schemer")
    prepared.execute(attach, STRANGER)
    for name in ("install --no-functions", "list", "score", "remove", "remove --dry-run"):
        outcome = prepared.outcome(name)
        assert (name, prepared.ran) == (name, []), outcome
        assert refused(outcome, what), outcome
    columns = "name, version, sha256, kind, network, description"
    insert = f"insert into ringlet.models ({columns}) select {columns.replace('version', '9')} from ringlet.models"
    for careless in (insert, "delete from ringlet.models"):
        with suppress(psycopg.Error):
            prepared.execute(careless)
    assert prepared.ran == ["postgres"]


def test_the_search_path_of_a_hostile_database_finds_nothing_of_its_owner(prepared):
    name = prepared.folder.name
    prepared.execute(f"alter database {name} owner to {STRANGER}")
    evil = f"create schema ringlet; {alarm(prepared.folder)} create schema evil; {hijackers('evil')}"
    prepared.execute(evil.replace("ringlet", "traps"), STRANGER)
    prepared.execute(f"alter database {name} set search_path = evil, pg_catalog, public", STRANGER)
    for command in (
        "install",
        "install --functions",
        "list",
        "score",
        "install --dry-run",
        "remove --dry-run",
        "remove",
    ):
        assert (command, prepared.outcome(command), prepared.ran) == (command, "", [])
    with connect(prepared.address) as database:
        database.install(Installation(prepared.model))
    label = prepared.execute(f"select (ringlet.ringlet_predict('cars', '\\x{SHOTS[0].hex()}')).label")
    assert (label[0][0] is not None, prepared.ran) == (True, [])


def test_all_functions_have_a_search_path_of_their_own(prepared):
    assert prepared.outcome("install") == ""
    paths = "select proname, proconfig from pg_proc where pronamespace = 'ringlet'::regnamespace"
    found = dict(prepared.execute(paths))
    assert len(found) == 11
    assert {tuple(path or ()) for path in found.values()} == {("search_path=pg_catalog, pg_temp",)}


@pytest.mark.parametrize("trap", [f"{TABLE} {TRIGGER}", VIEW], ids=["table", "view"])
@pytest.mark.parametrize("moment", ["before it is looked for", "after it was looked for"])
@pytest.mark.parametrize("command", ["install --no-functions", "list", "score", "remove"])
def test_a_table_that_appears_when_owners_are_known_is_not_touched(prepared, monkeypatch, command, moment, trap):
    prepared.execute("create schema ringlet; grant usage, create on schema ringlet to schemer")
    look, traps = Session.exists, [f"{alarm(prepared.folder)} {trap}"]

    def look_late(session: Session, table: TableName) -> bool:
        found = look(session, table) if moment.startswith("after") else None
        if traps:
            prepared.execute(traps.pop(), STRANGER)
        return look(session, table) if found is None else found

    monkeypatch.setattr(Session, "exists", look_late)
    outcome = prepared.outcome(command)
    assert (traps, prepared.ran) == ([], []), outcome
    assert refused(outcome) or moment.startswith("after"), outcome
    assert prepared.execute("select 1 from pg_class where relname = 'models' and relowner <> 'schemer'::regrole") == []


def test_functions_that_appear_while_ours_are_made_are_not_called(prepared, monkeypatch):
    prepared.execute("create schema ringlet; grant usage, create on schema ringlet to schemer")
    query = Session.query
    about = FUNCTIONS[FUNCTIONS.index("create function ringlet._about") :].partition(";")[0]
    traps = [f"{alarm(prepared.folder)} {about}"]

    def make_late(session: Session, statement: Any) -> list[Any]:
        if traps and statement.text.startswith("create or replace function"):
            prepared.execute(traps.pop(), STRANGER)
        return query(session, statement)

    monkeypatch.setattr(Session, "query", make_late)
    outcome = prepared.outcome("install")
    assert (traps, prepared.ran) == ([], [])
    assert f"function ringlet._about(text) belongs to {STRANGER}" in outcome
    assert prepared.execute("select 1 from pg_proc where proname = 'ringlet_predict'") == []


def test_a_printed_script_stops_at_what_was_prepared_in_the_meantime(prepared):
    with connect(prepared.address, access="pretend") as database:
        text = database.script(database.plan_install(Installation(prepared.model)))
    prepare(prepared, f"{TABLE} {FUNCTIONS} {TRIGGER}")
    Path("script.sql").write_text(text, encoding="utf-8")
    command = [programs() / "psql", "-X", "-q", "-f", "script.sql", prepared.address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert f"refused: schema ringlet belongs to {STRANGER}" in done.stderr
    assert (prepared.ran, prepared.execute("select count(*) from ringlet.models")) == ([], [(1,)])


def test_a_superuser_that_has_set_a_role_is_still_one(prepared):
    prepare(prepared, f"{TABLE} {FUNCTIONS} {TRIGGER}")
    address = prepared.as_role("postgres", f"&options=-crole%3D{STRANGER}")
    for name in prepared.commands():
        outcome = prepared.outcome(name, address)
        assert (name, prepared.ran, refused(outcome)) == (name, [], True), outcome


def test_others_read_a_plain_table_and_nothing_that_could_run(prepared):
    grant = "grant usage on schema ringlet to clerk; grant all on ringlet.models to clerk"
    clerk = prepared.as_role("clerk")
    assert prepared.outcome("install --no-functions", prepared.as_role(STRANGER)) == ""
    prepared.execute(grant, STRANGER)
    assert (prepared.outcome("list", clerk), prepared.outcome("score", clerk)) == ("", "")
    assert refused(prepared.outcome("install --no-functions", clerk), "schema ringlet")
    assert refused(prepared.outcome("remove", clerk), "schema ringlet")
    for trap in (POLICY, f"{DOMAIN} {TABLE} alter table ringlet.models alter column kind type ringlet.d", VIEW):
        prepared.execute("drop schema ringlet cascade")
        prepare(prepared, f"{trap}; {grant}")
        for name in ("list", "score"):
            outcome = prepared.outcome(name, clerk)
            assert (refused(outcome, "ringlet.models"), prepared.ran) == (True, []), outcome


def test_who_owns_a_schema_may_use_it_without_being_a_superuser(prepared):
    stranger = prepared.as_role(STRANGER)
    for name in ("install --no-functions", "list", "score", "install --no-functions", "remove"):
        assert (name, prepared.outcome(name, stranger)) == (name, "")
    prepared.execute(f"drop schema ringlet cascade; grant {STRANGER} to clerk")
    as_group = prepared.as_role("clerk", f"&options=-crole%3D{STRANGER}")
    for name in ("install --no-functions", "list", "remove"):
        assert (name, prepared.outcome(name, as_group)) == (name, "")
    assert refused(prepared.outcome("install --no-functions", prepared.as_role("clerk")), "schema ringlet")


def test_a_superuser_adds_no_scores_to_a_table_that_could_run_code_of_others(prepared):
    results = "class integer, label text, probability float8, mask bytea, share float8, error text"
    table = f"create schema lab; create table lab.models (id integer, {results});"
    prepared.execute(
        f"create schema ringlet; {alarm(prepared.folder)} {table} {TRIGGER.replace('ringlet.models', 'lab.models')}",
        STRANGER,
    )

    def score(role: str, **options: bool) -> int:
        query = f"select 1 as id, '\\x{SHOTS[0].hex()}'::bytea as image"
        wanted = Scoring("cars", prepared.model.artifact, query, TableName.parse("lab.models"), **options)
        with connect(prepared.as_role(role)) as database:
            return database.score(wanted).num_rows

    with pytest.raises(DatabaseError, match=f"table lab.models belongs to '{STRANGER}'"):
        score("postgres", append=True)
    assert prepared.ran == []
    assert score(STRANGER, append=True) == 1
    assert score("postgres", replace=True) == 1
    assert score("postgres", append=True) == 1
    assert prepared.ran == []
    assert prepared.execute("select count(*), count(label) from lab.models") == [(2, 2)]
