"""The SQL of functions in PostgreSQL, Greenplum and Cloudberry.

Users call three functions. They run with the rights of who installed them (``security definer``), so users need no
right on the models, nor on the inner functions, which take bytes of models: with those one could make the server
parse anything. ``_find`` looks the model up and hands its bytes over only if this process has not loaded it (``case``
evaluates what is needed, and a column that no one reads is never fetched): see :mod:`ringlet.database.inside`.
"""

# ruff: noqa: S608 (identifiers are allowlisted and quoted, values are bound, a query is its author's own)

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ringlet.database.names import container, identifier, quoted
from ringlet.database.ownership import SAFE_PATH
from ringlet.database.rows import AllowedDirectory
from ringlet.database.statements import PLACE, Dialect, Statement, result_columns
from ringlet.errors import UsageError

PLPYTHON, PLCONTAINER = "plpython3u", "plcontainer"
COST = 10_000
"""Of one call, in units of the planner's cpu_operator_cost: enough to make it think of parallel workers."""
PUBLIC = {
    "ringlet_predict": "text, bytea",
    "ringlet_predict_file": "text, text",
    "ringlet_predict_batch": "text, bigint[], bytea[]",
}
"""What users call, by name, with the types of the arguments."""
INNER = {
    "_is_open": "text",
    "_open": "text, text, bytea, bytea",
    "_unknown": "text",
    "_about": "text",
    "_predict": "text, bytea",
    "_predict_file": "text, text",
    "_predict_batch": "text, bigint[], bytea[]",
    "_find": "text",
}
"""What those call: likewise."""
_TAG = "$ringlet$"
_PATH = f"set search_path = {SAFE_PATH}"


@dataclass(frozen=True)
class FunctionSettings:
    """What the functions are made of."""

    language: str = PLPYTHON
    container: str | None = None
    """The PL/Container runtime."""
    python_path: str | None = None
    """A directory with Ringlet and what it needs, for servers whose own Python lacks them."""
    allow_directory: str | None = None
    """Where ``ringlet_predict_file`` may read."""

    def __post_init__(self) -> None:
        """Refuse what does not fit together, and texts that could leave their place."""
        if self.language not in (PLPYTHON, PLCONTAINER):
            raise UsageError(f"unknown language '{self.language}': expected {PLPYTHON} or {PLCONTAINER}")
        if (self.language == PLCONTAINER) != (self.container is not None):
            raise UsageError(f"--language {PLCONTAINER} and --container NAME belong together")
        if self.container is not None:
            container(self.container)
        if self.allow_directory is not None:
            AllowedDirectory(self.allow_directory)
        for path in (self.python_path, self.allow_directory):
            if path is not None and (not path.startswith("/") or re.search(r"[\x00-\x1f]|\$ringlet\$", path)):
                raise UsageError(f"'{path}' is no directory of the server: expected a path that begins with '/'")

    def body(self, call: str) -> str:
        """A function that returns what ``call`` gives."""
        head = f"# container: {self.container}\n" if self.container is not None else ""
        if self.python_path is not None:
            path = ascii(self.python_path)
            head += f"import sys\nif {path} not in sys.path:\n    sys.path.insert(0, {path})\n"
        return f"{head}from ringlet.database import inside\nreturn inside.{call}"


def create_functions(schema: str, settings: FunctionSettings, dialect: Dialect) -> list[Statement]:
    """Inner functions first; no one else may call any of them yet."""
    inner = _inner(schema, settings, dialect)
    outer = [_public(schema, name, dialect) for name in PUBLIC]
    prefix, hidden = quoted(schema), {**INNER, **PUBLIC}
    revoke = [
        Statement(f"revoke all on function {prefix}.{name}({types}) from public") for name, types in hidden.items()
    ]
    return [*inner, _find(schema, dialect), *outer, *revoke]


def check_functions(schema: str, kind: str) -> Statement:
    """Ask the server's Python whether it could run a model of this kind."""
    return Statement(f"select {quoted(schema)}._about({PLACE}::text)", (kind,), tag="about")


def grant_functions(schema: str, roles: Sequence[str]) -> list[Statement]:
    """Let roles predict, and nothing else."""
    prefix, statements = quoted(schema), []
    for role in roles:
        to = "public" if role == "public" else quoted(identifier("role", role))
        statements.append(Statement(f"grant usage on schema {prefix} to {to}"))
        for name, types in PUBLIC.items():
            statements.append(Statement(f"grant execute on function {prefix}.{name}({types}) to {to}"))
    return statements


def _inner(schema: str, settings: FunctionSettings, dialect: Dialect) -> list[Statement]:
    prefix, outs = quoted(schema), _columns("out ")
    table = f"table (id bigint, {_columns('')})"
    directory = ascii(settings.allow_directory)
    texts = (
        ("_is_open(sha256 text)", "boolean", "is_open(sha256)"),
        (
            "_open(sha256 text, kind text, network bytea, weights bytea)",
            "text",
            "open_model(sha256, kind, network, weights)",
        ),
        ("_unknown(model text)", "text", "unknown(model)"),
        ("_about(kind text)", "text", "about(kind)"),
        (f"_predict(sha256 text, image bytea, {outs})", "", "predict(sha256, image)"),
        (f"_predict_file(sha256 text, path text, {outs})", "", f"predict_file(sha256, path, {directory})"),
        ("_predict_batch(sha256 text, ids bigint[], images bytea[])", table, "predict_batch(sha256, ids, images)"),
    )
    return [
        Statement(
            f"create or replace function {prefix}.{signature}{f' returns {returns}' if returns else ''}\n"
            f"language {settings.language} volatile {_PATH}{dialect.parallel} as {_TAG}\n{settings.body(call)}\n{_TAG}"
        )
        for signature, returns, call in texts
    ]


def _find(schema: str, dialect: Dialect) -> Statement:
    """The SHA-256 of a model that this process has from now on."""
    prefix = quoted(schema)
    return Statement(
        f"create or replace function {prefix}._find(model text) returns text\n"
        f"language sql volatile {_PATH}{dialect.parallel} as {_TAG}\n"
        "select coalesce((\n"
        f"  select case when {prefix}._is_open(m.sha256) then m.sha256\n"
        f"              else {prefix}._open(m.sha256, m.kind, m.network, m.weights) end\n"
        f"  from (select * from {prefix}.models\n"
        "        where name = split_part($1, ':', 1)\n"
        "          and (strpos($1, ':') = 0 or version::text = substr($1, strpos($1, ':') + 1))\n"
        "        order by version desc limit 1) m\n"
        f"), {prefix}._unknown($1))\n"
        f"{_TAG}"
    )


def _public(schema: str, name: str, dialect: Dialect) -> Statement:
    prefix, outs = quoted(schema), _columns("out ")
    signatures = {
        "ringlet_predict": f"(model text, image bytea, {outs})",
        "ringlet_predict_file": f"(model text, path text, {outs})",
        "ringlet_predict_batch": (
            f"(model text, ids bigint[], images bytea[]) returns table (id bigint, {_columns('')})"
        ),
    }
    arguments = "$2, $3" if name == "ringlet_predict_batch" else "$2"
    return Statement(
        f"create or replace function {prefix}.{name}{signatures[name]}\n"
        f"language sql stable strict security definer {_PATH}{dialect.parallel} cost {COST} as {_TAG}\n"
        f"select p.* from {prefix}.{name.removeprefix('ringlet')}({prefix}._find($1), {arguments}) p\n"
        f"{_TAG}"
    )


def _columns(mode: str) -> str:
    return ", ".join(f"{mode}{name} {kind}" for name, kind in result_columns("bytea").items())
