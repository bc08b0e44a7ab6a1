"""An app in the application's own event loop, and in a thread of its own beside a program."""

from __future__ import annotations

import asyncio
import gc
import signal
import subprocess
import sys
import textwrap
import threading
import weakref
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest
import uvloop

from holdfast import BatchOf, Holdfast, MemoryClaims, Retry, Settings
from holdfast.errors import HandlerFailed, SettingError, StateError, Unretriable
from holdfast.plugin.events import Stopping
from holdfast.testing.brokers.kafka import MemoryBroker
from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource
from tests.harness.engine import FlakyClaims, numbered, partition
from tests.harness.waiting import PATIENCE_S, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from holdfast.plugin.events import Event
    from holdfast.plugin.ports import Batch
    from holdfast.records import Record

P0 = partition()
ROOT = Path(__file__).parents[3]
_factory: list[Callable[[], asyncio.AbstractEventLoop]] = []
#: Whether a task's first step comes when it is made, where Python can do that.
_EAGER = [False, True] if sys.version_info >= (3, 12) else [False]
_tenant: ContextVar[str] = ContextVar("tenant", default="nobody")

if sys.version_info >= (3, 12):

    def _eager_task(loop: Any, coroutine: Any, *, eager_start: bool = True, **how: Any) -> Any:
        """As `asyncio.eager_task_factory`, which takes no `eager_start` before 3.13.3; uvloop gives it on 3.13."""
        return asyncio.eager_task_factory(loop, coroutine, **how)


class Group:
    """A broker with one topic, a store, and apps on them."""

    def __init__(self, *, records: int = 0, claims: Any = None) -> None:
        self.broker = MemoryBroker(orders=1)
        self.claims = MemoryClaims() if claims is None else claims
        if records:
            self.broker.produce("orders", 0, *numbered("r", range(records)))

    def app(
        self,
        handler: Callable[..., Any],
        source: type[MemoryPartitionedSource] = MemoryPartitionedSource,
        observers: Sequence[Any] = (),
        **settings: Any,
    ) -> Holdfast:
        values = {"ramp": None, "commit_interval_s": 0.01, **settings}
        app = Holdfast(source(self.broker), claims=self.claims, settings=Settings(**values), observers=observers)
        app.handler("orders", name="handle")(handler)
        return app

    @property
    def committed(self) -> int | None:
        return self.broker.group("g").offset(P0)


@pytest.fixture(params=["asyncio", "uvloop"])
def loops(request: pytest.FixtureRequest) -> Iterator[None]:
    """Who makes the event loop."""
    if request.param == "asyncio":
        yield
        return
    _factory.append(uvloop.new_event_loop)
    yield
    _factory.clear()


def run(main: Any) -> None:
    with asyncio.Runner(loop_factory=_factory[0] if _factory else None) as runner:
        runner.run(asyncio.wait_for(main, PATIENCE_S))


@pytest.mark.usefixtures("loops")
class TestRunAsync:
    def test_coroutines_run_in_the_loop_of_the_application(self) -> None:
        group = Group(records=1)

        async def main() -> None:
            loop, seen = asyncio.get_running_loop(), asyncio.Queue[tuple[object, str]]()
            answers: asyncio.Future[str] = loop.create_future()
            _tenant.set("acme")

            async def handle(record: Record) -> None:
                await answers  # another loop's future would raise
                await seen.put((asyncio.get_running_loop(), _tenant.get()))

            app = group.app(handle)
            running = asyncio.create_task(app.run_async())
            loop.call_soon(answers.set_result, "go on")
            assert await seen.get() == (loop, "acme")
            app.stop()
            await running

        run(main())
        assert group.committed == 1

    def test_plain_handlers_run_in_threads(self) -> None:
        group, threads = Group(records=1), []

        async def main() -> None:
            def handle(record: Record) -> None:
                threads.append(threading.current_thread())
                app.stop()

            app = group.app(handle)
            await app.run_async()

        run(main())
        assert threads != [threading.main_thread()]

    def test_a_store_without_answer_does_not_block_the_loop(self) -> None:
        asked, answers = threading.Event(), threading.Event()

        class Slow(FlakyClaims):
            def connect(self, *args: Any, **kwargs: Any) -> Any:
                asked.set()
                assert answers.wait(PATIENCE_S)
                return super().connect(*args, **kwargs)

        group = Group(records=1, claims=Slow())

        async def main() -> None:
            async def handle(record: Record) -> None:
                app.stop()

            app = group.app(handle)
            running = asyncio.create_task(app.run_async())
            assert await asyncio.to_thread(asked.wait, PATIENCE_S)
            for _ in range(100):  # the loop turns while the store is silent
                await asyncio.sleep(0)
            assert not running.done()
            answers.set()
            await running

        run(main())
        assert group.committed == 1

    def test_cancellation_drains_and_is_raised(self) -> None:
        group = Group(records=1)

        async def main() -> None:
            began, goes_on = asyncio.Event(), asyncio.Event()

            async def handle(record: Record) -> None:
                began.set()
                await goes_on.wait()

            app = group.app(handle)
            running = asyncio.create_task(app.run_async())
            await began.wait()
            running.cancel()
            await asyncio.to_thread(until, lambda: [each.phase for each in app.snapshot().partitions] == ["fenced"])
            assert not running.done()
            goes_on.set()
            with pytest.raises(asyncio.CancelledError):
                await running

        run(main())
        assert group.committed == 1

    @pytest.mark.parametrize("beside", [False, True], ids=["run_async", "async with"])
    def test_a_scope_of_anyio_cancels_in_each_turn_of_the_loop_and_that_is_one_wish_to_stop(
        self, *, beside: bool
    ) -> None:
        group = Group(records=1)

        async def main() -> None:
            began, goes_on, ended = asyncio.Event(), asyncio.Event(), list[int]()

            async def handle(record: Record) -> None:
                began.set()
                await goes_on.wait()
                ended.append(record.offset)

            app = group.app(handle, drain_timeout_s=3600.0)

            async def serve() -> None:
                if not beside:
                    await app.run_async()
                async with app:
                    await asyncio.Event().wait()

            async def cancel() -> None:
                await began.wait()
                scopes.cancel_scope.cancel()
                for _ in range(100):  # turns of the loop
                    await asyncio.sleep(0)
                await asyncio.to_thread(until, lambda: [each.phase for each in app.snapshot().partitions] == ["fenced"])
                goes_on.set()

            canceller = asyncio.create_task(cancel())
            async with anyio.create_task_group() as scopes:
                scopes.start_soon(serve)
            await canceller
            assert ended == [0]

        run(main())
        assert group.committed == 1

    def test_a_second_cancellation_waits_for_no_handler(self) -> None:
        group = Group(records=1)

        async def main() -> None:
            began, ended = asyncio.Event(), asyncio.Event()

            async def handle(record: Record) -> None:
                began.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    ended.set()

            running = asyncio.create_task(group.app(handle, drain_timeout_s=3600.0, linger_timeout_s=0.0).run_async())
            await began.wait()
            for _ in range(2):
                running.cancel()
                await asyncio.sleep(0)
            with pytest.raises(asyncio.CancelledError):
                await running
            await ended.wait()  # nothing of the app is left in the loop

        run(main())
        assert group.committed in (None, 0)

    @pytest.mark.parametrize("batch", [False, True])
    def test_a_record_whose_task_the_application_cancels_is_not_handled(self, *, batch: bool) -> None:
        group, seen = Group(records=1), []

        async def main() -> None:
            began = asyncio.Event()

            async def handle(given: Any) -> None:
                tasks.append(asyncio.current_task())
                began.set()
                await asyncio.Event().wait()

            tasks: list[Any] = []
            source = MemoryPartitionedSource(group.broker)
            app = Holdfast(source, claims=group.claims, settings=Settings(ramp=None))
            app.handler("orders", name="handle", batch=BatchOf(records=10) if batch else None)(handle)
            running = asyncio.create_task(app.run_async())
            await began.wait()
            tasks[0].cancel()
            await running  # it stops, in good order

        run(main())
        assert group.committed in (None, 0)

        async def again() -> None:
            async def handle(record: Record) -> None:
                seen.append(record.offset)
                app.stop()

            app = group.app(handle)
            await app.run_async()

        run(again())
        assert seen == [0]

    @pytest.mark.parametrize("becomes", [ConnectionError("closed"), Unretriable("closed")])
    def test_whatever_a_handler_makes_of_that_cancellation(self, becomes: Exception) -> None:
        group = Group(records=1)

        async def main() -> None:
            tasks: asyncio.Queue[Any] = asyncio.Queue()

            async def handle(record: Record) -> None:
                await tasks.put(asyncio.current_task())
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    raise becomes from None

            app = group.app(handle)
            running = asyncio.create_task(app.run_async())
            handling = await tasks.get()
            for each in (handling, running):  # as asyncio.run does at its end
                each.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert app.snapshot().records.failed_attempts == 0

        run(main())
        assert group.committed in (None, 0)

    @pytest.mark.parametrize("batch", [None, BatchOf(records=10)], ids=["one", "batch"])
    @pytest.mark.parametrize("way", ["an old time-out", "an inner task"])
    def test_a_handler_that_was_not_cancelled_itself_is_tried_again_and_the_app_goes_on(
        self, way: str, batch: BatchOf | None
    ) -> None:
        group, attempts = Group(records=3), 0

        async def main() -> None:
            async def handle(_: object) -> None:
                nonlocal attempts
                attempts += 1
                if attempts > 1:
                    return
                loop, task = asyncio.get_running_loop(), asyncio.current_task()
                inner = loop.create_task(asyncio.Event().wait())
                assert task is not None
                # async_timeout before 4.0.3 cancels the task, and does not take that back.
                loop.call_soon(inner.cancel if way == "an inner task" else task.cancel)
                try:
                    await inner
                except asyncio.CancelledError:
                    if way == "an inner task":
                        raise
                    raise TimeoutError from None

            app = Holdfast(MemoryPartitionedSource(group.broker), claims=group.claims, settings=Settings(ramp=None))
            retry = Retry(attempts=2, wait_initial_s=0.0, jitter_s=0.0)
            app.handler("orders", name="handle", batch=batch, retry=retry)(handle)
            running = asyncio.create_task(app.run_async())
            await asyncio.to_thread(until, lambda: app.snapshot().records.handled == 3)
            app.stop()
            await running

        run(main())
        assert group.committed == 3

    def test_and_it_is_not_begun_again_in_the_turn_that_takes_it_back(self) -> None:
        group, polls, ended = Group(records=1), threading.Event(), threading.Event()
        starts: list[asyncio.Task[Any] | None] = []

        class Slow(MemoryPartitionedSource):
            """Whose poll lasts until that task has ended: so its turn has begun before the app was asked to stop."""

            def poll(self, max_records: int, timeout_s: float) -> Batch:
                if starts:
                    polls.set()
                    ended.wait(PATIENCE_S)
                return super().poll(max_records, timeout_s)

        async def main() -> None:
            loop = asyncio.get_running_loop()

            class LetItBegin:
                """Before the app's partitions are fenced."""

                def on_event(self, event: Event) -> None:
                    if isinstance(event, Stopping):
                        for _ in range(3):  # tasks are made, their first steps are done, and so is what follows these
                            been = threading.Event()
                            loop.call_soon_threadsafe(been.set)
                            been.wait(PATIENCE_S)

            async def handle(record: Record) -> None:
                starts.append(asyncio.current_task())
                await asyncio.sleep(0.0 if starts[1:] else PATIENCE_S)

            app = group.app(handle, source=Slow, observers=[LetItBegin()])
            running = asyncio.create_task(app.run_async())
            await asyncio.to_thread(polls.wait, PATIENCE_S)
            assert starts[0] is not None
            starts[0].cancel()
            await asyncio.wait([starts[0]])
            ended.set()
            await running

        run(main())
        assert len(starts) == 1
        assert group.committed in (None, 0)

    def test_a_task_that_is_cancelled_before_its_first_step_is_not_handled(self) -> None:
        group = Group(records=1)

        async def main() -> None:
            async def handle(record: Record) -> None:
                raise AssertionError(record)

            def factory(loop: Any, coroutine: Any, **how: Any) -> asyncio.Task[Any]:
                task = asyncio.Task(coroutine, loop=loop, **how)
                if "Workers._run_async" in repr(coroutine):
                    task.cancel()
                return task

            asyncio.get_running_loop().set_task_factory(factory)
            await group.app(handle).run_async()  # it stops: nobody would handle anything here

        run(main())
        assert group.committed in (None, 0)

    @pytest.mark.parametrize("eager", _EAGER)
    def test_no_task_is_kept_when_its_record_is_handled(self, *, eager: bool) -> None:
        group, tasks = Group(records=40), list[weakref.ref[asyncio.Task[Any]]]()

        async def main() -> None:
            async def handle(record: Record) -> None:
                task = asyncio.current_task()
                assert task is not None
                tasks.append(weakref.ref(task))
                if record.offset % 2:
                    await asyncio.sleep(0)
                if len(tasks) == 40:
                    app.stop()

            if sys.version_info >= (3, 12) and eager:
                asyncio.get_running_loop().set_task_factory(_eager_task)
            app = group.app(handle)
            await app.run_async()
            gc.collect()
            assert [task for task in tasks if task() is not None] == []

        run(main())
        assert group.committed == 40

    def test_ctrl_c_in_a_coroutine_is_no_failure_of_its_record(self) -> None:
        group = Group(records=1)

        async def main() -> None:
            async def handle(record: Record) -> None:
                raise KeyboardInterrupt

            async with group.app(handle):
                await asyncio.Event().wait()

        with pytest.raises(KeyboardInterrupt):
            run(main())
        assert group.committed in (None, 0)

    def test_no_more_coroutines_at_once_than_said(self) -> None:
        group = Group(records=50)

        async def main() -> None:
            at_once = most = ended = 0

            async def handle(record: Record) -> None:
                nonlocal at_once, most, ended
                at_once += 1
                most = max(most, at_once)
                await asyncio.sleep(0.001)
                at_once -= 1
                ended += 1
                if ended == 50:
                    app.stop()

            app = group.app(handle, workers=1, async_workers=7, ordering="none")
            await app.run_async()
            assert most == 7

        run(main())

    def test_what_it_fails_with_is_raised(self) -> None:
        group = Group(records=1)

        async def main() -> None:
            async def handle(record: Record) -> None:
                raise ValueError("no")

            with pytest.raises(HandlerFailed):
                await group.app(handle).run_async()
            with pytest.raises(SettingError, match="handlers"):
                await Holdfast(MemoryPartitionedSource(group.broker), claims=None).run_async()

        run(main())


@pytest.mark.usefixtures("loops")
class TestAsyncWith:
    def test_it_consumes_while_the_body_runs(self) -> None:
        group = Group(records=3)

        async def main() -> None:
            offsets: asyncio.Queue[int] = asyncio.Queue()

            async def handle(record: Record) -> None:
                await offsets.put(record.offset)

            async with group.app(handle) as app:
                assert [await offsets.get() for _ in range(3)] == [0, 1, 2]
                assert isinstance(app, Holdfast)

        run(main())
        assert group.committed == 3

    def test_a_failure_of_the_app_ends_the_body(self) -> None:
        group = Group(records=1)

        async def main() -> None:
            async def handle(record: Record) -> None:
                raise ValueError("no")

            with pytest.raises(HandlerFailed):
                async with group.app(handle):
                    await asyncio.Event().wait()
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0

        run(main())

    def test_an_app_that_was_stopped_leaves_the_body_alone(self) -> None:
        group = Group(records=1)

        async def main() -> None:
            handled = asyncio.Event()

            async def handle(record: Record) -> None:
                app.stop()
                handled.set()

            app = group.app(handle)
            async with app:
                await handled.wait()
                await asyncio.to_thread(until, lambda: app.snapshot().state == "stopped")
                assert app.health().live
                assert not app.health().ready
                await asyncio.sleep(0)  # where a cancellation would strike

        run(main())
        assert group.committed == 1

    def test_who_was_asked_to_stop_before_drains_all_the_same(self) -> None:
        group = Group(records=1)

        async def main() -> None:
            began, ended = asyncio.Event(), []

            async def handle(record: Record) -> None:
                began.set()
                await asyncio.sleep(0.2)
                ended.append(record.offset)

            async with group.app(handle) as app:
                await began.wait()
                app.stop(leave=True)
            assert ended == [0]

        run(main())
        assert group.committed == 1

    def test_the_same_app_is_not_entered_twice(self) -> None:
        group = Group()

        async def main() -> None:
            async def handle(record: Record) -> None:
                pass

            async with group.app(handle) as app:
                with pytest.raises(StateError):
                    async with app:
                        raise AssertionError

        run(main())

    def test_what_cannot_run_is_told_before_the_body(self) -> None:
        app = Holdfast(MemoryPartitionedSource(Group().broker), claims=MemoryClaims())

        async def main() -> None:
            with pytest.raises(SettingError, match="register at least one handler"):
                async with app:
                    raise AssertionError

        run(main())

    def test_an_error_of_the_body_goes_on(self) -> None:
        group = Group()

        async def main() -> None:
            async def handle(record: Record) -> None:
                pass

            with pytest.raises(ZeroDivisionError):
                async with group.app(handle):
                    raise ZeroDivisionError

        run(main())


class TestStart:
    def test_it_consumes_until_it_is_stopped(self) -> None:
        group, seen, came = Group(records=3), [], threading.Event()

        def handle(record: Record) -> None:
            seen.append(record.offset)
            if len(seen) == 3:
                came.set()

        app = group.app(handle)
        app.start()
        assert came.wait(PATIENCE_S)
        with pytest.raises(StateError):
            app.start()
        app.stop(wait=True)
        assert group.committed == 3
        assert app.snapshot().state == "stopped"

    def test_a_program_that_ends_itself_in_it_is_seen_as_such(self) -> None:
        app, came = Group().app(lambda record: None), list[str]()

        @app.resource
        def pool() -> Iterator[str]:
            if came:
                yield "never"
            sys.exit("no address of the database")

        app.start()
        until(lambda: app.snapshot().state == "stopped")
        assert "no address of the database" in str(app.snapshot().error)
        assert not app.health().live
        with pytest.raises(SystemExit):
            app.stop(wait=True)

    def test_waiting_for_its_end_raises_what_it_failed_with(self) -> None:
        group = Group(records=1)

        def handle(record: Record) -> None:
            raise ValueError("no")

        app = group.app(handle)
        app.start()
        while app.snapshot().state != "stopped":
            threading.Event().wait(0.01)
        with pytest.raises(HandlerFailed):
            app.stop(wait=True)


def test_a_task_of_a_handlers_own_that_exits_does_not_end_the_event_loop_of_all_handlers() -> None:
    group = Group(records=3)
    tasks: list[asyncio.Task[None]] = []

    async def leave() -> None:
        raise SystemExit(3)

    async def handle(record: Record) -> None:
        tasks.append(asyncio.create_task(leave()))
        await asyncio.sleep(0.01)  # it exits meanwhile

    app = group.app(handle)
    app.start()
    until(lambda: group.committed == 3)
    app.stop(wait=True)
    assert [type(task.exception()) for task in tasks] == [SystemExit] * 3


def test_a_signal_stops_all_apps_of_a_loop_and_nothing_of_them_stays() -> None:
    before = signal.getsignal(signal.SIGTERM)
    group = Group()

    async def main() -> None:
        async def handle(record: Record) -> None:
            pass

        apps = [asyncio.create_task(group.app(handle).run_async()) for _ in range(2)]
        await asyncio.sleep(0)  # both have begun
        assert signal.getsignal(signal.SIGTERM) is not before
        signal.raise_signal(signal.SIGTERM)
        await asyncio.gather(*apps)

    run(main())
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("name", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains(name: signal.Signals) -> None:
    program = textwrap.dedent("""
        import asyncio
        from holdfast import Holdfast, MemoryClaims
        from holdfast.testing.brokers.kafka import MemoryBroker
        from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource

        broker = MemoryBroker(orders=1)
        broker.produce("orders", 0, "x")
        app = Holdfast(MemoryPartitionedSource(broker), claims=MemoryClaims())

        @app.handler("orders")
        async def handle(record):
            print("begun", flush=True)
            await asyncio.sleep(0.2)
            print("ended", flush=True)

        asyncio.run(app.run_async())
        print("left", flush=True)
    """)
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    process.send_signal(name)
    assert process.communicate(timeout=PATIENCE_S)[0] == "ended\nleft\n"
    assert process.returncode == 0
