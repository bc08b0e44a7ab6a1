"""Fingerprints: whether a call that repeats a key repeats its payload too.

A digest of the payload is kept with the key, in front of its result: 23 characters, whatever the payload's size. As the
key's own text goes into it, equal payloads of two keys look different in the store.
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

from holdfast.dedup.calls.paths import ArgumentPath, follow, path_of, several
from holdfast.dedup.calls.results import TOO_LARGE
from holdfast.dedup.keys import ABSENT
from holdfast.dedup.not_run import check_returns, name_of_call
from holdfast.errors import KeyReused, SettingError
from holdfast.records import Record

if TYPE_CHECKING:
    import inspect
    from typing import TypeAlias

#: Whether to have one, what of the arguments or of an item it is of, or a function that makes something of them.
FingerprintOf: TypeAlias = "bool | str | tuple[str, ...] | Callable[..., object]"

#: Begins what is kept with a key that has one; neither JSON nor anything else that is kept begins so.
_MARK = "#"
_BYTES = 16
_LENGTH = len(_MARK) + 22
_REMEDY = "give True (all arguments), names of parameters ('amount', ('order.total', 'currency')), or a function"


def stamped(fingerprint: str | None, text: str) -> str:
    """Put the fingerprint in front of a result's text: so it is kept with a key."""
    return text if fingerprint is None else _MARK + fingerprint + text


def unstamped(kept: str) -> tuple[str | None, str]:
    """Take the two apart: the fingerprint, None where there is none; and the result's text."""
    return (kept[len(_MARK) : _LENGTH], kept[_LENGTH:]) if kept.startswith(_MARK) else (None, kept)


def without_result(kept: str) -> str:
    """Leave out the result, which the store does not take."""
    return stamped(unstamped(kept)[0], TOO_LARGE)


def reused(name: str) -> KeyReused:
    """The error of a call whose payload is another one than that of the call that has run."""
    return KeyReused(
        f"{name} has run for this key with another payload, and does not run again: another piece of work needs a key "
        "of its own; a repeated call has to send what the first one sent, as far as fingerprint= compares it"
    )


class ArgumentFingerprint:
    """The fingerprint of a call. However its arguments are given, it is the same.

    Args:
        name: of the function, for errors.
        signature: of the function.
        spec: as `idempotent` has it, but False.

    Raises:
        SettingError: `spec` cannot be.
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
            SettingError: it has arguments without a value that could be compared.
        """
        call = self._signature.bind(*args, **kwargs)
        call.apply_defaults()
        return _digest(self._name, key, self._take(call))

    def _given(self, call: inspect.BoundArguments) -> dict[str, object]:
        """All that differs from its default, without the object of a method: so a parameter that is added with a
        default changes no fingerprint."""
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
        return False  # the digest tells


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
        """Raises SettingError: it has no value that could be compared."""
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
    """The value as JSON in which nothing but equal values of one kind are alike: 5, 5.0, "5" and True differ; lists and
    tuples do not, nor do a class and a dict of the same fields, since what comes by a queue comes as JSON has it."""
    if isinstance(value, Enum):
        return _form(value.value)
    if value is None or value is ABSENT:
        return ["none" if value is None else "absent"]
    if isinstance(value, bool):
        return ["bool", value]
    if isinstance(value, Integral):
        return ["int", hex(int(value))]  # decimal digits cost the square of their number
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
    if isinstance(value, Record):  # its offset is another one each time
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
    """1.50 is 1.5, and no digit is lost."""
    return Context(prec=max(1, len(value.as_tuple().digits)), Emin=-(10**17), Emax=10**17, traps=[])


def _fields(value: Any) -> dict[str, Any] | None:  # noqa: ANN401 - an object of a class that declares its fields
    """Of dataclasses, pydantic models, msgspec Structs, attrs' classes."""
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
