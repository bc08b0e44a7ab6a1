"""A misspelled setting is told by its name, with the nearest that there is; a value of another type by its setting."""

from __future__ import annotations

import difflib
import functools
import math
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def known(cls: type[T]) -> type[T]:
    """Above `@dataclass`: a name that the class does not have, or a value without a name, is a SettingError."""
    init: Callable[..., None] = cls.__init__
    names = [each.name for each in fields(cls) if each.init]  # type: ignore[arg-type]  # it is a dataclass

    @functools.wraps(init)
    def named(self: T, *values: Any, **given: Any) -> None:  # noqa: ANN401 - as they come
        if values:
            raise SettingError(
                cls.__name__, values[0], f"say which one it is: {names[0]}=..., as in {cls.__name__}(...)"
            )
        for name, value in given.items():
            if name not in names:
                near = difflib.get_close_matches(name, names, 1)
                meant = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
                raise SettingError(name, value, f"{cls.__name__} has no setting of that name: {meant}")
        init(self, **given)

    setattr(cls, "__init__", named)  # noqa: B010 - an assignment is no method to mypy
    return cls


def check_number(
    name: str, value: object, least: float, remedy: str, *, whole: bool = False, endless: bool = False
) -> None:
    """Hold a setting's value against what it may be. Raises SettingError: no number (a flag is none), or out of range.

    Args:
        name: of the setting.
        value: as somebody wrote it.
        least: that much, or more.
        remedy: what to write instead.
        whole: nothing could be made of 2.5.
        endless: it may be infinite.
    """
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        raise SettingError(name, value, f"use a {'whole ' if whole else ''}number")
    if not least <= value or (value == math.inf and not endless):
        raise SettingError(name, value, remedy)
