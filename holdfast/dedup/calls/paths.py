"""Paths: "order.id" leads from the arguments of a call, or from an item of its batch, to a part of them."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from holdfast.dedup.keys import ABSENT, inside
from holdfast.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_NAMED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def several(field: str, spec: str | tuple[str, ...]) -> tuple[str, ...]:
    """One path, or several. Raises SettingError: none, or something else."""
    paths = (spec,) if isinstance(spec, str) else spec
    if not paths or not all(isinstance(each, str) for each in paths):
        raise SettingError(field, spec, f"give one name or several: {field}=('self.tenant', 'order_id')")
    return paths


def path_of(field: str, spec: str) -> list[str]:
    """The names of a path. Raises SettingError: one is empty."""
    path = spec.split(".")
    if not all(path):
        raise SettingError(field, spec, "name a parameter, or with dots a path into it: 'order_id', 'order.id'")
    return path


class ArgumentPath:
    """A path that begins at a parameter.

    Args:
        field: the setting that has the path, for errors.
        signature: of the function.
        spec: "order_id", "order.id".

    Raises:
        SettingError: it names no parameter.
    """

    def __init__(self, field: str, signature: inspect.Signature, spec: str) -> None:
        self.names = path_of(field, spec)
        parameters, first = signature.parameters, self.names[0]
        #: The `**parameter` that holds the first name; None = the first name is a parameter itself.
        self._rest: str | None = None
        if first in parameters and parameters[first].kind in _NAMED:
            return
        rest = next((each.name for each in parameters.values() if each.kind is inspect.Parameter.VAR_KEYWORD), None)
        if rest is None:
            has = ", ".join(parameters) or "none"
            raise SettingError(
                field, spec, f"the function has no parameter {first!r} (it has: {has}): name one of them"
            )
        self._rest = rest

    def follow(self, arguments: Mapping[str, object]) -> object:
        """Find the part in all arguments of a call; ABSENT: it is not there."""
        given = arguments[self._rest] if self._rest else arguments
        return follow(given, self.names)


def follow(found: object, path: Sequence[str]) -> object:
    """Find the part of an item; ABSENT: it is not there."""
    for part in path:
        found = inside(found, part)
        if found is ABSENT:
            break
    return found
