"""Literals: a statement with its parameters in it, so that several statements are one message, and one trip."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

if TYPE_CHECKING:
    from holdfast.adapters.sql.changes import Statement


def inlined(statement: Statement) -> str:
    """The text of a statement in PostgreSQL's words.

    Raises:
        ValueError: a text has a NUL, which PostgreSQL cannot hold.
        TypeError: a parameter has another type than those of our columns.
    """
    parts = statement.text.split("?")
    found = [parts[0]]
    for value, part in zip(statement.parameters, parts[1:], strict=True):
        found += (_literal(value), part)
    return "".join(found)


def _literal(value: object) -> str:
    kind = type(value)
    if kind is int:
        return str(value)
    if kind is bool:
        return "true" if value else "false"
    if isinstance(value, bytes):
        return f"decode('{value.hex()}', 'hex')"
    if isinstance(value, UUID):
        return f"'{value}'::uuid"
    if isinstance(value, str):
        return _text(value)
    raise TypeError(f"no literal of a {kind.__name__}")


def _text(value: str) -> str:
    """Whatever `standard_conforming_strings` says: a backslash is only in a text that says what backslashes are."""
    if "\0" in value:
        raise ValueError("PostgreSQL holds no text with a NUL")
    doubled = value.replace("'", "''")
    return f"E'{doubled}'".replace("\\", "\\\\") if "\\" in value else f"'{doubled}'"
