"""Resources of an app: opened before it joins, given to handlers, closed when it has left."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import BatchOf, Holdfast, MemoryClaims, Record, Settings
from holdfast.errors import SettingError, SourceError, StateError
from holdfast.plugin.engine import resources
from holdfast.testing.brokers.kafka import MemoryBroker
from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource
from tests.harness.engine import numbered

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator


class Group:
    """A broker with records, an app on it, and what happened, in its order."""

    def __init__(self, records: int = 1) -> None:
        self.broker = MemoryBroker(orders=1)
        self.broker.produce("orders", 0, *numbered("r", range(records)))
        self.source = MemoryPartitionedSource(self.broker)
        self.app = Holdfast(
            self.source, claims=MemoryClaims(), settings=Settings(ramp=None, commit_interval_s=0.01, workers=1)
        )
        self.saw: list[Any] = []

    def handled(self, what: Any) -> None:
        self.saw.append(what)
        self.app.stop()


@pytest.fixture
def group() -> Group:
    return Group()


class TestOfPlainHandlers:
    def test_a_resource_is_open_before_the_group_is_joined_and_closed_when_it_is_left(self, group: Group) -> None:
        members = group.broker.group("g").members

        @group.app.resource
        def pool() -> Iterator[str]:
            group.saw.append(("opened", len(members), threading.current_thread()))
            yield "a pool"
            group.saw.append(("closed", len(group.broker.group("g").members), threading.current_thread()))

        @group.app.handler("orders")
        def handle(record: Record, *, pool: str) -> None:
            group.handled((record.offset, pool))

        group.app.run()
        here = threading.current_thread()
        assert group.saw == [("opened", 0, here), (0, "a pool"), ("closed", 0, here)]

    def test_they_are_closed_the_other_way_round_and_calls_come_in_between(self, group: Group) -> None:
        @group.app.resource
        def first() -> Iterator[None]:
            group.saw.append("first")
            yield
            group.saw.append("first closed")

        group.app.on_startup(lambda: group.saw.append("startup"))
        group.app.on_shutdown(lambda: group.saw.append("shutdown"))

        @group.app.resource
        def second() -> Iterator[None]:
            group.saw.append("second")
            yield
            group.saw.append("second closed")

        group.app.handler("orders")(lambda record: group.handled("handled"))
        group.app.run()
        assert group.saw == ["first", "startup", "second", "handled", "second closed", "shutdown", "first closed"]

    def test_batches_and_values_get_them_too(self, group: Group) -> None:
        @group.app.resource
        def pool() -> Iterator[str]:
            yield "a pool"

        @group.app.handler("orders", value=bytes.decode, batch=BatchOf(records=5))
        def handle(values: list[str], *, pool: str) -> None:
            group.handled((values, pool))

        group.app.run()
        assert group.saw == [(["r0"], "a pool")]


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks to hurry waits for a minute: on a machine that is busy a second is soon over."""
    monkeypatch.setattr(resources, "_LOOKS_IN_A_HURRY", 600)


class TestOfCoroutines:
    def test_one_task_of_their_loop_opens_and_closes(self, group: Group) -> None:
        @group.app.resource
        async def pool() -> AsyncIterator[asyncio.Task[Any] | None]:
            async with asyncio.timeout(60):  # of one task: to leave it in another raises
                yield asyncio.current_task()
                group.saw.append(asyncio.get_running_loop())

        @group.app.handler("orders")
        async def handle(record: Record, *, pool: asyncio.Task[Any]) -> None:
            assert pool is not asyncio.current_task()
            group.handled(asyncio.get_running_loop())

        group.app.run()
        [at_work, at_the_end] = group.saw
        assert at_work is at_the_end

    def test_in_an_application_it_is_the_loop_of_the_application(self, group: Group) -> None:
        group.app.on_startup(lambda: group.saw.append("plain"))

        @group.app.on_startup
        async def connect() -> None:
            group.saw.append(asyncio.get_running_loop())

        @group.app.on_shutdown
        async def disconnect() -> None:
            group.saw.append("disconnected")

        @group.app.handler("orders")
        async def handle(record: Record) -> None:
            group.handled("handled")

        async def main() -> None:
            await group.app.run_async()
            group.saw.append(asyncio.get_running_loop())

        asyncio.run(main())
        assert group.saw[0] == "plain"
        assert group.saw[1] is group.saw[4]
        assert group.saw[2:4] == ["handled", "disconnected"]

    def test_a_stop_does_not_wait_for_one_that_does_not_open(self, group: Group) -> None:
        begun = threading.Event()

        @group.app.resource
        async def pool() -> AsyncIterator[None]:
            begun.set()
            await asyncio.sleep(3600)
            yield

        group.app.handler("orders")(lambda record: group.handled("never"))
        group.app.start()
        assert begun.wait(60)
        group.app.stop(wait=True)
        assert group.saw == []

    def test_a_second_stop_does_not_wait_for_one_that_does_not_close(self, group: Group) -> None:
        closing = threading.Event()

        @group.app.resource
        async def pool() -> AsyncIterator[None]:
            yield
            closing.set()
            await asyncio.sleep(3600)

        group.app.handler("orders")(lambda record: group.handled("handled"))
        group.app.start()
        assert closing.wait(60)
        group.app.stop(wait=True)
        assert group.saw == ["handled"]

    @pytest.mark.usefixtures("patient")
    def test_a_hurried_stop_leaves_none_open_that_closes_soon(self, group: Group) -> None:
        @group.app.resource
        async def pool() -> AsyncIterator[str]:
            yield "a pool"
            await asyncio.sleep(0.3)  # it says good-bye to its server
            group.saw.append("closed")

        @group.app.handler("orders")
        async def handle(record: Record, *, pool: str) -> None:
            group.app.stop()
            group.app.stop()

        group.app.run()
        assert group.saw == ["closed"]

    @pytest.mark.usefixtures("patient")
    def test_a_stop_while_one_opens_lets_it_close_what_it_has_opened(self, group: Group) -> None:
        @group.app.resource
        async def pool() -> AsyncIterator[str]:
            try:
                group.app.stop()
                await asyncio.Event().wait()
                yield "never"
            finally:
                await asyncio.sleep(0.3)  # as above
                group.saw.append("closed")

        group.app.handler("orders")(lambda record: None)
        group.app.run()
        assert group.saw == ["closed"]


def of_kind(call: Callable[[], None], *, is_async: bool) -> Callable[[], object]:
    """It, or a coroutine function that does the same."""

    async def later() -> None:
        call()

    return later if is_async else call


class TestThatFail:
    @pytest.mark.parametrize("is_async", [False, True])
    def test_what_it_raises_before_the_yield_ends_the_start_and_the_others_are_closed(
        self, group: Group, *, is_async: bool
    ) -> None:
        @group.app.resource
        def first() -> Iterator[None]:
            yield
            group.saw.append("closed")

        def fail() -> None:
            raise ValueError("no such host")

        group.app.on_startup(of_kind(fail, is_async=is_async))
        group.app.handler("orders")(lambda record: group.handled("never"))
        with pytest.raises(ValueError, match="no such host"):
            group.app.run()
        assert group.saw == ["closed"]
        assert group.source.polls == 0

    @pytest.mark.parametrize("is_async", [False, True])
    def test_what_it_raises_after_the_yield_is_raised_when_all_are_closed(
        self, group: Group, *, is_async: bool
    ) -> None:
        group.app.on_shutdown(lambda: group.saw.append("closed"))

        def fail() -> None:
            raise ValueError("gone already")

        group.app.on_shutdown(of_kind(fail, is_async=is_async))
        group.app.handler("orders")(lambda record: group.handled("handled"))
        with pytest.raises(ValueError, match="gone already"):
            group.app.run()
        assert group.saw == ["handled", "closed"]
        assert group.broker.group("g").members == []

    @pytest.mark.parametrize("is_async", [False, True])
    def test_a_program_that_ends_itself_before_the_yield_ends(self, group: Group, *, is_async: bool) -> None:
        group.app.on_shutdown(lambda: group.saw.append("closed"))

        def leave() -> None:
            sys.exit("no address of the database")

        group.app.on_startup(of_kind(leave, is_async=is_async))
        group.app.handler("orders")(lambda record: group.handled("never"))
        with pytest.raises(SystemExit, match="no address of the database"):
            group.app.run()
        assert group.saw == ["closed"]
        assert "no address of the database" in str(group.app.snapshot().error)

    @pytest.mark.parametrize("is_async", [False, True])
    def test_a_program_that_ends_itself_after_the_yield_has_closed_the_others_and_ended_its_session(
        self, group: Group, *, is_async: bool
    ) -> None:
        group.app.on_shutdown(lambda: group.saw.append("closed"))

        def leave() -> None:
            sys.exit("the pool hangs")

        group.app.on_shutdown(of_kind(leave, is_async=is_async))
        group.app.handler("orders")(lambda record: group.handled("handled"))
        with pytest.raises(SystemExit, match="the pool hangs"):
            group.app.run()
        assert group.saw == ["handled", "closed"]
        assert group.app.snapshot().state == "stopped"
        assert "the pool hangs" in str(group.app.snapshot().error)

    def test_who_looks_on_sees_that_an_app_has_ended_by_what_is_no_exception(self, group: Group) -> None:
        class Panic(BaseException):
            """As libraries in Rust raise it."""

        def panic() -> None:
            raise Panic("an index out of bounds")

        group.app.on_startup(panic)
        group.app.handler("orders")(lambda record: group.handled("never"))
        with pytest.raises(Panic):
            group.app.run()
        assert "an index out of bounds" in str(group.app.snapshot().error)
        assert not group.app.health().live

    def test_when_the_source_does_not_open_they_are_closed(self, group: Group) -> None:
        group.app.on_shutdown(lambda: group.saw.append("closed"))
        group.app.handler("orders")(lambda record: None)
        group.source.fail("open", SourceError("no such topic"))
        with pytest.raises(SourceError, match="no such topic"):
            group.app.run()
        assert group.saw == ["closed"]


class TestRegistration:
    def test_without_a_yield_it_is_refused(self, group: Group) -> None:
        def pool() -> None: ...

        with pytest.raises(SettingError, match="let it yield the resource once"):
            group.app.resource(pool)

    def test_one_with_arguments_is_refused(self, group: Group) -> None:
        def pool(size: int) -> Iterator[int]:
            yield size

        with pytest.raises(SettingError, match="called without arguments"):
            group.app.resource(pool)
        with pytest.raises(SettingError, match="called without arguments"):
            group.app.on_startup(lambda size: size)

    def test_names_of_a_handlers_own_parameters_and_doubled_ones_are_refused(self, group: Group) -> None:
        def value() -> Iterator[None]:
            yield

        def pool() -> Iterator[None]:
            yield

        with pytest.raises(SettingError, match="gets the record or its value"):
            group.app.resource(value)
        group.app.resource(pool)
        with pytest.raises(SettingError, match="one of that name already"):
            group.app.resource(pool)

    @pytest.mark.parametrize("register", ["resource", "on_startup", "on_shutdown"])
    def test_what_comes_when_the_app_has_begun_is_refused(self, group: Group, register: str) -> None:
        def late() -> Iterator[None]:
            yield

        @group.app.handler("orders")
        def handle(record: Record) -> None:
            with pytest.raises(StateError, match=r"before run\(\)"):
                getattr(group.app, register)(late)
            group.handled(record.offset)

        group.app.run()
        assert group.saw == [0]

    def test_a_hook_that_yields_is_refused(self, group: Group) -> None:
        def hook() -> Iterator[None]:
            yield

        with pytest.raises(SettingError, match=r"@app\.resource"):
            group.app.on_startup(hook)

    def test_a_parameter_that_no_resource_is_named_as_is_refused(self, group: Group) -> None:
        def handle(record: Record, *, pool: str) -> None: ...

        with pytest.raises(SettingError, match=r"@app\.resource"):
            group.app.handler("orders")(handle)

        def bill(value: str, *, pool: str) -> None: ...

        with pytest.raises(SettingError, match=r"@app\.resource"):
            group.app.handler("bills", value=bytes.decode)(bill)
