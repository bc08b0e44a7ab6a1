"""Functions: the name of each at the store, and the objects that it is a method of.

A name finds the keys of a function again after a restart, and keeps the keys of two functions apart.
"""

from __future__ import annotations

import gc
import inspect
import itertools
import sys
import weakref
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn
from uuid import UUID

from holdfast.dedup.not_run import routine
from holdfast.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import CodeType


class Origin(NamedTuple):
    """Where a function was made."""

    module: str
    qualname: str
    #: File with line, and the code object; None = the function is not written in Python.
    place: tuple[str, CodeType] | None
    #: The spec of its module: another object after each import, also after `importlib.reload`.
    imported: object
    #: Data that it captures from the function around it: with another queue's name it is another function.
    captured: Mapping[str, Any]
    #: Whether it was typed at a prompt or in a notebook: a cell that runs again makes its functions again.
    typed: bool

    def made_again_by(self, later: Origin, *, named: bool) -> bool:
        """Whether `later` is this same function, made again. Args: named: whether the user has chosen its name."""
        if named and self.place is not None and self.place == later.place and self.captured == later.captured:
            # The function around it was called again, or its module was imported under a second name.
            return True
        anew = self.imported is not later.imported or (self.typed and later.typed and self.place != later.place)
        return anew and (self.module, self.qualname) == (later.module, later.qualname)

    def __str__(self) -> str:
        return f"{self.module}.{self.qualname} ({self.place[0] if self.place else 'not written in Python'})"


class Taken:
    """The name of a function, taken as long as that function lives."""

    def __init__(self, names: Names, name: str, origin: Origin) -> None:
        self.names, self.name, self.origin = names, name, origin


#: The names at all stores of this process. Changed by single dict operations, without a lock: another thread might hold
#: a lock at a fork.
_TAKEN: weakref.WeakValueDictionary[int, Taken] = weakref.WeakValueDictionary()
_NUMBERS = itertools.count()


class Names:
    """The names of the functions of one store object.

    Args:
        place: equal for all store objects of this process that have the same keys; None: no other object has them.
    """

    def __init__(self, place: object = None) -> None:
        self._place = place
        #: False = the store was closed, and its functions are not called any more.
        self.in_use = True
        self._origins: dict[str, Origin] = {}

    def choose(self, function: Callable[..., Any], name: str | None) -> tuple[str, Origin]:
        """Return the name under which the function's keys are kept; `take` then takes it.

        Args:
            function: the one to decorate.
            name: chosen by the user, or None: module and qualified name.

        Raises:
            SettingError: the function has no name that is the same after a restart, or another function has the name.
        """
        origin = _origin(function)
        chosen = name if name is not None else _derived(origin)
        if not chosen or not isinstance(chosen, str):
            raise SettingError("name", name, "give a text that is not empty")
        earlier = self._origins.get(chosen)
        if earlier is not None and not earlier.made_again_by(origin, named=name is not None):
            _refuse(chosen, earlier, "")
        if self._differs_elsewhere(chosen, origin) is not None:
            gc.collect()  # a function that nothing can call any more does not count
            other = self._differs_elsewhere(chosen, origin)
            if other is not None:
                _refuse(chosen, other, ", at another store object of the same server and namespace")
        return chosen, origin

    def take(self, name: str, origin: Origin) -> Taken:
        """Give the function this name. It has the name as long as the returned object is kept."""
        self._origins[name] = origin
        taken = _TAKEN[next(_NUMBERS)] = Taken(self, name, origin)
        return taken

    def _differs_elsewhere(self, name: str, origin: Origin) -> Origin | None:
        """Find another function that has this name at another store object with the same keys."""
        if self._place is None:
            return None
        for taken in [reference() for reference in _TAKEN.valuerefs()]:
            if (
                taken is not None
                and taken.name == name
                and taken.names is not self
                and taken.names.in_use
                and taken.names._place == self._place  # noqa: SLF001 - of this class
                and not taken.origin.made_again_by(origin, named=True)
            ):
                return taken.origin
        return None


def _refuse(name: str, earlier: Origin, where: str) -> NoReturn:
    raise SettingError(
        "name",
        name,
        f"{earlier} has this name already{where}, and each would skip the keys of the other: give one of them another "
        "name=...",
    )


def _origin(function: Callable[..., Any]) -> Origin:
    inner = inspect.unwrap(routine(function))  # the function's own line, not that of a decorator's wrapper
    code = getattr(inner, "__code__", None)
    scope = getattr(inner, "__globals__", {})
    named = function if hasattr(function, "__qualname__") else None
    return Origin(
        module=getattr(named, "__module__", None) or "",
        qualname=getattr(named, "__qualname__", ""),
        place=(f"{code.co_filename}:{code.co_firstlineno}", code) if code is not None else None,
        imported=scope.get("__spec__"),
        captured=_data(_captured(inner)),
        typed=_is_typed(scope) and "<lambda>" not in getattr(named, "__qualname__", ""),
    )


def _is_typed(scope: Mapping[str, Any]) -> bool:
    return scope.get("__name__") == "__main__" and ("__file__" not in scope or hasattr(sys, "ps1"))


def _captured(function: Any) -> Mapping[str, Any]:  # noqa: ANN401 - anything that can be called
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    found = {}
    for name, cell in zip(names, getattr(function, "__closure__", None) or (), strict=False):
        with suppress(ValueError):  # the variable is not set yet
            found[name] = cell.cell_contents
    return found


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


#: Types of data by which objects of one class, or functions of one place, are told apart. Other data is not compared.
_DATA = (str, bytes, int, UUID, Enum)


def _data(found: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if isinstance(value, _DATA)}


class Owner:
    """The objects that a method is called on, if its key has no part of them: they must not differ.

    Two objects that hold the same data are alike: a new object for each request is as usual as one for the whole
    process.
    """

    def __init__(self, name: str, parameter: str) -> None:
        self._name = name
        self._parameter = parameter
        self._kind: object = None
        self._first: dict[str, Any] = {}
        self._last: Callable[[], object] = lambda: None

    @classmethod
    def of(cls, name: str, signature: inspect.Signature, used: Sequence[str]) -> Owner | None:
        """Make one for a method. None: it is no method, or its key has a part of the object."""
        first = next(iter(signature.parameters), None)
        return cls(name, first) if first in ("self", "cls") and first not in used else None

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Raises SettingError: this object differs from the first one."""
        owner = arguments.get(self._parameter)
        if self._last() is owner:
            return
        kind, data = type(owner), _data(getattr(owner, "__dict__", {}))
        if isinstance(owner, type):
            kind, data = owner, {}
        if self._kind is None:
            self._kind, self._first = kind, data
        if self._kind is not kind:
            self._refuse("are of two classes")
        for name in data.keys() | self._first.keys():
            if data.get(name) != self._first.get(name):
                self._refuse(f"differ in {name!r}")
        with suppress(TypeError):  # the object takes no weak reference: it is compared each time
            self._last = weakref.ref(owner)

    def _refuse(self, how: str) -> NoReturn:
        raise SettingError(
            "key",
            self._name,
            f"two of the objects that it is called on {how}, and its key has nothing of them, so that one would get "
            f"the result of the other: take it in (key=('{self._parameter}.tenant', 'order_id')), or decide by a "
            "function as key, which may say that they are alike",
        )
