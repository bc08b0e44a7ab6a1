"""Checks names and values of settings: the error for a misspelled name has the nearest name that exists."""

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
    """Let the constructor of a dataclass take known names only: an unknown argument, or one without a name, raises
    SettingError. A decorator above `@dataclass`."""
    init: Callable[..., None] = cls.__init__
    names = [each.name for each in fields(cls) if each.init]  # type: ignore[arg-type]  # it is a dataclass

    @functools.wraps(init)
    def checked(self: T, *values: Any, **given: Any) -> None:  # noqa: ANN401 - as they come
        if values:
            raise SettingError(
                cls.__name__, values[0], f"say which one it is: {names[0]}=..., as in {cls.__name__}(...)"
            )
        _check_names(given, names, f"{cls.__name__} has no setting of that name")
        init(self, **given)

    setattr(cls, "__init__", checked)  # noqa: B010 - an assignment is no method to mypy
    return cls


def known_arguments(**required: str) -> Callable[[F], F]:
    """A decorator: an unknown argument raises SettingError; a missing one raises TypeError with an example.

    Args:
        required: argument without which the call fails -> an example of its value.
    """

    def decorate(function: F) -> F:
        parameters = inspect.signature(function).parameters
        names = [name for name in parameters if name != "self"]
        takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
        called = function.__qualname__.removesuffix(".__init__")

        @functools.wraps(function)
        def checked(*values: Any, **given: Any) -> Any:  # noqa: ANN401 - as the function's
            if not takes_any:
                _check_names(given, names, f"{called} has no argument of that name")
            for name, example in required.items():
                if name not in given:
                    raise TypeError(f"{called}: {name}= is missing: give {example}")
            return function(*values, **given)

        return checked  # type: ignore[return-value]  # it takes and returns what the function does

    return decorate


def meant(name: str, names: Collection[str], called: Callable[[str], str] = str) -> str:
    """A hint for an unknown name: the nearest of these names, or all of them. `called`: formats a name."""
    near = difflib.get_close_matches(name, names, 1)
    return f"did you mean {called(near[0])}?" if near else f"there are {', '.join(map(called, names))}"


def _check_names(given: Mapping[str, object], names: Sequence[str], unknown: str) -> None:
    for name, value in given.items():
        if name not in names:
            raise SettingError(name, MASK if is_secret(name) else value, f"{unknown}: {meant(name, names)}")


def check_number(
    name: str, value: object, least: float, remedy: str, *, whole: bool = False, endless: bool = False
) -> None:
    """Check a setting's value. Raises SettingError: no number (a bool is none), or out of range.

    Args:
        name: the setting's name.
        value: its value.
        least: the lowest value.
        remedy: the text for a value out of range.
        whole: the value must be an int.
        endless: the value may be infinite.
    """
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        raise SettingError(name, value, f"use a {'whole ' if whole else ''}number")
    if not least <= value or (value == math.inf and not endless):
        raise SettingError(name, value, remedy)
