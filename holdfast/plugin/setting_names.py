"""A misspelled setting is told by its name, with the nearest that there is; a value of another type by its setting."""

from __future__ import annotations

import difflib
import functools
import inspect
import math
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.errors import SettingError
from holdfast.plugin.secret_names import MASK, is_secret

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

T = TypeVar("T")
F = TypeVar("F", bound="Callable[..., Any]")


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
        _check_names(given, names, f"{cls.__name__} has no setting of that name")
        init(self, **given)

    setattr(cls, "__init__", named)  # noqa: B010 - an assignment is no method to mypy
    return cls


def known_arguments(**missing: str) -> Callable[[F], F]:
    """Above a function: an argument that it does not take is a SettingError, and one that it lacks says what to give.

    Args: missing: of arguments that have to be given, an example each.
    """

    def decorate(function: F) -> F:
        parameters = inspect.signature(function).parameters
        names = [name for name in parameters if name != "self"]
        takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
        called = function.__qualname__.removesuffix(".__init__")

        @functools.wraps(function)
        def named(*values: Any, **given: Any) -> Any:  # noqa: ANN401 - as the function's
            if not takes_any:
                _check_names(given, names, f"{called} has no argument of that name")
            for name, example in missing.items():
                if name not in given:
                    raise TypeError(f"{called}: {name}= is missing: give {example}")
            return function(*values, **given)

        return named  # type: ignore[return-value]  # it takes and returns what the function does

    return decorate


def meant(name: str, names: Collection[str], called: Callable[[str], str] = str) -> str:
    """Say which of these names may have been meant by one that there is not. Args: called: how each is written."""
    near = difflib.get_close_matches(name, names, 1)
    return f"did you mean {called(near[0])}?" if near else f"there are {', '.join(map(called, names))}"


def _check_names(given: Mapping[str, object], names: Sequence[str], unknown: str) -> None:
    for name, value in given.items():
        if name not in names:
            raise SettingError(name, MASK if is_secret(name) else value, f"{unknown}: {meant(name, names)}")


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
