"""A misspelled setting is told by its name, with the nearest that there is."""

from __future__ import annotations

import difflib
import functools
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
