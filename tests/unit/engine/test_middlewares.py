"""Middlewares: what runs around each call of a handler, and what counts then."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import BatchOf, HandlerCall, Holdfast, MemoryClaims, Record, Retry, Settings, Unretriable
from holdfast.errors import BatchFailed, SettingError, StateError
from holdfast.testing.brokers.kafka import MemoryBroker
from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource
from tests.harness.engine import Bench, Letters, numbered, partition

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

#: Handlers by the name of their kind.
KINDS = ("plain", "inline", "coroutine", "batch", "batch coroutine")


class Played:
    """An app with middlewares, until its records are done, and what happened, in its order."""

    def __init__(self, kind: str = "plain", *errors: BaseException, records: int = 1) -> None:
        self.kind, self.records = kind, records
        self.saw: list[Any] = []
        self.letters: list[tuple[str, str]] = []
        #: Raised by the handler's next calls.
        self.errors = list(errors)
        #: Asked at each call.
        self.look: Callable[[], object] = lambda: None

    def run(self, *middlewares: Any, settings: Settings | None = None, **handling: Any) -> Played:
        if "batch" in self.kind:
            handling["batch"] = BatchOf(records=self.records, wait_s=60.0)
        settings = settings or Settings(workers=0 if self.kind == "inline" else 2, commit_interval_s=0.01)
        with Bench(orders=1) as bench:
            letters = Letters(bench.changed)
            bench.broker.produce("orders", 0, *numbered("r", range(self.records)))
            member = bench.member(
                handler=self.coroutine if "coroutine" in self.kind else self.plain,
                dead_letters=letters,
                dead_letter="dlq",
                settings=settings,
                start=False,
                **handling,
            )
            for each in middlewares:
                member.app.use(each)
            member.start()
            bench.wait_committed(self.records)
            member.stop()
        self.letters = [((each.record.value or b"").decode(), str(each.reason)) for each in letters.sent]
        return self

    def plain(self, given: Record | list[Record]) -> None:
        records = given if isinstance(given, list) else [given]
        self.look()
        self.saw.append([(each.value or b"").decode() for each in records])
        if self.errors:
            raise self.errors.pop(0)

    async def coroutine(self, given: Record | list[Record]) -> None:
        await asyncio.sleep(0)
        self.plain(given)

    def noting(self, name: str) -> Callable[[HandlerCall], Iterator[None]]:
        def note(call: HandlerCall) -> Iterator[None]:
            self.saw.append(f"{name} before {call.attempt}")
            try:
                yield
            except Exception as error:
                self.saw.append(f"{name} sees {error}")
                raise
            self.saw.append(f"{name} after")

        return note

    def noting_async(self, name: str) -> Callable[[HandlerCall], AsyncIterator[None]]:
        async def note(call: HandlerCall) -> AsyncIterator[None]:
            await asyncio.sleep(0)
            self.saw.append(f"{name} before {call.attempt}")
            try:
                yield
            except Exception as error:
                await asyncio.sleep(0)
                self.saw.append(f"{name} sees {error}")
                raise
            self.saw.append(f"{name} after")

        return note


@pytest.mark.parametrize("kind", KINDS)
class TestOfEachKind:
    def test_the_first_is_outermost_and_each_attempt_is_a_call(self, kind: str) -> None:
        played = Played(kind, ValueError("once"))
        assert played.run(played.noting("a"), played.noting("b")).saw == [
            "a before 1", "b before 1", ["r0"], "b sees once", "a sees once",
            "a before 2", "b before 2", ["r0"], "b after", "a after",
        ]  # fmt: skip
        assert played.letters == []

    def test_a_call_says_what_the_handler_gets(self, kind: str) -> None:
        played = Played(kind, records=30)
        calls: list[HandlerCall] = []

        def see(call: HandlerCall) -> Iterator[None]:
            calls.append(call)
            yield

        played.run(see, key=lambda record: f"key of {record.value.decode()}")
        assert [[(each.value or b"").decode() for each in call.records] for call in calls] == played.saw
        values = [(each.value or b"").decode() for call in calls for each in call.records]
        assert sorted(values) == sorted(numbered("r", range(30)))
        assert [key for call in calls for key in call.keys] == [f"key of {value}" for value in values]
        assert {(call.handler, call.group, call.is_batch) for call in calls} == {("handle", "g", "batch" in kind)}
        assert [call.key for call in calls] == [call.keys[0] for call in calls]

    def test_a_swallowed_exception_counts_as_handled(self, kind: str) -> None:
        def swallow(call: HandlerCall) -> Iterator[None]:
            with suppress(ValueError):
                yield

        played = Played(kind, ValueError("swallowed")).run(swallow)
        assert played.saw == [["r0"]]
        assert played.letters == []

    def test_what_it_raises_instead_counts(self, kind: str) -> None:
        def replace(call: HandlerCall) -> Iterator[None]:
            try:
                yield
            except ValueError as error:
                raise Unretriable("for good") from error

        assert Played(kind, ValueError("once")).run(replace).letters == [("r0", "for good")]

    def test_what_it_raises_before_fails_the_attempt_without_a_call(self, kind: str) -> None:
        def refuse(call: HandlerCall) -> Iterator[None]:
            if call.attempt == 1:
                raise ValueError("not yet")
            yield

        played = Played(kind)
        assert played.run(played.noting("a"), refuse).saw == [
            "a before 1", "a sees not yet", "a before 2", ["r0"], "a after",
        ]  # fmt: skip

    def test_what_another_one_swallows_of_that_is_not_handled_either(self, kind: str) -> None:
        def swallow(call: HandlerCall) -> Iterator[None]:
            with suppress(ValueError):
                yield

        def refuse(call: HandlerCall) -> Iterator[None]:
            if call.attempt == 1:
                raise ValueError("not yet")
            yield

        assert Played(kind).run(swallow, refuse).saw == [["r0"]]

    def test_what_it_raises_after_fails_the_attempt_which_is_made_again(self, kind: str) -> None:
        def fail(call: HandlerCall) -> Iterator[None]:
            yield
            if call.attempt == 1:
                raise ValueError("not written")

        assert Played(kind).run(fail).saw == [["r0"], ["r0"]]

    def test_one_that_does_not_yield_loses_nothing(self, kind: str) -> None:
        def skip(call: HandlerCall) -> Iterator[None]:
            if call.attempt > 1:
                yield

        played = Played(kind).run(skip)
        assert played.saw == []
        [(value, reason)] = played.letters
        assert value == "r0"
        assert "skip ended without a yield" in reason

    @pytest.mark.parametrize("fails", [False, True])
    def test_one_that_yields_twice_is_told_so(self, kind: str, *, fails: bool) -> None:
        def again(call: HandlerCall) -> Iterator[None]:
            with suppress(ValueError):
                yield
            yield

        played = Played(kind, *[ValueError("once")] * fails).run(again)
        assert played.saw == [["r0"]]
        [(_, reason)] = played.letters
        assert "again yielded twice" in reason

    def test_what_is_no_exception_is_not_swallowed(self, kind: str) -> None:
        def swallow(call: HandlerCall) -> Iterator[None]:
            with suppress(BaseException):
                yield

        [(_, reason)] = Played(kind, SystemExit(3)).run(swallow).letters
        assert "SystemExit(3)" in reason

    def test_a_context_variable_that_it_sets_is_the_handlers(self, kind: str) -> None:
        place: ContextVar[object] = ContextVar("place", default=None)

        def bind(call: HandlerCall) -> Iterator[None]:
            token = place.set(call.record.offset)
            try:
                yield
            finally:
                place.reset(token)

        played = Played(kind)
        played.look = lambda: played.saw.append(place.get())
        assert played.run(bind).saw == [0, ["r0"]]

    def test_a_record_without_a_key_is_no_call(self, kind: str) -> None:
        def key(record: Record) -> str:
            raise KeyError("order_id")

        played = Played(kind)
        played.run(played.noting("a"), key=key)
        assert played.saw == []
        assert [value for value, _ in played.letters] == ["r0"]


class TestOfCoroutines:
    @pytest.mark.parametrize("kind", ["coroutine", "batch coroutine"])
    def test_plain_ones_and_async_ones_stand_in_the_order_of_registration(self, kind: str) -> None:
        played = Played(kind, ValueError("once"))
        assert played.run(played.noting_async("a"), played.noting("b"), played.noting_async("c")).saw == [
            "a before 1", "b before 1", "c before 1", ["r0"], "c sees once", "b sees once", "a sees once",
            "a before 2", "b before 2", "c before 2", ["r0"], "c after", "b after", "a after",
        ]  # fmt: skip

    def test_an_async_one_swallows_raises_and_has_to_yield_as_a_plain_one(self) -> None:
        async def swallow(call: HandlerCall) -> AsyncIterator[None]:
            with suppress(ValueError):
                yield

        async def skip(call: HandlerCall) -> AsyncIterator[None]:
            if call.attempt > 1:
                yield

        async def again(call: HandlerCall) -> AsyncIterator[None]:
            yield
            yield

        async def everything(call: HandlerCall) -> AsyncIterator[None]:
            with suppress(BaseException):
                yield

        assert Played("coroutine", ValueError("swallowed")).run(swallow).saw == [["r0"]]
        assert "skip ended without a yield" in Played("coroutine").run(skip).letters[0][1]
        assert "again yielded twice" in Played("coroutine").run(again).letters[0][1]
        cancelled = Played("coroutine", asyncio.CancelledError()).run(everything, retry=Retry(attempts=1))
        assert "CancelledError" in cancelled.letters[0][1]

    def test_a_timeout_of_asyncio_fails_the_attempt(self) -> None:
        async def bounded(call: HandlerCall) -> AsyncIterator[None]:
            async with asyncio.timeout(0 if call.attempt == 1 else None):
                yield

        played = Played("coroutine")
        assert played.run(played.noting("a"), bounded).saw == [
            "a before 1", "a sees ", "a before 2", ["r0"], "a after",
        ]  # fmt: skip


def swallow_everything(call: HandlerCall) -> Iterator[None]:
    with suppress(BaseException):
        yield


async def swallow_everything_async(call: HandlerCall) -> AsyncIterator[None]:
    with suppress(BaseException):
        yield


class TestOfWhatNobodyHandles:
    @pytest.mark.parametrize("middleware", [swallow_everything, swallow_everything_async])
    def test_a_record_whose_task_the_application_cancels_is_not_handled(self, middleware: Any) -> None:
        with Bench() as bench:
            bench.broker.produce("orders", 0, "r0")
            tasks = asyncio.Queue[Any]()

            async def handle(record: Record) -> None:
                await tasks.put(asyncio.current_task())
                await asyncio.Event().wait()

            async def main() -> None:
                app = bench.member(handler=handle, start=False).app
                bench.members.clear()  # it is run here
                app.use(middleware)
                running = asyncio.create_task(app.run_async(install_signal_handlers=False))
                (await tasks.get()).cancel()
                await running  # it stops, in good order

            asyncio.run(main())
            assert bench.group.offset(partition()) in (None, 0)
            bench.member("b")
            bench.wait_ended("r0")

    def test_ctrl_c_in_a_handler_is_raised_and_its_record_is_not_handled(self) -> None:
        with Bench() as bench:
            bench.broker.produce("orders", 0, "r0", "r1", "r2")

            def handle(record: Record) -> None:
                if record.value == b"r1":
                    raise KeyboardInterrupt

            member = bench.member(handler=handle, settings=Settings(workers=0), start=False)
            member.app.use(swallow_everything)
            with pytest.raises(KeyboardInterrupt):
                member.start().join()
            assert bench.group.offset(partition()) == 1
            bench.member("b")
            bench.wait_ended("r1", "r2")


class TestErrors:
    def test_the_error_of_the_handler_is_the_same_object_without_lines_of_the_middlewares(self) -> None:
        played = Played("plain", Unretriable("for good"))
        [error] = played.errors
        seen: list[BaseException] = []

        def see(call: HandlerCall) -> Iterator[None]:
            try:
                yield
            except Unretriable as error:
                seen.append(error)
                raise

        played.run(see)
        assert seen == [error]
        names = []
        traceback = error.__traceback__
        while traceback is not None:
            names.append(traceback.tb_frame.f_code.co_name)
            traceback = traceback.tb_next
        assert names[-1] == "plain"
        assert "see" not in names

    def test_a_stop_iteration_of_the_handler_passes_as_it_is(self) -> None:
        played = Played("plain", *[StopIteration("end")] * 3)
        played.run(played.noting("a"))
        assert [reason for _, reason in played.letters] == ["end"]

    def test_of_a_batch_the_records_that_its_handler_names_fail(self) -> None:
        played = Played("batch", BatchFailed({1: Unretriable("the second")}), records=3)
        played.run(played.noting("a"))
        assert played.letters == [("r1", "the second")]

    def test_what_is_not_decoded_is_no_call_and_the_others_of_its_batch_are(self) -> None:
        calls: list[HandlerCall] = []

        def see(call: HandlerCall) -> Iterator[None]:
            calls.append(call)
            yield

        def decoded(value: bytes) -> str:
            if value == b"r1":
                raise Unretriable("no order")
            return value.decode()

        class Values(Played):
            def plain(self, values: list[str]) -> None:  # type: ignore[override]  # values
                self.saw.append(values)

        played = Values("batch", records=3).run(see, value=decoded)
        assert played.saw == [["r0", "r2"]]
        assert [[each.offset for each in call.records] for call in calls] == [[0, 2]]
        assert [value for value, _ in played.letters] == ["r1"]


class TestRegistration:
    @pytest.fixture
    def app(self) -> Holdfast:
        return Holdfast(MemoryPartitionedSource(MemoryBroker(orders=1)), claims=MemoryClaims())

    def test_it_is_a_generator_function_of_one_argument(self, app: Holdfast) -> None:
        @contextmanager
        def managed(call: HandlerCall) -> Iterator[None]:
            yield

        def more(call: HandlerCall, call_next: object) -> Iterator[None]:
            yield

        async def no_yield(call: HandlerCall) -> None: ...

        refused: Sequence[tuple[Any, str]] = [
            (lambda call: None, "let it be a generator function"),
            (no_yield, "let it be a generator function"),
            (object(), "let it be a generator function"),
            (managed, "without @contextmanager"),
            (more, "called with one argument, the call"),
        ]
        for each, remedy in refused:
            with pytest.raises(SettingError, match=remedy):
                app.use(each)

    def test_objects_and_methods_are_accepted_and_it_can_stand_as_a_decorator(self, app: Holdfast) -> None:
        class Timed:
            def __call__(self, call: HandlerCall) -> Iterator[None]:
                yield

            def method(self, call: HandlerCall) -> Iterator[None]:
                yield

        timed = Timed()
        assert app.use(timed) is timed
        app.use(timed.method)

        @app.use
        def around(call: HandlerCall) -> Iterator[None]:
            yield

        assert list(around(None))  # type: ignore[arg-type]

    def test_an_async_one_needs_coroutines(self, app: Holdfast) -> None:
        async def around(call: HandlerCall) -> AsyncIterator[None]:
            yield

        def plain(record: Record) -> None: ...

        app.handler("bills")(plain)
        with pytest.raises(SettingError, match="write the middleware without async"):
            app.use(around)
        app.handler("orders", name="other")(lambda record: None)  # it was not kept

        other = Holdfast(MemoryPartitionedSource(MemoryBroker(orders=1)), claims=MemoryClaims())
        other.use(around)
        with pytest.raises(SettingError, match="write the middleware without async"):
            other.handler("bills")(plain)

    def test_not_when_the_app_has_begun(self) -> None:
        def around(call: HandlerCall) -> Iterator[None]:
            yield

        with Bench() as bench:
            member = bench.member()
            bench.wait(lambda: member.app.snapshot().state == "running")
            with pytest.raises(StateError, match="before run"):
                member.app.use(around)


def test_its_fields_name_the_place_and_nothing_of_the_value() -> None:
    calls: list[HandlerCall] = []

    def see(call: HandlerCall) -> Iterator[None]:
        calls.append(call)
        yield

    Played("batch", records=2).run(see, key=lambda record: record.value.decode())
    [call] = calls
    place = {"topic": "orders", "partition": 0, "offset": 0, "key": "r0", "handler": "handle", "attempt": 1}
    assert call.fields == {**place, "records": 2}
    Played("plain").run(see)
    assert calls[1].fields == {**place, "key": None}
