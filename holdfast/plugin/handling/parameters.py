"""Parameters of a handler with `value=`: finds at registration which one gets the record and which one the value.

An annotation decides, else a name (`record`, `value`; in batches also `records`, `values`). A single parameter without
either gets the value. Annotations are often imported for type checkers only: one that cannot be resolved is ignored.
"""

from __future__ import annotations

import collections.abc
import inspect
import types
import typing
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeAlias, TypeVar, Union, get_args, get_origin

from holdfast.dedup.not_run import is_coroutine, routine
from holdfast.errors import SettingError
from holdfast.plugin.handling.values import Reading, is_type, name_of, value_of
from holdfast.records import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Role: TypeAlias = Literal["record", "value"]

_ROLES: dict[str, Role] = {"record": "record", "records": "record", "value": "value", "values": "value"}
#: Annotations of batches: a list of records, a list of values.
_LISTS = (list, collections.abc.Sequence, collections.abc.Collection, collections.abc.Iterable)
_UNIONS = (Union, types.UnionType)
#: Remedies for a parameter without a role, and for a keyword-only one.
_NO_ROLE = "is neither the record nor the value: name it record or value, annotate it, or give it a default"
_NO_RESOURCE = "is no resource: register one of that name above, with @app.resource, or give it a default"
#: Names in annotations that modules often import for type checkers only.
_KNOWN_NAMES = {
    "Record": Record,
    "Any": Any,
    **{name: getattr(typing, name) for name in ("Annotated", "List", "Literal", "Optional", "Union")},
    **{each.__name__: each for each in (*_LISTS, collections.abc.Mapping)},
}


class Bound(NamedTuple):
    """A handler that gets values."""

    #: Takes a record or a list of records, and calls the user's function with the arguments that its parameters need.
    call: Callable[[Any], Any]
    reading: Reading


def bind(function: Callable[..., Any], spec: object, *, name: str, batch: bool) -> Bound:
    """Bind a handler's parameters.

    Args:
        function: the user's function.
        spec: the argument of `value=`.
        name: the handler's name.
        batch: whether the handler takes lists.

    Raises:
        SettingError: a parameter is neither the record nor the value, or is annotated with another type than the
            value's; none takes the value; `spec` decodes nothing.
    """
    parameters = _Parameters(function, spec if is_type(spec) else Any, name, batch=batch)
    reading = Reading(spec, tombstones=parameters.tombstones)
    return Bound(_caller(function, parameters.roles, batch=batch), reading)


class _Parameters:
    """The parameters of one function, and their roles.

    Args:
        kind: the type of `value=`; Any if that is a function or a `Deserializer`.
    """

    def __init__(self, function: Callable[..., Any], kind: object, name: str, *, batch: bool) -> None:
        self._kind, self._name, self._batch = kind, name, batch
        #: Parameters that may be None.
        self._optional: set[str] = set()
        #: A parameter's name (None: by position) and its role.
        self.roles: list[tuple[str | None, Role]] = [(None, "value")]
        #: Whether the handler takes None for a record without a value.
        self.tombstones = False
        try:
            self._signature = inspect.signature(function)
        except (TypeError, ValueError):  # some functions in C have none
            return
        self._names = names_of(function, kind)
        self._find(list(self._signature.parameters.values()))

    def _find(self, parameters: Sequence[inspect.Parameter]) -> None:
        named = [each for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
        roles: dict[str, Role] = {}
        others = []
        for each in named:
            role = self._role(each)
            if role is None and each.default is each.empty:
                others.append(each)
            elif role is not None:
                if role in roles.values():
                    self._refuse(each, f"is a second one for the {role}: leave one of them out")
                roles[each.name] = role
        if others and "value" not in roles.values():
            roles[others.pop(0).name] = "value"
        if others:
            self._refuse(others[0], _NO_RESOURCE if others[0].kind is inspect.Parameter.KEYWORD_ONLY else _NO_ROLE)
        if not roles and any(each.kind is each.VAR_POSITIONAL for each in parameters):
            return
        if "value" not in roles.values():
            remedy = f"no parameter takes the value: add `{self._example}`, or leave value= out"
            raise SettingError("handler", self._shown, remedy)
        self.tombstones = any(roles.get(name) == "value" for name in self._optional)
        self.roles = [
            (None if each.kind is each.POSITIONAL_ONLY else each.name, roles[each.name])
            for each in named
            if each.name in roles
        ]

    def _role(self, parameter: inspect.Parameter) -> Role | None:
        """Find a parameter's role. None: neither its annotation nor its name gives one. A parameter with a default gets
        a role only by its name, or as a Record."""
        by_name = _ROLES.get(parameter.name)
        item, optional = without_none(annotation_of(parameter, self._names))
        if _is_open(item):
            return by_name
        is_list = get_origin(item) in _LISTS or item in _LISTS
        inner, inner_optional = without_none((*get_args(item), Any)[0])
        if self._batch and is_list:
            item, optional = inner, inner_optional
        if optional:
            self._optional.add(parameter.name)
        if item is Record and self._batch is is_list:
            return "record"
        if parameter.default is not parameter.empty and by_name is None:
            return None
        if self._batch and not is_list:
            self._refuse(parameter, f"gets a list, since the handler takes batches: annotate it `{self._example}`")
        if _is_open(item) or self._kind is Any:
            return by_name
        if not _fits(self._kind, item):
            if is_list and not self._batch and (inner is Record or _fits(self._kind, inner)):
                self._refuse(parameter, f"is annotated {name_of(item)}, which batches are: say batch=BatchOf(...)")
            what = f"is annotated {name_of(item)}, and value= makes {name_of(self._kind)}"
            self._refuse(parameter, f"{what}: annotate it `{self._example}`, or say value={name_of(item)}")
        return "value"

    @property
    def _example(self) -> str:
        kind = name_of(self._kind)
        return f"values: list[{kind}]" if self._batch else f"value: {kind}"

    @property
    def _shown(self) -> str:
        return f"{self._name}({', '.join(self._signature.parameters)})"

    def _refuse(self, parameter: inspect.Parameter, what: str) -> typing.NoReturn:
        raise SettingError("handler", self._shown, f"its parameter {parameter.name!r} {what}")


def annotation_of(parameter: inspect.Parameter, names: Mapping[str, Any]) -> object | None:
    """Resolve a parameter's annotation with `names`, without the additions of `Annotated`. None: there is none, or it
    cannot be resolved."""
    if parameter.annotation is parameter.empty:
        return None
    holder = types.SimpleNamespace(__annotations__={"it": parameter.annotation})
    try:
        return typing.get_type_hints(holder, dict(names))["it"]  # type: ignore[no-any-return]
    except Exception:  # noqa: BLE001 - the user's annotation, which may be meant for type checkers only
        return None


def names_of(function: Any, kind: object = None) -> dict[str, Any]:  # noqa: ANN401 - anything that can be called
    """The names that the function's annotations may use. Its module's names come before those known here."""
    function = routine(inspect.unwrap(routine(function)))
    own = {kind.__name__: kind} if isinstance(kind, type) else {}
    return {**_KNOWN_NAMES, **own, **getattr(getattr(function, "__func__", function), "__globals__", {})}


def without_none(annotation: object) -> tuple[object, bool]:
    """Remove `| None` from an annotation. Returns: the rest, and whether `| None` was there."""
    if get_origin(annotation) not in _UNIONS:
        return annotation, False
    inner = tuple(each for each in get_args(annotation) if each is not type(None))
    return (Union[inner] if inner else None), len(inner) < len(get_args(annotation))  # noqa: UP007 - of a tuple


def _is_open(annotation: object) -> bool:
    return annotation is None or annotation is Any or annotation is object or isinstance(annotation, TypeVar)


def _fits(kind: object, annotation: object) -> bool:
    """Whether a parameter with that annotation may get a value of type `kind`. True where that cannot be decided."""
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if kind is Any or kind == annotation or _is_open(annotation):
        return True
    if get_origin(kind) in _UNIONS:
        return all(_fits(each, annotation) for each in get_args(kind))
    if get_origin(annotation) in _UNIONS:
        return any(_fits(kind, each) for each in get_args(annotation))
    return _is_subclass(get_origin(kind) or kind, get_origin(annotation) or annotation)


def _is_subclass(kind: object, annotation: object) -> bool:
    if not isinstance(kind, type) or not isinstance(annotation, type):
        return True
    if typing.is_typeddict(annotation):
        return kind is dict
    try:
        return issubclass(dict if typing.is_typeddict(kind) else kind, annotation)
    except TypeError:  # a protocol with attributes
        return True


def _caller(
    function: Callable[..., Any], roles: Sequence[tuple[str | None, Role]], *, batch: bool
) -> Callable[[Any], Any]:
    takes = {"record": _itself, "value": _values if batch else value_of}
    by_position = [takes[role] for name, role in roles if name is None]
    by_name = {name: takes[role] for name, role in roles if name is not None}

    def call(given: Any) -> Any:  # noqa: ANN401 - a record, or a list of them
        return function(*[take(given) for take in by_position], **{name: take(given) for name, take in by_name.items()})

    async def call_async(given: Any) -> Any:  # noqa: ANN401 - as above
        return await call(given)

    return call_async if is_coroutine(function) else call


def _itself(given: Any) -> Any:  # noqa: ANN401 - as above
    return given


def _values(records: Sequence[Record]) -> list[Any]:
    return [value_of(record) for record in records]
