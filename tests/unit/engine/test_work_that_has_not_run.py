"""A function whose call has run nothing fails its record, or is refused: the record never counts as handled."""

from __future__ import annotations

import asyncio
import functools
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import BatchOf, Holdfast, MemoryClaims, Retry, Settings
from holdfast.errors import SettingError, Unretriable
from holdfast.testing import ScriptedWorld
from holdfast.testing.brokers.kafka import MemoryBroker
from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource
from tests.harness.engine import numbered

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterator

ran: list[object] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> Iterator[None]:
    ran.clear()
    yield
    assert ran == []


async def coroutine(given: object = None) -> None:
    ran.append(given)


def generator(given: object = None) -> Iterator[None]:
    ran.append(given)
    yield


class Awaited:
    """What many clients return: it begins when it is awaited."""

    def __await__(self) -> Generator[None, None, None]:
        ran.append(self)
        yield


class Yields:
    async def __call__(self, given: object = None) -> Any:
        ran.append(given)
        yield


class Made:
    def __init__(self, given: object = None) -> None: ...

    def __call__(self, given: object = None) -> None:
        ran.append(given)


class Plain:
    """Hides what it calls."""

    def __init__(self, inner: Callable[[object], object]) -> None:
        self.inner = inner

    def __call__(self, given: bytes) -> object:
        return self.inner(given)


#: What a call returns that has run nothing.
LAZY: dict[str, Callable[[object], object]] = {
    "coroutine": coroutine,
    "generator": generator,
    "awaitable": lambda _: Awaited(),
    "several coroutines": lambda given: [coroutine(given), coroutine(given)],
    "map": lambda given: map(ran.append, [given]),
    "future of a pool": lambda _: Future(),
}


def under_a_decorator(function: Callable[[object], object]) -> Callable[[object], object]:
    @functools.wraps(function)
    def called(given: object) -> object:
        return function(given)

    return called


def in_an_async_def(function: Callable[[object], object]) -> Callable[[object], Awaitable[object]]:
    async def called(given: object) -> object:
        return function(given)

    return called


#: A handler that takes batches, a middleware around it.
SHAPES = [(False, False), (True, False), (False, True), (True, True)]
WAYS = [(each, *SHAPES[0]) for each in LAZY] + [("coroutine", *shape) for shape in SHAPES[1:]]


@pytest.mark.parametrize(("lazy", "takes_batches", "middleware"), WAYS)
@pytest.mark.parametrize("around", [under_a_decorator, in_an_async_def])
def test_a_record_whose_handler_returns_work_that_has_not_run_is_a_dead_letter_at_its_first_attempt(
    lazy: str, around: Any, *, takes_batches: bool, middleware: bool
) -> None:
    batch = BatchOf(records=2, wait_s=0.0) if takes_batches else None

    def build(source: Any, claims: Any) -> Holdfast:
        app = Holdfast(source, claims=claims, settings=Settings(workers=1))
        if middleware:

            @app.use
            def seen(_: object) -> Iterator[None]:
                yield

        attempts = Retry(attempts=5)
        app.handler("orders", name="bill", dead_letter="dlq", retry=attempts, batch=batch)(around(LAZY[lazy]))
        return app

    with ScriptedWorld() as world:
        world.member(build)
        for number in range(3):
            world.produce("orders", {"order_id": number}, key="a")
        world.settle()
        letters = world.dead_letters
    assert len(letters) == 3
    assert all("has not run yet" in str(letter.reason) for letter in letters)
    assert all(letter.attempts == 1 for letter in letters)


@pytest.mark.parametrize("function", [generator, Yields(), functools.partial(Yields()), Made, functools.partial(Made)])
def test_a_handler_that_can_be_seen_to_run_nothing_is_refused(function: Callable[..., object]) -> None:
    app = Holdfast(MemoryPartitionedSource(MemoryBroker(orders=1)), claims=MemoryClaims())
    with pytest.raises(SettingError, match="runs nothing"):
        app.handler("orders", name="bill")(function)
    with pytest.raises(SettingError, match="runs nothing"):
        app.on_dead_letter(function)


@pytest.mark.parametrize("function", [generator, Yields(), Made])
def test_a_hook_that_can_be_seen_to_run_nothing_is_refused(function: Callable[..., object]) -> None:
    app = Holdfast(MemoryPartitionedSource(MemoryBroker(orders=1)), claims=MemoryClaims())
    for register in (app.on_startup, app.on_shutdown):
        with pytest.raises(SettingError, match=r"yield|runs nothing"):
            register(function)


@pytest.mark.parametrize("lazy", LAZY.values(), ids=LAZY)
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("hook", ["on_startup", "on_shutdown"])
def test_an_app_ends_with_an_error_whose_hook_returns_work_that_has_not_run(
    lazy: Callable[[object], object], hook: str, *, is_async: bool
) -> None:
    broker = MemoryBroker(orders=1)
    broker.produce("orders", 0, *numbered("r", range(1)))
    app = Holdfast(MemoryPartitionedSource(broker), claims=MemoryClaims(), settings=Settings(workers=1))
    app.handler("orders", name="bill")(lambda _: app.stop())

    async def later() -> object:
        return lazy(None)

    getattr(app, hook)(later if is_async else lambda: lazy(None))
    with pytest.raises(SettingError, match="has not run"):
        app.run()


@pytest.mark.parametrize("function", [coroutine, generator, Yields()])
def test_a_function_that_is_asked_for_a_key_or_a_value_returns_it_at_once_or_is_refused(
    function: Callable[..., Any],
) -> None:
    app = Holdfast(MemoryPartitionedSource(MemoryBroker(orders=1)), claims=MemoryClaims())
    with pytest.raises(SettingError, match="plain function"):
        app.handler("orders", name="keys", key=function)(ran.append)
    with pytest.raises(SettingError, match="plain function"):
        app.handler("orders", name="values", value=function)(ran.append)


@pytest.mark.parametrize("lazy", [coroutine, generator])
def test_a_record_whose_value_has_not_been_made_is_a_dead_letter(lazy: Callable[[object], object]) -> None:
    def build(source: Any, claims: Any) -> Holdfast:
        app = Holdfast(source, claims=claims)
        app.handler("orders", name="bill", dead_letter="dlq", value=Plain(lazy))(ran.append)
        return app

    with ScriptedWorld() as world:
        world.member(build)
        world.produce("orders", {"order_id": 1}, key="a")
        world.settle()
        assert [letter.attempts for letter in world.dead_letters] == [1]


def test_what_a_handler_returns_otherwise_does_not_matter() -> None:
    with ScriptedWorld() as world:
        returned = iter([1, "text", [], [None, {}], iter([1]), object()])

        def build(source: Any, claims: Any) -> Holdfast:
            app = Holdfast(source, claims=claims, settings=Settings(workers=1))
            app.handler("orders", name="bill", dead_letter="dlq")(lambda _: next(returned))
            return app

        world.member(build)
        for number in range(6):
            world.produce("orders", {"order_id": number}, key="a")
        world.settle()
        assert not world.dead_letters
        assert next(returned, None) is None


def test_no_retry_helps() -> None:
    assert not Retry(attempts=9).may_cure(Unretriable("it has not run"))


def test_a_task_that_a_coroutine_handler_returns_has_not_run() -> None:
    def build(source: Any, claims: Any) -> Holdfast:
        app = Holdfast(source, claims=claims)

        @app.handler("orders", name="bill", dead_letter="dlq")
        async def handle(_: object) -> asyncio.Future[None]:
            return asyncio.get_running_loop().create_future()

        return app

    with ScriptedWorld() as world:
        world.member(build)
        world.produce("orders", {"order_id": 1}, key="a")
        world.settle()
        assert len(world.dead_letters) == 1
