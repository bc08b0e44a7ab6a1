"""Names of functions: what finds their keys again after a restart, and keeps the keys of two functions apart."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Callable


class Origin(NamedTuple):
    """Where a function was made."""

    module: str
    qualname: str
    #: File and line, where it is written in Python.
    place: str | None
    #: The import of its module: each has a spec of its own, also after `importlib.reload`.
    imported: object

    def made_again_by(self, later: Origin, *, named: bool) -> bool:
        """Whether `later` is this function once more, and no other."""
        if named and self.place is not None and self.place == later.place:
            # Made by a function that was called again, or its module was imported under a second name.
            return True
        imported_anew = self.imported is not later.imported
        return imported_anew and (self.module, self.qualname) == (later.module, later.qualname)


class Names:
    """The functions of one store in this process."""

    def __init__(self) -> None:
        self._origins: dict[str, Origin] = {}

    def choose(self, function: Callable[..., Any], name: str | None) -> tuple[str, Origin]:
        """The name under which the function's keys are kept, to be taken by `take`.

        Args:
            function: to be decorated.
            name: chosen by the user, or None: module and qualified name.

        Raises:
            SettingError: it has no name that would be the same after a restart, or another function has the name.
        """
        origin = _origin(function)
        chosen = name if name is not None else _derived(origin)
        if not chosen or not isinstance(chosen, str):
            raise SettingError("name", name, "give a text that is not empty")
        earlier = self._origins.get(chosen)
        if earlier is not None and not earlier.made_again_by(origin, named=name is not None):
            raise SettingError(
                "name",
                chosen,
                f"{earlier.module}.{earlier.qualname} ({earlier.place}) has this name already, and each would skip the "
                "keys of the other: give one of them another name=...",
            )
        return chosen, origin

    def take(self, name: str, origin: Origin) -> None:
        """The function has that name from now on."""
        self._origins[name] = origin


def plain(function: Any) -> Any:  # noqa: ANN401 - a function, or an object that can be called
    """What runs when it is called: without `functools.partial`, of an object its `__call__`."""
    while isinstance(function, functools.partial):
        function = function.func
    return function if inspect.isroutine(function) else getattr(type(function), "__call__", function)  # noqa: B004


def _origin(function: Callable[..., Any]) -> Origin:
    inner = inspect.unwrap(plain(function))  # not the line of a decorator that is used in many places
    code = getattr(inner, "__code__", None)
    scope = getattr(inner, "__globals__", {})
    named = function if hasattr(function, "__qualname__") else None
    return Origin(
        module=getattr(named, "__module__", None) or "",
        qualname=getattr(named, "__qualname__", ""),
        place=f"{code.co_filename}:{code.co_firstlineno}" if code is not None else None,
        imported=scope.get("__spec__"),
    )


def _derived(origin: Origin) -> str:
    name = f"{origin.module}.{origin.qualname}"
    if not origin.qualname or "<" in origin.qualname:
        raise SettingError(
            "name", name, "only functions of modules and classes have a name of their own: give it name='billing'"
        )
    if origin.module == "__main__":
        raise SettingError(
            "name", name, "in every script that is started directly the module is __main__: give it name='billing'"
        )
    return name
