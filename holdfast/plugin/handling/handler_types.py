"""Types of `@app.handler(..., value=...)`, for type checkers: the functions it accepts, and returns unchanged."""

from __future__ import annotations

import typing
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.records import Record

T = TypeVar("T")
R = TypeVar("R")


class TakesValue(Protocol[T]):
    """`@app.handler(..., value=...)`, above a function of one record."""

    @typing.overload
    def __call__(self, function: Callable[[T], R], /) -> Callable[[T], R]: ...

    @typing.overload  # the next two overlap if T is Record
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[[T, Record], R], /
    ) -> Callable[[T, Record], R]: ...

    @typing.overload
    def __call__(self, function: Callable[[Record, T], R], /) -> Callable[[Record, T], R]: ...

    @typing.overload  # with resources, as keyword-only parameters; mypy believes that the first one covers it
    def __call__(  # type: ignore[overload-cannot-match]
        self, function: Callable[typing.Concatenate[T, ...], R], /
    ) -> Callable[typing.Concatenate[T, ...], R]: ...


class TakesValues(Protocol[T]):
    """`@app.handler(..., value=..., batch=...)`, above a function of lists."""

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
