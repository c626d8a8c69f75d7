"""What a role without privileges can leave in a PostgreSQL database for others to step into.

Every trap calls ``ringlet.ran()``, which writes the name of who runs it to a file on the server: a transaction that is
rolled back leaves it there, and one that only reads can write it.
"""

from __future__ import annotations

from pathlib import Path

from ringlet.database.functions import INNER, PUBLIC

STRANGER = "schemer"
_COLUMNS = """
    name text not null, version integer not null, sha256 text not null, kind text not null, network bytea not null,
    weights bytea, description text not null, created timestamptz not null default now()
"""
_ROW = "('{}', 1, 'x', 'onnx', 'x', null, '{{}}', now())"
_CALL = "returns {} language {} as '{}'"
_TEXT = _CALL.format("text", "sql", "select ringlet.ran()::text")
_CONSTANT = _CALL.format("boolean", "plpgsql immutable", "begin return ringlet.ran(); end")
_EVENTS = "insert or update or delete on ringlet.models"

TABLE = f"create table ringlet.models ({_COLUMNS}); insert into ringlet.models values {_ROW.format('cars')};"
FUNCTIONS = "".join(f"create function ringlet.{name}({types}) {_TEXT};" for name, types in {**INNER, **PUBLIC}.items())
_FIRE = _CALL.format("trigger", "plpgsql", "begin perform ringlet.ran(); return new; end")
FIRE = f"create function ringlet.fire() {_FIRE};"
TRIGGER = f"{FIRE} create trigger t before {_EVENTS} for each row execute function ringlet.fire();"
OPERATOR = (
    f"create function ringlet.same(text, text) {_CALL.format('boolean', 'sql', 'select ringlet.ran()')};"
    "create operator ringlet.= (leftarg = text, rightarg = text, function = ringlet.same);"
)
DOMAIN = "create domain ringlet.d as text check (ringlet.ran() or value = '');"
VIEW = (
    "create view ringlet.models as select 'cars'::text as name, 1 as version, ringlet.ran()::text as sha256, "
    "'onnx'::text as kind, ''::bytea as network, ''::bytea as weights, '{}'::text as description, now() as created;"
)
POLICY = (
    f"{TABLE} alter table ringlet.models enable row level security;"
    "create policy p on ringlet.models using (ringlet.ran()) with check (ringlet.ran());"
)
TRAPS = {
    "functions of our names": f"{TABLE} {FUNCTIONS}",
    "functions of other types": (
        f"{TABLE} create function ringlet.ringlet_predict(text, bytea) {_TEXT};"
        f"create function ringlet._about(varchar) {_TEXT}"
    ),
    "a trigger of rows": f"{TABLE} {TRIGGER}",
    "a trigger of statements": f"{TABLE} {FIRE} create trigger t after {_EVENTS} execute function ringlet.fire();",
    "rules": (
        f"{TABLE} create rule i as on insert to ringlet.models do also select ringlet.ran();"
        "create rule d as on delete to ringlet.models do also select ringlet.ran()"
    ),
    "a default": f"{TABLE} alter table ringlet.models add more boolean default ringlet.ran()",
    "a computed column": (
        f"{TABLE} create function ringlet.f(text) {_CONSTANT};"
        "alter table ringlet.models add more boolean generated always as (ringlet.f(name)) stored"
    ),
    "a constraint": f"{TABLE} alter table ringlet.models add check (ringlet.ran() or name = '')",
    "an index": (
        f"{TABLE} create function ringlet.f(text) {_CONSTANT}; create index i on ringlet.models (ringlet.f(name))"
    ),
    "a domain": f"{DOMAIN} {TABLE} alter table ringlet.models alter column kind type ringlet.d",
    "a cast": (
        f"{TABLE} create type ringlet.e as enum ('cars', 'boats');"
        "alter table ringlet.models alter name type ringlet.e using name::ringlet.e;"
        "create function ringlet.f(ringlet.e) returns text language sql as "
        "'select case when ringlet.ran() then ''cars'' end';"
        "create cast (ringlet.e as text) with function ringlet.f(ringlet.e) as implicit"
    ),
    "a view": f"{VIEW} {FIRE} create trigger t instead of {_EVENTS} for each row execute function ringlet.fire()",
    "row level security": POLICY,
    "an operator": f"{TABLE} {OPERATOR}",
}
"""What is prepared in a schema ``ringlet``, after :func:`alarm`."""
CARELESS = (
    "select ringlet._about('x')",
    f"insert into ringlet.models values {_ROW.format('boats')}",
    "select sha256 from ringlet.models where name = 'cars'::text",
    "set search_path = ringlet, pg_catalog; select 'a'::text = 'b'",
)
"""Statements that set one or the other off."""


def alarm(folder: Path) -> str:
    """The function that tells who runs it."""
    return (
        "create function ringlet.ran() returns boolean language plpgsql as $$ begin "
        f"if current_user <> '{STRANGER}' then execute 'copy (select current_user) to ''{folder}/ran'''; end if; "
        "return true; end $$;"
    )


def hijackers(schema: str) -> str:
    """Functions and operators with the names of PostgreSQL's own, for a search path that finds them first."""
    made = []
    for signature, returns in (
        ("version()", "text"),
        ("current_setting(text)", "text"),
        ("to_regclass(text)", "regclass"),
        ("now()", "timestamptz"),
        ("split_part(text, text, integer)", "text"),
        ("strpos(text, text)", "integer"),
        ("octet_length(bytea)", "integer"),
        ("current_database()", "name"),
        ("pg_get_userbyid(oid)", "name"),
        ("pg_describe_object(oid, oid, integer)", "text"),
    ):
        body = "begin perform ringlet.ran(); return null; end"
        made.append(f"create function {schema}.{signature} {_CALL.format(returns, 'plpgsql', body)};")
    for kind in ("name", "text", "oid", "integer", '"char"'):
        function = (
            f"create function {schema}.same({kind}, {kind}) {_CALL.format('boolean', 'sql', 'select ringlet.ran()')};"
        )
        made += [function]
        made += [
            f"create operator {schema}.{sign} (leftarg = {kind}, rightarg = {kind}, function = {schema}.same);"
            for sign in ("=", "<>", "~")
        ]
    return "".join(made)
