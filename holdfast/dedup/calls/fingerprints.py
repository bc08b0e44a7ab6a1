"""Fingerprints: they tell whether a call that repeats a key repeats its payload too.

A digest of the payload is kept with the key, in front of its result: 23 characters, whatever the payload's size. The
key's text goes into the digest, so equal payloads of two keys look different in the store.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from enum import Enum
from numbers import Integral
from typing import TYPE_CHECKING, Any
from uuid import UUID

from holdfast.dedup.calls.call_keys import ArgumentPath, follow, path_of, several
from holdfast.dedup.keys import ABSENT
from holdfast.dedup.not_run import check_returns, name_of_call
from holdfast.errors import KeyReused, SettingError
from holdfast.records import Record

if TYPE_CHECKING:
    import inspect
    from typing import TypeAlias

#: False = none, True = of all arguments, paths of the parts to take, or a function that makes plain data of the
#: arguments.
FingerprintOf: TypeAlias = "bool | str | tuple[str, ...] | Callable[..., object]"

_BYTES = 16
_REMEDY = "give True (all arguments), names of parameters ('amount', ('order.total', 'currency')), or a function"


def reused(name: str) -> KeyReused:
    """The error of a call whose payload differs from that of the call that has run."""
    return KeyReused(
        f"{name} has run for this key with another payload, and does not run again: another piece of work needs a key "
        "of its own; a repeated call has to send what the first one sent, as far as fingerprint= compares it"
    )


class ArgumentFingerprint:
    """The fingerprint of a call. It does not depend on whether arguments are given by position, by name or by default.

    Args:
        name: of the function, for errors.
        signature: of the function.
        spec: as `idempotent` has it, but not False.

    Raises:
        SettingError: `spec` is of no such form, or names no parameter.
    """

    def __init__(self, name: str, signature: inspect.Signature, spec: FingerprintOf) -> None:
        self._name, self._signature = name, signature
        self._take: Callable[[inspect.BoundArguments], object] = self._given
        if isinstance(spec, str | tuple):
            paths = [ArgumentPath("fingerprint", signature, each) for each in several("fingerprint", spec)]
            self._take = lambda call: [path.follow(call.arguments) for path in paths]
        elif spec is not True:
            function = _checked(spec)
            self._take = lambda call: function(*call.args, **call.kwargs)

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any], key: str) -> str:
        """The fingerprint of a call for that key.

        Raises:
            SettingError: an argument has no value that can be compared.
        """
        call = self._signature.bind(*args, **kwargs)
        call.apply_defaults()
        return _digest(self._name, key, self._take(call))

    def _given(self, call: inspect.BoundArguments) -> dict[str, object]:
        """The arguments that differ from their defaults, without the object of a method. A parameter that is added
        later, with a default, therefore changes no fingerprint."""
        parameters = self._signature.parameters
        return {
            name: value
            for at, (name, value) in enumerate(call.arguments.items())
            if not (at == 0 and name in ("self", "cls")) and not _is_default(value, parameters[name])
        }


def _is_default(value: object, parameter: inspect.Parameter) -> bool:
    if parameter.kind is parameter.VAR_POSITIONAL or parameter.kind is parameter.VAR_KEYWORD:
        return not value
    if value is parameter.default or parameter.default is parameter.empty:
        return value is parameter.default
    try:
        return _form(value) == _form(parameter.default)
    except (_Unknown, RecursionError):
        return False  # `_digest` raises the error


class ItemFingerprint:
    """The fingerprint of an item of a batch; as `ArgumentFingerprint`."""

    def __init__(self, name: str, spec: FingerprintOf) -> None:
        self.name = name
        self._take: Callable[[Any], object] = lambda item: item
        if isinstance(spec, str | tuple):
            paths = [path_of("fingerprint", each) for each in several("fingerprint", spec)]
            self._take = lambda item: [follow(item, path) for path in paths]
        elif spec is not True:
            self._take = _checked(spec)

    def __call__(self, item: object, key: str) -> str:
        """The fingerprint of an item for that key. Raises SettingError: the item has no value that can be compared."""
        return _digest(self.name, key, self._take(item))


def _checked(spec: object) -> Callable[..., object]:
    if not callable(spec):
        raise SettingError("fingerprint", spec, _REMEDY)
    check_returns("fingerprint", spec, name_of_call(spec))
    return spec


def _digest(name: str, key: str, payload: object) -> str:
    try:
        text = json.dumps([key, _form(payload)], separators=(",", ":"))
    except _Unknown as unknown:
        raise SettingError(
            "fingerprint",
            name,
            f"a {unknown} has no value that could be compared with that of a later call: name what has "
            "(fingerprint=('amount', 'currency')), or give a function that makes plain data of it",
        ) from None
    except RecursionError:
        raise SettingError(
            "fingerprint", name, "what it is called with is nested too deeply to be compared: name parts of it"
        ) from None
    digest = hashlib.sha256(text.encode()).digest()[:_BYTES]
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


class _Unknown(Exception):
    """A type without a form."""


def _form(value: Any) -> list[Any]:  # noqa: ANN401, C901, PLR0911, PLR0912 - one line a type
    """The value as JSON, in which only equal values of one kind are equal: 5, 5.0, "5" and True differ. Lists and
    tuples do not differ, nor do an object and a dict of the same fields, because a queue delivers them as JSON."""
    if isinstance(value, Enum):
        return _form(value.value)
    if value is None or value is ABSENT:
        return ["none" if value is None else "absent"]
    if isinstance(value, bool):
        return ["bool", value]
    if isinstance(value, Integral):
        return ["int", hex(int(value))]  # hex, since the time for decimal digits grows with the square of their number
    if isinstance(value, float):
        return ["float", float.hex(value)]
    if isinstance(value, str):
        return ["str", str.__str__(value)]
    if isinstance(value, bytes | bytearray | memoryview):
        return ["bytes", bytes(value).hex()]
    if isinstance(value, Decimal):
        return ["decimal", str(value.normalize(_exactly(value)))]
    if isinstance(value, datetime) and value.utcoffset() is not None:
        return ["time", value.astimezone(UTC).isoformat()]
    if isinstance(value, date | time | timedelta | UUID):
        return ["uuid" if isinstance(value, UUID) else "time", str(value)]
    if isinstance(value, Record):  # only its value: the offset of a repeated record differs
        return _form(value.value)
    if isinstance(value, Mapping):
        return ["fields", sorted([_form(name), _form(each)] for name, each in value.items())]
    if isinstance(value, list | tuple):
        return ["list", [_form(each) for each in value]]
    if isinstance(value, AbstractSet):
        return ["set", sorted(_form(each) for each in value)]
    if (found := _fields(value)) is not None:
        return _form(found)
    raise _Unknown(type(value).__qualname__)


def _exactly(value: Decimal) -> Context:
    """A context in which `normalize` loses no digit: 1.50 becomes 1.5."""
    return Context(prec=max(1, len(value.as_tuple().digits)), Emin=-(10**17), Emax=10**17, traps=[])


def _fields(value: Any) -> dict[str, Any] | None:  # noqa: ANN401 - an object of a class that declares its fields
    """The fields of a dataclass, a pydantic model, a msgspec Struct or an attrs class; None = it is none of these."""
    kind = type(value)
    if is_dataclass(kind):
        return {each.name: getattr(value, each.name) for each in fields(kind)}
    if hasattr(kind, "__pydantic_fields__") and callable(dump := getattr(value, "model_dump", None)):
        return dict(dump())
    if isinstance(names := getattr(kind, "__struct_fields__", None), Sequence):
        return {name: getattr(value, name) for name in names}
    if isinstance(names := getattr(kind, "__attrs_attrs__", None), Sequence):
        return {each.name: getattr(value, each.name) for each in names}
    return None
