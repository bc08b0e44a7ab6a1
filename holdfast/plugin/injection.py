"""Injection: binds keyword-only parameters of handlers to the app's resources, by name, and to the handler's call."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.dedup.not_run import check_runs, is_coroutine, makes_generator, name_of_call, not_run
from holdfast.errors import SettingError, StateError
from holdfast.plugin.engine.resources import Resource, Resources
from holdfast.plugin.handling.handler_call import HandlerCall, current_call
from holdfast.plugin.handling.outputs import Outputs, current_outputs
from holdfast.plugin.handling.parameters import annotation_of, names_of, without_none
from holdfast.plugin.handling.transacting import current_tx

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

F = TypeVar("F", bound="Callable[..., Any]")

_NO_OUTPUTS = (
    "only handlers get Outputs, and only of a source that writes them in transactions: "
    "KafkaSource(conf, transactions=Transactions())"
)
#: Names of parameters of handlers with `value=`; no resource may have them.
_TAKEN = ("record", "records", "value", "values")


class _Values(dict[str, Any]):
    def __missing__(self, name: str) -> Any:  # noqa: ANN401 - as of a dict
        raise StateError(f"the resource {name} is not open: the app has not begun, or has left")


class Injection:
    """The resources of one app, and the handlers that get them."""

    def __init__(self) -> None:
        self._resources: list[Resource] = []
        self._values = _Values()
        #: Whether a handler has a parameter for its call.
        self.gives_calls = False

    def add(self, function: Callable[..., Any]) -> None:
        """Add a resource. Raises SettingError."""
        name = getattr(function, "__name__", repr(function))
        is_async = inspect.isasyncgenfunction(function)
        if not (is_async or inspect.isgeneratorfunction(function)):
            raise SettingError("resource", name, "let it yield the resource once: what comes after the yield closes it")
        if name in _TAKEN:
            raise SettingError("resource", name, "a parameter of that name gets the record or its value: rename it")
        if name in self._names:
            raise SettingError("resource", name, "there is one of that name already")
        _takes_nothing("resource", function)
        self._resources.append(Resource(name, function, is_async))

    def at_start(self, function: Callable[[], Any]) -> None:
        """Add a function that is called before the app joins its group. Raises SettingError."""
        self._add_call("on_startup", function, before=True)

    def at_end(self, function: Callable[[], Any]) -> None:
        """Add a function that is called when the app has left. Raises SettingError."""
        self._add_call("on_shutdown", function, before=False)

    def bind(self, call: F, *, transaction: bool = False, outputs: bool = False) -> F:
        """Bind a handler's keyword-only parameters: those named as a resource, and those annotated `HandlerCall` or
        `Outputs`. A handler without such a parameter is returned unchanged.

        Args:
            call: the handler.
            transaction: it has `tx`, the connection of its transaction, too.
            outputs: its source writes outputs in transactions.

        Raises:
            SettingError: it has no such parameter; or one for outputs that nobody writes.
        """
        try:
            signature: inspect.Signature | None = inspect.signature(call)
        except (TypeError, ValueError):  # some functions written in C have no signature; or it is no callable
            signature = None
        if transaction and not _takes_tx(signature, self._names):
            raise SettingError(
                "transaction",
                name_of_call(call),
                "let the handler take the connection of its transaction as a keyword-only parameter: "
                "`def handle(record, *, tx)`; no resource may have that name",
            )
        if signature is None:
            return call
        asked = [each for each in signature.parameters.values() if each.kind is each.KEYWORD_ONLY]
        names = [each.name for each in asked if each.name in self._names]
        calls = [each.name for each in asked if each.name not in names and _is_a(HandlerCall, each, call)]
        outs = [each.name for each in asked if each.name not in names and _gets_outputs(each, call)]
        if outs and not outputs:
            raise SettingError(outs[0], name_of_call(call), _NO_OUTPUTS)
        if not (names or calls or outs or transaction):
            return call
        values, self.gives_calls = self._values, self.gives_calls or bool(calls)

        def bound(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - those of the handler
            given = {name: values[name] for name in names}
            if transaction:
                given["tx"] = current_tx()
            given |= {name: current_outputs() for name in outs}
            return call(*args, **kwargs, **given, **{name: current_call() for name in calls})

        async def bound_async(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as above
            return await bound(*args, **kwargs)

        made: Any = functools.wraps(call)(bound_async if is_coroutine(call) else bound)
        taken = {*names, *calls, *outs, *(["tx"] if transaction else [])}
        left = [each for each in signature.parameters.values() if each.name not in taken]
        made.__signature__ = signature.replace(parameters=left)
        return made  # type: ignore[no-any-return]  # the same parameters, without the bound ones

    def takes_outputs(self, call: Callable[..., Any]) -> bool:
        """Whether a handler has a parameter for its outputs."""
        return any(_gets_outputs(each, call) for each in self._left_in(call))

    def takes_call(self, call: Callable[..., Any]) -> bool:
        """Whether a handler has a parameter for its call."""
        return any(_is_a(HandlerCall, each, call) for each in self._left_in(call))

    def _left_in(self, call: Callable[..., Any]) -> list[inspect.Parameter]:
        """The keyword-only parameters that are no resources."""
        try:
            parameters = inspect.signature(call).parameters.values()
        except (TypeError, ValueError):  # as in `bind`
            return []
        return [each for each in parameters if each.kind is each.KEYWORD_ONLY and each.name not in self._names]

    def resources(self) -> Resources:
        """Make the object that opens and closes the resources."""
        return Resources(self._resources, self._values)

    @property
    def _names(self) -> set[str]:
        return {resource.name for resource in self._resources}

    def _add_call(self, what: str, function: Callable[[], Any], *, before: bool) -> None:
        _takes_nothing(what, function)
        if makes_generator(function):
            raise SettingError(what, function, "it has a yield: register it by @app.resource")
        is_async, own = is_coroutine(function), name_of_call(function)
        check_runs(what, function, own)

        def plain() -> Iterator[None]:
            if before:
                _check_ran(what, own, function())
            yield
            if not before:
                _check_ran(what, own, function())

        async def in_loop() -> AsyncIterator[None]:
            if before:
                _check_ran(what, own, await function())
            yield
            if not before:
                _check_ran(what, own, await function())

        name = f"{what} {own}"  # no parameter has such a name
        self._resources.append(Resource(name, in_loop if is_async else plain, is_async))


def _takes_tx(signature: inspect.Signature | None, resources: set[str]) -> bool:
    parameter = signature.parameters.get("tx") if signature is not None else None
    return parameter is not None and parameter.kind is parameter.KEYWORD_ONLY and "tx" not in resources


def _gets_outputs(parameter: inspect.Parameter, function: object) -> bool:
    """Whether it is annotated `Outputs`, or is called `out` and has neither annotation nor default."""
    bare = parameter.annotation is parameter.empty and parameter.default is parameter.empty
    return _is_a(Outputs, parameter, function) or (bare and parameter.name == "out")


def _is_a(kind: type, parameter: inspect.Parameter, function: object) -> bool:
    """Whether a parameter is annotated with that class, or `| None`, also as text."""
    annotation = parameter.annotation
    if isinstance(annotation, str) and annotation.split(".")[-1] == kind.__name__:
        return True
    names = {kind.__name__: kind, **names_of(function)}
    return without_none(annotation_of(parameter, names))[0] is kind


def _check_ran(what: str, name: str, returned: object) -> None:
    """Raises SettingError: the function has returned a coroutine or generator, which has not run."""
    if (kind := not_run(returned)) is not None:
        raise SettingError(what, name, f"it returned a {kind}, which has not run yet: register the `async def` itself")


def _takes_nothing(what: str, function: Callable[..., Any]) -> None:
    """Raises SettingError: the function cannot be called without arguments."""
    if not callable(function):
        raise SettingError(what, function, "register a function")
    try:
        inspect.signature(function).bind()
    except TypeError:
        name = name_of_call(function)
        raise SettingError(what, name, "it is called without arguments: give its parameters defaults") from None
    except ValueError:  # some functions written in C have no signature
        pass
