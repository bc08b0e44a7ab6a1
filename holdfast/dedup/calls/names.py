"""Names of calls: the name of the function, and the key of its arguments or of an item of its batch.

A name finds its keys again after a restart, and keeps the keys of two functions apart. Keys are typed as records'
keys are.
"""

from __future__ import annotations

import inspect
import json
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn
from uuid import UUID

from holdfast.dedup.keys import NO_KEY_REMEDY, key_text, no_key
from holdfast.dedup.not_run import check_returns, routine
from holdfast.errors import KeyMissing, SettingError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias


class Origin(NamedTuple):
    """Where a function was made."""

    module: str
    qualname: str
    #: File and line, where it is written in Python.
    place: str | None
    #: The import of its module: each has a spec of its own, also after `importlib.reload`.
    imported: object
    #: Data of the function around it: another queue's name makes another function.
    captured: Mapping[str, Any]

    def made_again_by(self, later: Origin, *, named: bool) -> bool:
        """Whether `later` is this function once more, and no other."""
        if named and self.place is not None and self.place == later.place and self.captured == later.captured:
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


def _origin(function: Callable[..., Any]) -> Origin:
    inner = inspect.unwrap(routine(function))  # not the line of a decorator that is used in many places
    code = getattr(inner, "__code__", None)
    scope = getattr(inner, "__globals__", {})
    named = function if hasattr(function, "__qualname__") else None
    return Origin(
        module=getattr(named, "__module__", None) or "",
        qualname=getattr(named, "__qualname__", ""),
        place=f"{code.co_filename}:{code.co_firstlineno}" if code is not None else None,
        imported=scope.get("__spec__"),
        captured=_data(_captured(inner)),
    )


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


_NAMED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_POSITIONAL = _NAMED[:2]

#: A parameter's name, with dots a path into it, several of them, or a function.
CallKey: TypeAlias = "str | tuple[str, ...] | Callable[..., object]"


class ArgumentKey:
    """The key of a call. However the arguments are given, by position, by name or by default, it is the same.

    Args:
        name: of the function, for errors.
        signature: of the function.
        spec: "order_id", "order.id", a tuple of such, or a function that takes what the function takes.

    Raises:
        SettingError: `spec` is none of these, or names no parameter.
    """

    def __init__(self, name: str, signature: inspect.Signature, spec: CallKey) -> None:
        self._name = name
        self._signature = signature
        self._function: Callable[..., object] | None = None
        self._paths: list[tuple[Sequence[str], str | None]] = []
        self._owner: Owner | None = None
        self._several = isinstance(spec, tuple)
        if isinstance(spec, str | tuple):
            for each in _several(spec):
                path = _path(each)
                self._paths.append((path, _check_parameter(signature, each, path[0])))
            self._owner = Owner.of(name, signature, [path[0] for path, _ in self._paths])
        elif callable(spec):
            check_returns("key", spec, getattr(spec, "__qualname__", repr(spec)))
            self._function = spec
        else:
            raise SettingError("key", spec, "give a parameter's name, a path into it ('order.id'), or a function")

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """The key's text.

        Raises:
            KeyMissing: it has none.
            TypeError: the function cannot be called so.
        """
        call = self._signature.bind(*args, **kwargs)
        call.apply_defaults()
        if self._function is not None:
            return _text(self._name, self._function(*call.args, **call.kwargs))
        if self._owner is not None:
            self._owner.check(call.arguments)
        found = []
        for path, rest in self._paths:
            given: Mapping[str, Any] = call.arguments[rest] if rest else call.arguments
            found.append(_text(self._name, _follow(self._name, given, path)))
        return _joined(found) if self._several else found[0]


class ItemKey:
    """The key of an item of a batch.

    Args:
        name: of the function, for errors.
        spec: a path into the item ("order_id", "order.id"), or a function of the item.

    Raises:
        SettingError: `spec` is none of these.
    """

    def __init__(self, name: str, spec: CallKey) -> None:
        self._name = name
        if isinstance(spec, str):
            path = _path(spec)
            self._take: Callable[[Any], object] = lambda item: _follow(name, item, path)
        elif isinstance(spec, tuple):
            paths = [_path(each) for each in _several(spec)]
            self._take = lambda item: _joined([_text(name, _follow(name, item, each)) for each in paths])[2:]
        elif callable(spec):
            check_returns("key", spec, getattr(spec, "__qualname__", repr(spec)))
            self._take = spec
        else:
            raise SettingError("key", spec, "give a field's name, a path ('order.id'), or a function of the item")

    def __call__(self, item: object) -> str:
        """The key's text.

        Raises:
            KeyMissing: it has none.
        """
        return _text(self._name, self._take(item))


class BatchParameter:
    """Which argument of a call is the batch: the first that may be given by position, after `self` and `cls`.

    Args:
        name: of the function, for errors.
        signature: of the function.
        key: of an item.

    Raises:
        SettingError: the function has none.
    """

    def __init__(self, name: str, signature: inspect.Signature, key: CallKey) -> None:
        self._signature = signature
        self._owner = None if callable(key) else Owner.of(name, signature, ())
        names = [each.name for each in signature.parameters.values() if each.kind in _POSITIONAL]
        # As it stands in a class' body, a function cannot be told from others but by this convention.
        self._names = names[1:] if names[:1] in (["self"], ["cls"]) else names
        if not self._names:
            raise SettingError("batch", True, f"{name} has no parameter for the list of items: let it take one")

    def take(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], Callable[[list[Any]], Any]]:
        """The items, and a function that gives the call's arguments with other items instead.

        Raises:
            TypeError: the function cannot be called so.
        """
        call = self._signature.bind(*args, **kwargs)
        name = self._names[0]
        if self._owner is not None:
            self._owner.check(call.arguments)
        if name not in call.arguments:
            call.apply_defaults()
        items = list(call.arguments[name])

        def with_items(chosen: list[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
            call.arguments[name] = chosen
            return call.args, call.kwargs

        return items, with_items


def _several(spec: str | tuple[str, ...]) -> tuple[str, ...]:
    several = (spec,) if isinstance(spec, str) else spec
    if not several or not all(isinstance(each, str) for each in several):
        raise SettingError("key", spec, "give one name or several: key=('self.tenant', 'order_id')")
    return several


def _joined(texts: list[str]) -> str:
    """A key of several; no two of them meet."""
    return "s:" + json.dumps(texts, ensure_ascii=False, separators=(",", ":"))


def _path(spec: str) -> list[str]:
    path = spec.split(".")
    if not all(path):
        raise SettingError("key", spec, "name a parameter, or with dots a path into it: 'order_id', 'order.id'")
    return path


def _check_parameter(signature: inspect.Signature, spec: str, first: str) -> str | None:
    """The name of the `**parameter` in which to look for `first`; None = it is a parameter itself."""
    parameters = signature.parameters
    if first in parameters and parameters[first].kind in _NAMED:
        return None
    rest = next((each.name for each in parameters.values() if each.kind is inspect.Parameter.VAR_KEYWORD), None)
    if rest is None:
        has = ", ".join(parameters) or "none"
        raise SettingError("key", spec, f"the function has no parameter {first!r} (it has: {has}): name one of them")
    return rest


def _follow(name: str, found: Any, path: Sequence[str]) -> object:  # noqa: ANN401 - whatever the function is given
    for part in path:
        if isinstance(found, Mapping):
            if part not in found:
                raise _missing(name, f"there is no {part!r} of {'.'.join(path)!r} in it")
            found = found[part]
        else:
            try:
                found = getattr(found, part)
            except AttributeError as error:
                raise _missing(name, f"there is no {part!r} of {'.'.join(path)!r} in it") from error
    return found


def _text(name: str, found: object) -> str:
    text = key_text(found)
    if text is None:
        raise _missing(name, no_key(found))
    return text


def _missing(name: str, what: str) -> KeyMissing:
    return KeyMissing(
        f"no business key for a call of {name}: {what}; {NO_KEY_REMEDY}; a function can make one: key=lambda order: ..."
    )
