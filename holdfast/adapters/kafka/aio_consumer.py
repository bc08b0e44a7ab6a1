"""AIOKafkaConsumer: way 2 for loops around `confluent_kafka.aio.AIOConsumer`.

One thread owns a `KafkaConsumer` and runs every call. While a callback of the application runs in the event loop, that
thread waits for it, and runs the calls that the callback itself makes.
"""

# ruff: noqa: ASYNC109 - the signatures are the client's

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Self, TypeVar

from holdfast.adapters.kafka.consumer import KafkaConsumer
from holdfast.adapters.kafka.deserializing import DeserializingKafkaConsumer
from holdfast.adapters.kafka.loop_errors import Refused
from holdfast.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from confluent_kafka import TopicPartition

    from holdfast.adapters.kafka._client import Message
    from holdfast.dedup.claims import ClaimStore
    from holdfast.plugin.observe.health import Health
    from holdfast.plugin.observe.snapshot import Snapshot

T = TypeVar("T")

_CALLBACKS = ("error_cb", "throttle_cb", "stats_cb", "on_commit")
#: How often the thread that waits for a callback checks whether the event loop was closed: it gets no notice of that.
_LOOK_S = 1.0


class _Inside:
    """The calls that one callback makes, for the thread that waits for it."""

    def __init__(self) -> None:
        self.jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        #: False = the callback has ended; tasks that it leaves behind inherit its context. Used in the event loop's
        #: thread only.
        self.open = True


_INSIDE: ContextVar[_Inside | None] = ContextVar("holdfast_inside_callback", default=None)


class AIOKafkaConsumer:
    """`confluent_kafka.aio.AIOConsumer` with the promises of `KafkaConsumer`.

    Made and used in one event loop. With `assignment="sticky"` the construction asks the broker, for
    `Settings.startup_timeout_s` at most, and blocks the event loop meanwhile. Callbacks are `async def`, as with the
    client. A `poll` that is cancelled (by `asyncio.wait_for`, for example) loses nothing: the next one returns its
    message. A waiting `poll` lets other calls run.

    Args:
        consumer_conf: as for the client; with key.deserializer or value.deserializer as `DeserializingKafkaConsumer`.
        max_workers: has no effect: one thread owns the client.
        executor: refused: holdfast makes that thread.
        how: as for `KafkaConsumer`; `claims` is required.

    Raises:
        SettingError: as `KafkaConsumer`.
    """

    def __init__(
        self,
        consumer_conf: Mapping[str, Any],
        max_workers: int = 100,  # noqa: ARG002 - the client's
        executor: Executor | None = None,
        **how: Any,  # noqa: ANN401 - KafkaConsumer's own
    ) -> None:
        if executor is not None:
            raise Refused(SettingError("executor", executor, "leave it out: one thread of holdfast's owns the client"))
        self._loop = asyncio.get_running_loop()
        self._owner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="holdfast-aio")
        self._closed = False
        conf = {name: self._sync(value) if name in _CALLBACKS else value for name, value in consumer_conf.items()}
        wanted = DeserializingKafkaConsumer if any(".deserializer" in name for name in conf) else KafkaConsumer
        self._consumer = wanted(conf, **how)
        #: Running calls whose task was cancelled.
        self._cancelled: set[Future[Any]] = set()
        #: Errors that cancelled calls have returned or raised, for the next poll. Used by the owner's thread.
        self._left_over: deque[Message | BaseException] = deque()
        #: The number of calls under way that are no poll: a waiting poll returns for them.
        self._others = 0
        self._consumer.interrupted_by(lambda: bool(self._cancelled or self._others or self._closed))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, exc_type: object, exc_value: object, exc_traceback: object) -> None:
        try:
            await self._call(self._consumer.__exit__, exc_type, exc_value, exc_traceback)
        finally:
            await self.close()

    # ---- records
    async def poll(self, timeout: float | None = -1) -> Message | None:
        """Poll as `KafkaConsumer.poll` does."""

        def poll(left_s: float | None) -> Message | None:
            late = self._take_left_over()
            return late if late is not None else self._consumer.poll(left_s)

        return await self._receive(poll, timeout)

    async def consume(self, num_messages: int = 1, timeout: float | None = -1) -> list[Message]:
        """Consume as `KafkaConsumer.consume` does."""

        def consume(left_s: float | None) -> list[Message]:
            late = self._take_left_over()
            return [late] if late is not None else self._consumer.consume(num_messages, left_s)

        return await self._receive(consume, timeout)

    async def done(self, message: Message | None = None) -> None:
        """Note a message as handled, as `KafkaConsumer.done` does. Waits for no other call; `done()` without a message
        waits for its turn."""
        if message is None:
            await self._call(self._consumer.done)
        else:
            self._consumer.done(message)

    async def again(self, message: Message) -> None:
        """Have a message returned again, as `KafkaConsumer.again` does."""
        self._consumer.again(message)

    # ---- for exporters and probes
    @property
    def claims(self) -> ClaimStore | None:
        """The consumer's store; None = it has none."""
        return self._consumer.claims

    def snapshot(self) -> Snapshot:
        """The figures, as of `KafkaConsumer.snapshot`. Any thread; in the event loop it may block it for a second."""
        return self._consumer.snapshot()

    def health(self, *, stall_s: float = 300.0, silent_s: float = 60.0) -> Health:
        """The health, as of `KafkaConsumer.health`. Any thread but the event loop's."""
        return self._consumer.health(stall_s=stall_s, silent_s=silent_s)

    # ---- the rest, as the client's
    async def subscribe(self, topics: list[str], **callbacks: Any) -> None:  # noqa: ANN401 - on_assign, ...
        """Subscribe as `KafkaConsumer.subscribe` does; the callbacks get this consumer."""
        mine = {name: self._sync(call, first=self) for name, call in callbacks.items() if call is not None}
        await self._call(self._consumer.subscribe, topics, **mine)

    async def unsubscribe(self) -> None:
        """Unsubscribe as `KafkaConsumer.unsubscribe` does."""
        await self._call(self._consumer.unsubscribe)

    async def commit(self, *args: Any, **kwargs: Any) -> list[TopicPartition] | None:  # noqa: ANN401 - overloaded there
        """Commit as `KafkaConsumer.commit` does."""
        return await self._call(self._consumer.commit, *args, **kwargs)

    async def store_offsets(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - as there
        """Store offsets as `KafkaConsumer.store_offsets` does."""
        await self._call(self._consumer.store_offsets, *args, **kwargs)

    async def committed(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """The committed offsets, as of `KafkaConsumer.committed`."""
        return await self._call(self._consumer.committed, partitions, timeout)

    async def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """The positions, as of `KafkaConsumer.position`."""
        return await self._call(self._consumer.position, partitions)

    async def seek(self, partition: TopicPartition) -> None:
        """Seek as `KafkaConsumer.seek` does."""
        await self._call(self._consumer.seek, partition)

    async def pause(self, partitions: list[TopicPartition]) -> None:
        """Pause as `KafkaConsumer.pause` does."""
        await self._call(self._consumer.pause, partitions)

    async def resume(self, partitions: list[TopicPartition]) -> None:
        """Resume as `KafkaConsumer.resume` does."""
        await self._call(self._consumer.resume, partitions)

    async def assignment(self) -> list[TopicPartition]:
        """The assignment, as of `KafkaConsumer.assignment`."""
        return await self._call(self._consumer.assignment)

    async def assign(self, partitions: list[TopicPartition]) -> None:
        """Assign as `KafkaConsumer.assign` does."""
        await self._call(self._consumer.assign, partitions)

    async def unassign(self) -> None:
        """Unassign as `KafkaConsumer.unassign` does."""
        await self._call(self._consumer.unassign)

    async def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Assign as `KafkaConsumer.incremental_assign` does."""
        await self._call(self._consumer.assign, partitions)

    async def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Unassign as `KafkaConsumer.incremental_unassign` does."""
        await self._call(self._consumer.incremental_unassign, partitions)

    async def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = -1, cached: bool = False
    ) -> tuple[int, int]:
        """The log's bounds, as of `KafkaConsumer.get_watermark_offsets`."""
        return await self._call(self._consumer.get_watermark_offsets, partition, timeout, cached)

    async def offsets_for_times(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """The offsets by time, as of `KafkaConsumer.offsets_for_times`."""
        return await self._call(self._consumer.offsets_for_times, partitions, timeout)

    async def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:  # noqa: ANN401 - as there
        """The cluster's topics, as of `KafkaConsumer.list_topics`."""
        return await self._call(self._consumer.list_topics, topic, timeout)

    async def cluster_id(self, timeout: float = -1) -> str:
        """The cluster's id, as of `KafkaConsumer.cluster_id`."""
        return await self._call(self._consumer.cluster_id, timeout)

    async def consumer_group_metadata(self) -> Any:  # noqa: ANN401 - as there
        """The group's metadata, as of `KafkaConsumer.consumer_group_metadata`."""
        return await self._call(self._consumer.consumer_group_metadata)

    async def set_sasl_credentials(self, username: str, password: str) -> None:
        """Set credentials as `KafkaConsumer.set_sasl_credentials` does."""
        await self._call(self._consumer.set_sasl_credentials, username, password)

    async def close(self) -> None:
        """Close as `KafkaConsumer.close` does. Idempotent. If it is cancelled, the close goes on in its thread."""
        if not self._closed:
            self._closed = True
            closing = self._submit(self._consumer.close)
            closing.add_done_callback(lambda _: self._owner.shutdown(wait=False))
            await asyncio.shield(asyncio.wrap_future(closing))

    # ---- inside
    async def _call(self, call: Callable[..., T], *args: Any, **kwargs: Any) -> T:  # noqa: ANN401 - handed on
        inside = _INSIDE.get()
        if self._closed and (inside is None or not inside.open):  # callbacks inside of close() may still commit
            raise RuntimeError("Consumer closed")
        with self._other():
            return await asyncio.wrap_future(self._submit(lambda: call(*args, **kwargs)))

    @contextmanager
    def _other(self) -> Iterator[None]:
        self._others += 1
        try:
            yield
        finally:
            self._others -= 1

    async def _receive(self, call: Callable[[float | None], T], timeout: float | None) -> T:
        """Receive; if the call has returned early for another call, call it again with the time that is left."""
        until = None if timeout is None or timeout < 0 else self._loop.time() + timeout
        left_s = timeout
        while (came := await self._received(partial(call, left_s))) is None or came == []:
            if until is not None and (left_s := until - self._loop.time()) <= 0:
                break
        return came

    async def _received(self, call: Callable[[], T]) -> T:
        if self._closed:
            raise RuntimeError("Consumer closed")
        future = self._submit(call)
        try:
            return await asyncio.shield(asyncio.wrap_future(future))
        except asyncio.CancelledError:
            # The caller is gone: messages of the call must not count as returned, and the call need not begin or go on.
            if not future.cancel():
                self._cancelled.add(future)
                future.add_done_callback(self._give_back)
            raise

    def _give_back(self, future: Future[Any]) -> None:
        # In the owner's thread, before its next call; or at once, if the call has ended already.
        self._cancelled.discard(future)
        if (error := future.exception()) is not None:
            self._left_over.append(error)
            return
        came = future.result()
        for message in came if isinstance(came, list) else [came]:
            if message is None:
                continue
            if message.error() is None:
                self._consumer.again(message)
            else:
                self._left_over.append(message)

    def _take_left_over(self) -> Message | None:
        """Return a message with an error that a cancelled call has got, or raise its exception. In the owner's
        thread."""
        late = self._left_over.popleft() if self._left_over else None
        if isinstance(late, BaseException):
            raise late
        return late

    def _submit(self, call: Callable[[], T]) -> Future[T]:
        inside = _INSIDE.get()
        if inside is None or not inside.open:
            return self._owner.submit(call)
        future: Future[T] = Future()

        def job() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = call()
            except BaseException as error:  # noqa: BLE001 - the future passes it on
                future.set_exception(error)
            else:
                future.set_result(result)

        inside.jobs.put(job)
        return future

    def _sync(self, callback: Callable[..., Any], first: object = None) -> Callable[..., Any]:
        """Wrap a callback for the owner's thread: it runs in the event loop, and the thread serves its calls meanwhile.

        Args:
            callback: the application's.
            first: replaces the first argument, if given.
        """

        def call(*args: Any) -> Any:  # noqa: ANN401 - the client's
            inside = _Inside()
            given = args if first is None else (first, *args[1:])

            async def run() -> Any:  # noqa: ANN401 - the application's
                _INSIDE.set(inside)
                try:
                    result = callback(*given)
                    return await result if inspect.isawaitable(result) else result
                finally:
                    inside.open = False

            future = asyncio.run_coroutine_threadsafe(run(), self._loop)
            # Not in `run`: a task that is cancelled before its first step runs no line.
            future.add_done_callback(lambda _: inside.jobs.put(None))
            while (job := self._job(inside, future)) is not None:
                job()
            try:
                return future.result()
            except CancelledError as error:  # the task that awaits the call would take it for its own cancellation
                raise RuntimeError(f"{callback!r} was cancelled, or its event loop is closed") from error

        return call

    def _job(self, inside: _Inside, callback: Future[Any]) -> Callable[[], None] | None:
        """The next call of the callback; None = the callback has ended, or its event loop is closed."""
        while True:
            try:
                return inside.jobs.get(timeout=_LOOK_S)
            except Empty:
                if self._loop.is_closed():
                    callback.cancel()
                    return None
