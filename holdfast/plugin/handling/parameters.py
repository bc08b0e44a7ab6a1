"""Parameters of a handler with `value=`: which gets the record and which the value; found once, at the registration.

An annotation tells it, or else a name (`record`, `value`; of batches also `records`, `values`); a single parameter that
says neither is the value. Annotations are often imported for type checkers alone: one that cannot be looked up says
nothing.
"""

from __future__ import annotations

import collections.abc
import inspect
import types
import typing
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NamedTuple,
    Protocol,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

from holdfast.dedup.not_run import is_coroutine, routine
from holdfast.errors import SettingError
from holdfast.plugin.handling.values import Reading, name_of, value_of
from holdfast.records import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

T = TypeVar("T")
R = TypeVar("R")

Role: TypeAlias = Literal["record", "value"]

_ROLES: dict[str, Role] = {"record": "record", "records": "record", "value": "value", "values": "value"}
#: Annotations of batches: a list of records, a list of values.
_MANY = (list, collections.abc.Sequence, collections.abc.Collection, collections.abc.Iterable)
#: Of a parameter that nothing is known for; of a keyword-only one.
_UNSAID = (
    "is neither the record nor the value: name it record or value, annotate it, or give it a default",
    "is no resource: register one of that name above, with @app.resource, or give it a default",
)
#: For annotations whose names only type checkers have imported.
_USUAL = {
    "Record": Record,
    "Any": Any,
    **{name: getattr(typing, name) for name in ("Annotated", "List", "Literal", "Optional", "Union")},
    **{each.__name__: each for each in (*_MANY, collections.abc.Mapping)},
}


class TakesValue(Protocol[T]):
    """`@app.handler(..., value=...)` above a function: what type checkers hold it against."""

    @typing.overload
    def __call__(self, function: Callable[[T], R], /) -> Callable[[T], R]: ...

    @typing.overload  # the next two are alike where T is Record
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[[T, Record], R], /
    ) -> Callable[[T, Record], R]: ...

    @typing.overload
    def __call__(self, function: Callable[[Record, T], R], /) -> Callable[[Record, T], R]: ...

    @typing.overload  # with resources, as keyword-only parameters; mypy takes the first one for as broad
    def __call__(  # type: ignore[overload-cannot-match]
        self, function: Callable[typing.Concatenate[T, ...], R], /
    ) -> Callable[typing.Concatenate[T, ...], R]: ...


class TakesValues(Protocol[T]):
    """`@app.handler(..., value=..., batch=...)` above a function."""

    @typing.overload
    def __call__(self, function: Callable[[list[T]], R], /) -> Callable[[list[T]], R]: ...

    @typing.overload  # as above
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[[list[T], list[Record]], R], /
    ) -> Callable[[list[T], list[Record]], R]: ...

    @typing.overload
    def __call__(self, function: Callable[[list[Record], list[T]], R], /) -> Callable[[list[Record], list[T]], R]: ...

    @typing.overload  # with resources, as above
    def __call__(  # type: ignore[overload-cannot-match]
        self, function: Callable[typing.Concatenate[list[T], ...], R], /
    ) -> Callable[typing.Concatenate[list[T], ...], R]: ...


class Typed(NamedTuple):
    """A handler that gets values."""

    #: Called with a record (or a list), it calls the user's function with what that asks for.
    call: Callable[[Any], Any]
    reading: Reading


def typed(function: Callable[..., Any], spec: object, *, name: str, batch: bool) -> Typed:
    """Bind a handler's parameters.

    Args:
        function: the user's.
        spec: what `value=` was given.
        name: the handler's.
        batch: whether it takes lists.

    Raises:
        SettingError: a parameter is neither the record nor the value, or the value's type is another; none takes the
            value; `spec` decodes nothing.
    """
    wanted = spec if isinstance(spec, type | types.UnionType) or get_origin(spec) is not None else Any
    asked = _Asked(function, wanted, name, batch=batch)
    reading = Reading(spec, tombstones=asked.tombstones)
    return Typed(_caller(function, asked.plan, batch=batch), reading)


# ---- what is asked for
class _Asked:
    """Which parameter gets what."""

    def __init__(self, function: Callable[..., Any], wanted: object, name: str, *, batch: bool) -> None:
        self._wanted, self._name, self._batch = wanted, name, batch
        #: Parameters that may be None.
        self._optional: set[str] = set()
        #: By position, where the name is None, or by name.
        self.plan: list[tuple[str | None, Role]] = []
        #: Whether it takes None for a value.
        self.tombstones = False
        try:
            self._signature = inspect.signature(function)
        except (TypeError, ValueError):  # some functions in C do not tell theirs
            self.plan = [(None, "value")]
            return
        self._names = names_of(function, wanted)
        self._find(list(self._signature.parameters.values()))

    def _find(self, parameters: Sequence[inspect.Parameter]) -> None:
        roles: dict[str, Role] = {}
        unsaid = []
        for each in parameters:
            if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
                continue
            role = self._role(each)
            if role is None and each.default is each.empty:
                unsaid.append(each)
            elif role is not None:
                if role in roles.values():
                    self._refuse(each, f"is a second one for the {role}: leave one of them out")
                roles[each.name] = role
        if unsaid and "value" not in roles.values():
            roles[unsaid.pop(0).name] = "value"
        if unsaid:
            self._refuse(unsaid[0], _UNSAID[unsaid[0].kind is inspect.Parameter.KEYWORD_ONLY])
        self.plan = [
            (None if each.kind is each.POSITIONAL_ONLY else each.name, roles[each.name])
            for each in parameters
            if each.name in roles
        ]
        self.tombstones = any(roles.get(name) == "value" for name in self._optional)
        if not roles and any(each.kind is each.VAR_POSITIONAL for each in parameters):
            self.plan = [(None, "value")]
        elif "value" not in roles.values():
            remedy = f"no parameter takes the value: add `{self._example}`, or leave value= out"
            raise SettingError("handler", self._said, remedy)

    def _role(self, parameter: inspect.Parameter) -> Role | None:
        """Find what it asks for; None: it does not say. With a default it asks by its name alone, or for the record."""
        by_name = _ROLES.get(parameter.name)
        item, optional = without_none(annotation_of(parameter, self._names))
        if _says_nothing(item):
            return by_name
        is_list = get_origin(item) in _MANY or item in _MANY
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
        if _says_nothing(item) or self._wanted is Any:
            return by_name
        if not fits(self._wanted, item):
            if is_list and not self._batch and (inner is Record or fits(self._wanted, inner)):
                self._refuse(parameter, f"is annotated {name_of(item)}, which batches are: say batch=BatchOf(...)")
            what = f"is annotated {name_of(item)}, and value= makes {name_of(self._wanted)}"
            self._refuse(parameter, f"{what}: annotate it `{self._example}`, or say value={name_of(item)}")
        return "value"

    @property
    def _example(self) -> str:
        kind = name_of(self._wanted)
        return f"values: list[{kind}]" if self._batch else f"value: {kind}"

    @property
    def _said(self) -> str:
        return f"{self._name}({', '.join(self._signature.parameters)})"

    def _refuse(self, parameter: inspect.Parameter, what: str) -> typing.NoReturn:
        raise SettingError("handler", self._said, f"its parameter {parameter.name!r} {what}")


def annotation_of(parameter: inspect.Parameter, names: Mapping[str, Any]) -> object | None:
    """Look a parameter's annotation up, by the names that it may use, and without what `Annotated` adds. None: it has
    none, or one that cannot be looked up here."""
    if parameter.annotation is parameter.empty:
        return None
    holder = types.SimpleNamespace(__annotations__={"it": parameter.annotation})
    try:
        return typing.get_type_hints(holder, dict(names))["it"]  # type: ignore[no-any-return]
    except Exception:  # noqa: BLE001 - text of the user's, for type checkers
        return None


def fits(made: object, annotation: object) -> bool:
    """Whether what is made of that type may be annotated so. True where nobody can tell."""
    if get_origin(made) is Annotated:
        made = get_args(made)[0]
    if made is Any or made == annotation or _says_nothing(annotation):
        return True
    if get_origin(made) in (Union, types.UnionType):
        return all(fits(each, annotation) for each in get_args(made))
    if get_origin(annotation) in (Union, types.UnionType):
        return any(fits(made, each) for each in get_args(annotation))
    return _is_one(get_origin(made) or made, get_origin(annotation) or annotation)


def _is_one(made: object, annotation: object) -> bool:
    if not isinstance(made, type) or not isinstance(annotation, type):
        return True
    if typing.is_typeddict(annotation):
        return made is dict
    try:
        return issubclass(dict if typing.is_typeddict(made) else made, annotation)
    except TypeError:  # a protocol with attributes
        return True


def _says_nothing(annotation: object) -> bool:
    return annotation is None or annotation is Any or annotation is object or isinstance(annotation, TypeVar)


def without_none(annotation: object) -> tuple[object, bool]:
    """Take `| None` off an annotation, and tell whether that was there."""
    if get_origin(annotation) not in (Union, types.UnionType):
        return annotation, False
    inner = tuple(each for each in get_args(annotation) if each is not type(None))
    return (Union[inner] if inner else None), len(inner) < len(get_args(annotation))  # noqa: UP007 - of a tuple


def names_of(function: Any, wanted: object = None) -> dict[str, Any]:  # noqa: ANN401 - as above
    """Find the names that the function's annotations may use: its module's names before ours."""
    function = routine(inspect.unwrap(routine(function)))
    own = {wanted.__name__: wanted} if isinstance(wanted, type) else {}
    return {**_USUAL, **own, **getattr(getattr(function, "__func__", function), "__globals__", {})}


# ---- how it is called
def _caller(
    function: Callable[..., Any], plan: Sequence[tuple[str | None, Role]], *, batch: bool
) -> Callable[[Any], Any]:
    values = _values if batch else value_of
    places = [_same if role == "record" else values for name, role in plan if name is None]
    names = {name: _same if role == "record" else values for name, role in plan if name is not None}

    def call(given: Any) -> Any:  # noqa: ANN401 - a record, or a list of them
        return function(*[take(given) for take in places], **{name: take(given) for name, take in names.items()})

    async def call_async(given: Any) -> Any:  # noqa: ANN401 - as above
        return await call(given)

    return call_async if is_coroutine(function) else call


def _same(given: Any) -> Any:  # noqa: ANN401 - as above
    return given


def _values(records: Sequence[Record]) -> list[Any]:
    return [value_of(record) for record in records]
