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
    #: File and line, and what was compiled there, where it is written in Python.
    place: tuple[str, CodeType] | None
    #: The import of its module: each has a spec of its own, also after `importlib.reload`.
    imported: object
    #: Data of the function around it: another queue's name makes another function.
    captured: Mapping[str, Any]
    #: Whether it was typed at a prompt or in a notebook: a cell that runs again makes its functions again.
    typed: bool

    def made_again_by(self, later: Origin, *, named: bool) -> bool:
        """Whether `later` is this function once more, and no other."""
        if named and self.place is not None and self.place == later.place and self.captured == later.captured:
            # Made by a function that was called again, or its module was imported under a second name.
            return True
        anew = self.imported is not later.imported or (self.typed and later.typed and self.place != later.place)
        return anew and (self.module, self.qualname) == (later.module, later.qualname)

    def __str__(self) -> str:
        return f"{self.module}.{self.qualname} ({self.place[0] if self.place else 'not written in Python'})"


class Taken:
    """A name that a function has, for as long as that function lives."""

    def __init__(self, names: Names, name: str, origin: Origin) -> None:
        self.names, self.name, self.origin = names, name, origin


#: Of all stores of this process. A step of a dict each: a lock might be held by another thread at a fork.
_TAKEN: weakref.WeakValueDictionary[int, Taken] = weakref.WeakValueDictionary()
_NUMBERS = itertools.count()


class Names:
    """Functions of one store object.

    Args:
        place: the same for all store objects of this process that have the same keys; None: no other has them.
    """

    def __init__(self, place: object = None) -> None:
        self._place = place
        #: Not that of a store that was closed: its functions are not called any more.
        self.in_use = True
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
            _refuse(chosen, earlier, "")
        if self._differs_elsewhere(chosen, origin) is not None:
            gc.collect()  # a function that nothing can call any more is no other one
            other = self._differs_elsewhere(chosen, origin)
            if other is not None:
                _refuse(chosen, other, ", at another store object of the same server and namespace")
        return chosen, origin

    def take(self, name: str, origin: Origin) -> Taken:
        """The function has that name from now on; whoever calls it keeps what this returns."""
        self._origins[name] = origin
        taken = _TAKEN[next(_NUMBERS)] = Taken(self, name, origin)
        return taken

    def _differs_elsewhere(self, name: str, origin: Origin) -> Origin | None:
        """Another function that has the name at another store object for the same keys."""
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
    inner = inspect.unwrap(routine(function))  # not the line of a decorator that is used in many places
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
        with suppress(ValueError):  # it is not set yet
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


#: By such data objects of one class, or two functions of one place, are told apart; anything else they may share.
_DATA = (str, bytes, int, UUID, Enum)


def _data(found: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if isinstance(value, _DATA)}


class Owner:
    """The objects that a method is called on, where its key has nothing of them: they must not differ.

    Two objects that hold the same data are alike: an object for each request is as usual as one for the whole process.
    """

    def __init__(self, name: str, parameter: str) -> None:
        self._name = name
        self._parameter = parameter
        self._kind: object = None
        self._first: dict[str, Any] = {}
        self._last: Callable[[], object] = lambda: None

    @classmethod
    def of(cls, name: str, signature: inspect.Signature, used: Sequence[str]) -> Owner | None:
        """None: it is no method, or its key has something of the object."""
        first = next(iter(signature.parameters), None)
        return cls(name, first) if first in ("self", "cls") and first not in used else None

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Raises SettingError: this object is another one than the first."""
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
        with suppress(TypeError):  # it has no place for a weak reference: it is looked at each time
            self._last = weakref.ref(owner)

    def _refuse(self, how: str) -> NoReturn:
        raise SettingError(
            "key",
            self._name,
            f"two of the objects that it is called on {how}, and its key has nothing of them, so that one would get "
            f"the result of the other: take it in (key=('{self._parameter}.tenant', 'order_id')), or decide by a "
            "function as key, which may say that they are alike",
        )
