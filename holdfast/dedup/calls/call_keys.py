"""The keys of calls: from a call's arguments, or from an item of its batch. Keys are typed as those of records are.

A key may be a path: "order.id" leads from the arguments, or from the item, to a part of them.
"""

from __future__ import annotations

import inspect
import json
from typing import TYPE_CHECKING, Any

from holdfast.dedup.calls.functions import Owner
from holdfast.dedup.keys import ABSENT, NO_KEY_REMEDY, inside, key_text, no_key
from holdfast.dedup.not_run import check_returns, name_of_call
from holdfast.errors import KeyMissing, SettingError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeAlias

_NAMED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)

#: A parameter's name, a path into it with dots, several of these, or a function.
CallKey: TypeAlias = "str | tuple[str, ...] | Callable[..., object]"


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


class ArgumentKey:
    """The key of a call. It does not depend on whether arguments are given by position, by name or by default.

    Args:
        name: of the function, for errors.
        signature: of the function.
        spec: "order_id", "order.id", a tuple of such, or a function that takes the same arguments.

    Raises:
        SettingError: `spec` is none of these, or names no parameter.
    """

    def __init__(self, name: str, signature: inspect.Signature, spec: CallKey) -> None:
        self._name = name
        self._signature = signature
        self._function: Callable[..., object] | None = None
        self._paths: list[ArgumentPath] = []
        self._owner: Owner | None = None
        self._several = isinstance(spec, tuple)
        if isinstance(spec, str | tuple):
            self._paths = [ArgumentPath("key", signature, each) for each in several("key", spec)]
            self._owner = Owner.of(name, signature, [each.names[0] for each in self._paths])
        elif callable(spec):
            check_returns("key", spec, name_of_call(spec))
            self._function = spec
        else:
            raise SettingError("key", spec, "give a parameter's name, a path into it ('order.id'), or a function")

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Return the key's text.

        Raises:
            KeyMissing: the call has no key.
            TypeError: the arguments do not fit the function.
        """
        call = self._signature.bind(*args, **kwargs)
        call.apply_defaults()
        if self._function is not None:
            return _text(self._name, self._function(*call.args, **call.kwargs))
        if self._owner is not None:
            self._owner.check(call.arguments)
        found = [_text(self._name, each.follow(call.arguments), each.names) for each in self._paths]
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
        if isinstance(spec, str):
            path = path_of("key", spec)
            self._take: Callable[[Any], str] = lambda item: _text(name, follow(item, path), path)
        elif isinstance(spec, tuple):
            paths = [path_of("key", each) for each in several("key", spec)]
            self._take = lambda item: _joined([_text(name, follow(item, each), each) for each in paths])
        elif callable(spec):
            check_returns("key", spec, name_of_call(spec))
            self._take = lambda item: _text(name, spec(item))
        else:
            raise SettingError("key", spec, "give a field's name, a path ('order.id'), or a function of the item")

    def __call__(self, item: object) -> str:
        """Return the key's text.

        Raises:
            KeyMissing: the item has no key.
        """
        return self._take(item)


class BatchParameter:
    """The argument of a call that is the batch: the first that may be given by position, after `self` and `cls`.

    Args:
        name: of the function, for errors.
        signature: of the function.
        key: of an item.

    Raises:
        SettingError: the function has no such parameter.
    """

    def __init__(self, name: str, signature: inspect.Signature, key: CallKey) -> None:
        self._signature = signature
        self._owner = None if callable(key) else Owner.of(name, signature, ())
        names = [each.name for each in signature.parameters.values() if each.kind in _POSITIONAL]
        # Only the name of its first parameter tells that a function is a method: the class does not exist yet.
        self._names = names[1:] if names[:1] in (["self"], ["cls"]) else names
        if not self._names:
            raise SettingError("batch", True, f"{name} has no parameter for the list of items: let it take one")

    def take(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], Callable[[list[Any]], Any]]:
        """Return the items, and a function that returns the call's arguments with other items in their place.

        Raises:
            TypeError: the arguments do not fit the function.
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


def _joined(texts: list[str]) -> str:
    """One key from several; different ones never give the same key."""
    return "s:" + json.dumps(texts, ensure_ascii=False, separators=(",", ":"))


def _text(name: str, found: object, path: Sequence[str] = ()) -> str:
    if found is ABSENT:
        raise _missing(name, f"there is no {'.'.join(path)!r} in it")
    text = key_text(found)
    if text is None:
        raise _missing(name, no_key(found))
    return text


def _missing(name: str, what: str) -> KeyMissing:
    return KeyMissing(
        f"no business key for a call of {name}: {what}; {NO_KEY_REMEDY}; a function can make one: key=lambda order: ..."
    )
