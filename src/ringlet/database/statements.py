"""SQL with bound values, to be run or to be printed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

Value = str | int | bytes | None
PLACE = "\0"
"""Where a value is bound: a character that no SQL can hold."""
_SHORT = 32


@dataclass(frozen=True)
class Statement:
    """One statement; ``values`` are bound to its places. What carries a ``tag`` has a result that is wanted."""

    text: str
    values: tuple[Value, ...] = ()
    tag: str = ""
    remark: str = ""
    """What a reader of the script should know."""

    def bound(self, mark: str) -> str:
        """The text for a driver that marks the places of values so."""
        text = self.text.replace("%", "%%") if mark.startswith("%") and self.values else self.text
        return text.replace(PLACE, mark)

    def script(self, *, blob: str, shorten: bool = False) -> str:
        """The statement with its values written out. ``blob`` says how bytes are written, with ``{}`` for hexadecimals.

        With ``shorten`` long bytes are cut, for reading only.
        """
        first, *rest = self.text.split(PLACE) if self.values else [self.text]
        parts = [first]
        for value, text in zip(self.values, rest, strict=True):
            parts += [_literal(value, blob, shorten), text]
        head = f"-- {self.remark}\n" if self.remark else ""
        return f"{head}{''.join(parts)};"


def script(statements: Iterable[Statement], *, blob: str, shorten: bool = False) -> str:
    """All statements, in one transaction."""
    inner = (statement.script(blob=blob, shorten=shorten) for statement in statements)
    return "\n".join(("begin;", *inner, "commit;")) + "\n"


def _literal(value: Value, blob: str, shorten: bool) -> str:
    if value is None:
        return "null"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, bytes):
        if shorten and len(value) > _SHORT:
            return blob.format(f"{value[:_SHORT].hex()}… {len(value):,} bytes")
        return blob.format(value.hex())
    return "'" + value.replace("'", "''") + "'"
