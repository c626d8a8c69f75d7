"""Whose code could run when a statement touches a schema, a table or a function of PostgreSQL.

Anyone who may create schemas in a database can prepare the one that we are going to use: functions with our names, a
table of models with triggers, rules, defaults, constraints, policies. Whatever a stranger wrote there would run with
the rights of who installs, mostly a superuser. So owners are asked for first, from the system catalogs alone.

Trusted are superusers and the role that is connected. A role that was set is trusted too, unless a superuser has set
it: code may reset it. Members of a common role are not: each of them could act with the rights of the others.

Statements of ours name what they mean by schema, and run with a ``search_path`` that holds PostgreSQL's own names only;
so no function or operator elsewhere can take their place. The catalogs are read without recursion and with columns that
PostgreSQL 9.4 has, because Greenplum 6 is made of it.
"""

# ruff: noqa: S608 (identifiers are allowlisted and quoted, values are bound)

from __future__ import annotations

from ringlet.database.statements import PLACE, Dialect, Statement

SAFE_PATH = "pg_catalog, pg_temp"
"""Where names without a schema are looked up; last what would come first if it were left out."""
BEGIN_SAFELY = (
    Statement("set transaction isolation level read committed", remark="every statement sees who owns what by then"),
    Statement(f"set local search_path = {SAFE_PATH}"),
)
"""How a transaction of ours begins."""

_PARTS = {
    "pg_attrdef": "adrelid",
    "pg_constraint": "conrelid",
    "pg_trigger": "tgrelid",
    "pg_rewrite": "ev_class",
    "pg_policy": "polrelid",
}
"""What is attached to a table and can hold expressions, by the column that says to which."""
_OWNERS = {
    "pg_namespace": "nspowner",
    "pg_class": "relowner",
    "pg_proc": "proowner",
    "pg_type": "typowner",
    "pg_operator": "oprowner",
    "pg_opclass": "opcowner",
    "pg_opfamily": "opfowner",
    "pg_collation": "collowner",
    "pg_language": "lanowner",
}
_TRUSTED = (
    "(r.rolsuper or r.rolname = session_user or (r.rolname = current_user and not exists (\n"
    "    select 1 from pg_catalog.pg_roles s where s.rolname = session_user and s.rolsuper)))"
)
_FIRST_POLICIES = 90500


def who_is_connected() -> Statement:
    """Whether code that runs in this session has the rights of a superuser, now or after ``reset role``."""
    return Statement(
        "select pg_catalog.bool_or(rolsuper) from pg_catalog.pg_roles where rolname in (session_user, current_user)"
    )


def strangers_in_schema(schema: str, dialect: Dialect) -> Statement:
    """The first thing in a schema that is a stranger's: itself, its table of models, or code of any kind."""
    inside = f"select oid from pg_catalog.pg_namespace where nspname = {PLACE}"
    code = (
        f"  select tableoid, oid from pg_catalog.pg_namespace where nspname = {PLACE}\n"
        f"  union all select tableoid, oid from pg_catalog.pg_proc where pronamespace in ({inside})\n"
        f"  union all select tableoid, oid from pg_catalog.pg_operator where oprnamespace in ({inside})\n"
        f"  union all select tableoid, oid from pg_catalog.pg_type where typnamespace in ({inside})\n"
        "    and (typname = 'models' or (typrelid = 0 and not (typelem <> 0 and typlen = -1)))"
    )
    table = f"select oid from pg_catalog.pg_class where relname = 'models' and relnamespace in ({inside})"
    return Statement(_search(table, code, dialect), (schema,) * 5)


def strangers_at_table(number: int, dialect: Dialect) -> Statement:
    """The first thing that is a stranger's of a table (by its number), with what is attached to it."""
    table = f"select oid from pg_catalog.pg_class where oid = {PLACE}"
    return Statement(_search(table, "select tableoid, oid from pg_catalog.pg_class where false", dialect), (number,))


def runs_when_read(schema: str, dialect: Dialect) -> Statement:
    """The table of models, if it is a stranger's and reading it may run code; of a plain table that is never so."""
    policies = " or c.relrowsecurity" if dialect.postgresql >= _FIRST_POLICIES else ""
    return Statement(
        "select pg_catalog.pg_describe_object(c.tableoid, c.oid, 0), pg_catalog.pg_get_userbyid(c.relowner)\n"
        "from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace\n"
        "left join pg_catalog.pg_roles r on r.oid = c.relowner\n"
        f"where n.nspname = {PLACE} and c.relname = 'models' and {_TRUSTED} is not true\n"
        f"  and (c.relkind <> 'r' or c.relhassubclass{policies} or exists (\n"
        "    select 1 from pg_catalog.pg_attribute a join pg_catalog.pg_type t on t.oid = a.atttypid\n"
        "    join pg_catalog.pg_namespace m on m.oid = t.typnamespace\n"
        "    where a.attrelid = c.oid and a.attnum > 0 and m.nspname <> 'pg_catalog'))",
        (schema,),
    )


def stop_at_strangers(search: Statement) -> Statement:
    """The same search for scripts, as a statement that fails if it finds something; that ends the transaction."""
    text = f"select ('refused: ' || what || ' belongs to ' || owner)::integer from (\n{search.text}\n) strangers"
    return Statement(text, search.values, remark="this fails if code of someone else could run:")


def _search(table: str, more: str, dialect: Dialect) -> str:
    """What ``more`` lists, a table (a query for its number), and all that runs when the table is written or read.

    Parts of the table have no owner: they are its owner's, but call functions that may be another's. Conditions of
    triggers may be of anyone who has the right to make triggers. Tables that refer to it have triggers that run when
    rows are removed.
    """
    parts = "\n".join(
        f"  union all select tableoid, oid from pg_catalog.{name} where {column} in (select oid from ringlet_table)"
        for name, column in _PARTS.items()
        if name != "pg_policy" or dialect.postgresql >= _FIRST_POLICIES
    )
    owners = "\n  union all ".join(
        f"select tableoid, oid, {column} as owner from pg_catalog.{name}" for name, column in _OWNERS.items()
    )
    return f"""with ringlet_table as (
  {table}
), parts (kind, id) as (
  select tableoid, oid from pg_catalog.pg_class where oid in (select oid from ringlet_table)
  union all select c.tableoid, c.oid from pg_catalog.pg_index i join pg_catalog.pg_class c on c.oid = i.indexrelid
    where i.indrelid in (select oid from ringlet_table)
  union all select c.tableoid, c.oid from pg_catalog.pg_constraint f join pg_catalog.pg_class c on c.oid = f.conrelid
    where f.confrelid in (select oid from ringlet_table)
{parts}
), objects (kind, id) as (
  select kind, id from parts
  union all {more.strip()}
), used (kind, id) as (
  select kind, id from objects
  union select d.refclassid, d.refobjid from objects join pg_catalog.pg_depend d on d.classid = kind and d.objid = id
    where d.refclassid not in ({_number("pg_namespace")}, {_number("pg_extension")})
), owned as (
  select kind, id, case when pg_catalog.pg_get_userbyid(o.owner) = 'pg_database_owner'
    then (select datdba from pg_catalog.pg_database where datname = pg_catalog.current_database())
    else o.owner end as owner
  from used join (
  {owners}
  ) o on o.tableoid = kind and o.oid = id
  union select kind, id, (allowed).grantee from (
    select g.tableoid as kind, g.oid as id, pg_catalog.aclexplode(c.relacl) as allowed
    from pg_catalog.pg_trigger g join pg_catalog.pg_class c on c.oid = g.tgrelid
    where c.oid in (select oid from ringlet_table) and g.tgqual is not null
  ) conditions where (allowed).privilege_type = 'TRIGGER'
)
select pg_catalog.pg_describe_object(kind, id, 0) as what,
  case when owner = 0 then 'public' else pg_catalog.pg_get_userbyid(owner)::text end as owner
from owned left join pg_catalog.pg_roles r on r.oid = owner
where {_TRUSTED} is not true
order by kind <> {_number("pg_namespace")}, kind <> {_number("pg_class")}, what limit 1"""


def _number(catalog: str) -> str:
    """The number of a system catalog, which is the kind of what it lists."""
    return f"'pg_catalog.{catalog}'::pg_catalog.regclass"
