"""Functions that have not run when their call returns: they return a coroutine, a generator or a future.

A record whose handler returned such a value would count as handled, and be lost.
"""

from __future__ import annotations

import functools
import inspect
from concurrent.futures import Future
from typing import Any

from holdfast.errors import SettingError

#: Types of results that run nothing before the caller iterates over them, or waits for them.
_LAZY = (map, filter, Future)


def routine(function: Any) -> Any:  # noqa: ANN401 - anything that can be called
    """Find the routine that a call runs: the function inside of `functools.partial`, the `__call__` of an object."""
    while isinstance(function, functools.partial):
        function = function.func
    return function if inspect.isroutine(function) else getattr(type(function), "__call__", function)  # noqa: B004


def name_of_call(function: Any) -> str:  # noqa: ANN401 - as above
    """Name a function for errors and logs, without the arguments of a partial or the data of an object: these may be
    secret."""
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__qualname__", None) or type(function).__qualname__


def is_coroutine(function: Any) -> bool:  # noqa: ANN401 - as above
    """Whether calling it makes a coroutine."""
    return inspect.iscoroutinefunction(routine(function))


def makes_generator(function: Any) -> bool:  # noqa: ANN401 - as above
    """Whether calling it makes a generator, plain or async."""
    inner = routine(function)
    return inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner)


def check_runs(what: str, function: Any, name: str) -> None:  # noqa: ANN401 - as above
    """Check that a call of this function runs it. A wrapper may still return a coroutine: see `not_run`.

    Args:
        what: the setting that names it, for the error.
        function: the user's.
        name: the function's, for the error.

    Raises:
        SettingError: calling it makes a generator, or an object of a class.
    """
    if makes_generator(function):
        raise SettingError(what, name, "it has a yield: called, it makes a generator and runs nothing")
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, type):
        raise SettingError(what, name, "it is a class: called, it makes an object and runs nothing; give an object")


def check_returns(what: str, function: Any, name: str) -> None:  # noqa: ANN401 - as above
    """Check that a call of this function returns its value at once. Arguments as of `check_runs`.

    Raises:
        SettingError: it returns a coroutine or a generator.
    """
    if is_coroutine(function) or makes_generator(function):
        raise SettingError(what, name, "a call of it returns no value, and nothing awaits it: give a plain function")


def not_run(returned: object) -> str | None:
    """Return the name of the type of a returned value, or of an item of a returned list, whose work has not run. Closes
    a coroutine or a generator.

    Returns: None for all other values.
    """
    if isinstance(returned, list | tuple):
        found = [not_run(each) for each in returned if each is not None and not isinstance(each, list | tuple)]
        return next(filter(None, found), None)
    if inspect.iscoroutine(returned) or inspect.isgenerator(returned):
        returned.close()
    elif not (inspect.isawaitable(returned) or inspect.isasyncgen(returned) or isinstance(returned, _LAZY)):
        return None
    return type(returned).__name__
