"""Client: wraps a SimpleConsumer of rocketmq-python-client. Only this file and `packages.py` use that package.

Polls use the package's own calls. Acknowledgements and renewals are requests made here, over its connection and with
its signature. Its `ack_async` and `change_invisible_duration_async` return no result, and a refused renewal leaves an
empty receipt in the message. A request made here also acknowledges many messages at once (a quarter of the time,
measured).

The package is imported with a replacement for its module `rocketmq.v5.log`, which opens a file under the user's home
and calls `logging.config.dictConfig`, which closes the application's handlers.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import zlib
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.adapters.rocketmq.grpc import faults
from holdfast.adapters.rocketmq.grpc.delivery import Delivery, PollTarget, Verdict
from holdfast.adapters.rocketmq.packages import Package, installed, load_grpc
from holdfast.adapters.rocketmq.remoting.messages import KEYS, RECONSUME_TIMES, TAGS, UNIQUE_KEY
from holdfast.errors import SourceError, SourceUnavailable, UnknownTopic
from holdfast.timing import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from concurrent.futures import Future

    from holdfast.adapters.rocketmq.grpc.config import GrpcConfig
    from holdfast.timing import Clock

#: The proxy's shortest long poll (grpcClientConsumerMinLongPollingTimeoutMillis); less is refused with 40018.
_POLL_S = 5
#: At the start: how long a topic may be unknown (a name server may have just started), and the time between two tries.
UNKNOWN_S, _AGAIN_S = 5.0, 0.3
#: apache.rocketmq.v2.Permission: READ, READ_WRITE.
_READABLE = (2, 4)
#: apache.rocketmq.v2.Encoding: a body that is not compressed, and one that is, by gzip or zlib.
_IDENTITY, _GZIP = 1, 2
_LOG_MODULE = "rocketmq.v5.log"

T = TypeVar("T")

_log = logging.getLogger("holdfast.rocketmq")
_client_log = logging.getLogger("rocketmq-python-client")


class Client:
    """A consumer at a proxy. `open`, `renew`, `receive` and `close` block; the other methods do not. Any thread."""

    def __init__(self, config: GrpcConfig, topics: Collection[str], clock: Clock) -> None:
        """Import the package. Raises MissingExtraError, ClientUnusable."""
        self._config, self._topics, self._clock = config, sorted(topics), clock
        load()
        self._requests = load_grpc("rocketmq.grpc_protocol")
        self._lock = threading.Lock()
        self._consumer: Any = None
        self._closed = False
        #: The last poll of each place.
        self._polls: dict[PollTarget, Future[Any]] = {}

    def open(self, deadline: Deadline) -> None:
        """Connect, and check that the topics exist. Raises SourceError."""
        unknown = Deadline(deadline.left_s(UNKNOWN_S), self._clock)
        while True:
            try:
                self.renew()
            except SourceError as error:
                patient = unknown if isinstance(error, UnknownTopic) else deadline
                if patient.passed or not (error.retriable or isinstance(error, UnknownTopic)):
                    raise
            else:
                return
            self._clock.sleep(deadline.left_s(_AGAIN_S))

    def renew(self) -> None:
        """Replace the consumer by a new one. Raises SourceError: then the old one stays.

        A consumer does not recover from a restart of the proxy: it sends its settings again only after five minutes,
        and until then the proxy refuses each poll (observed).
        """
        old = fresh = self._start()
        try:
            with self._lock:
                self._consumer, old = (None, fresh) if self._closed else (fresh, self._consumer)
        finally:
            _end(old)

    def places(self) -> list[PollTarget]:
        """The topics and brokers to poll, from the newest routes. Does not wait, once open. Raises SourceError."""
        with faults.as_source_errors("looking for brokers"):
            return [PollTarget(topic, broker) for topic in self._topics for broker in self._consumer.brokers(topic)]

    def receive(self, place: PollTarget, at_most: int) -> list[Delivery]:
        """Poll: return as soon as there are messages, after 5 s at most. Raises SourceError."""
        with faults.as_source_errors(f"receiving from {place.topic} on {place.broker}"):
            poll = self._polls[place] = self._consumer.poll(*place, at_most, self._config.invisible_s)
            found = poll.result()
        return [_delivery(each) for each in found]

    def end_poll(self, place: PollTarget) -> None:
        """See `Proxy`. The proxy notices, and takes no message for that poll any more (observed on 5.5.0)."""
        if (poll := self._polls.get(place)) is not None:
            poll.cancel()

    def begin_acknowledge(self, deliveries: Sequence[Delivery], answer: Callable[[Sequence[Verdict]], None]) -> None:
        """See `Asks`."""
        request = self._requests.AckMessageRequest()
        first = deliveries[0]
        self._address(request, first.topic)
        receipts = [each.receipt for each in deliveries]
        for each in deliveries:
            entry = request.entries.add()
            entry.message_id, entry.receipt_handle = each.message_id, each.receipt

        def read(response: Any) -> list[Verdict]:  # noqa: ANN401 - protobuf's
            entries = {entry.receipt_handle: entry.status.code for entry in response.entries}
            return faults.verdicts_of(response.status.code, entries, receipts)

        unknown = [Verdict.UNKNOWN] * len(deliveries)
        self._ask("ack_message_async", first, request, read=read, unknown=unknown, answer=answer)

    def begin_change(self, delivery: Delivery, hidden_s: int, answer: Callable[[Verdict, str], None]) -> None:
        """See `Asks`."""
        request = self._requests.ChangeInvisibleDurationRequest()
        self._address(request, delivery.topic)
        request.message_id, request.receipt_handle = delivery.message_id, delivery.receipt
        request.invisible_duration.seconds = hidden_s

        def read(response: Any) -> tuple[Verdict, str]:  # noqa: ANN401 - protobuf's
            return faults.verdict_of(response.status.code), response.receipt_handle

        call, unknown = "change_invisible_duration_async", (Verdict.UNKNOWN, "")
        self._ask(call, delivery, request, read=read, unknown=unknown, answer=lambda each: answer(*each))

    def close(self) -> None:
        """Close; polls under way end at once. Messages on their way to them are delivered again after their lease."""
        with self._lock:
            self._closed = True
            consumer, self._consumer = self._consumer, None
        _end(consumer)

    def queues(self, topic: str) -> int:
        """The number of a topic's readable queues. Needs no `open`, and joins no group. Raises SourceError."""
        made = self._made()
        try:
            found = self._route(made, topic)
        finally:
            made.rpc_client.stop()
        return sum(queue.permission in _READABLE for queue in found)

    # ---- inside
    def _made(self) -> Any:  # noqa: ANN401 - the client has no types
        package = load_grpc()
        config = self._config
        configuration = package.ClientConfiguration(
            config.endpoints,
            package.Credentials(config.access_key or "", config.secret_key or ""),
            namespace=config.namespace,
            request_timeout=config.request_timeout_s,
        )
        subscription = {topic: package.FilterExpression(config.expression(topic)) for topic in self._topics}
        return _consumer_class(package)(
            configuration, config.group, subscription, await_duration=_POLL_S, tls_enable=config.tls
        )

    def _start(self) -> Any:  # noqa: ANN401 - the client has no types
        consumer, config = self._made(), self._config
        what = f"starting a consumer at {config.endpoints}"
        try:
            with faults.as_source_errors(what):
                consumer.startup()
                for topic in self._topics:
                    self._route(consumer, topic)
                    consumer.brokers(topic)
                greeted = consumer.greeted(config.request_timeout_s)
        except BaseException:
            _end(consumer)
            raise
        if not greeted:
            _end(consumer)
            raise SourceUnavailable(
                f"{what}: the proxy does not take the consumer's settings; does the group {config.group} exist? Where "
                f"brokers make none by themselves (autoCreateSubscriptionGroup=false): mqadmin updateSubGroup -g "
                f"{config.group}"
            )
        return consumer

    def _route(self, consumer: Any, topic: str) -> Any:  # noqa: ANN401 - the client has no types
        """Request a topic's queues. The package's own call hides the proxy's answer. Raises SourceError."""
        request = self._requests.QueryRouteRequest()
        request.topic.name, request.topic.resource_namespace = topic, self._config.namespace
        what = f"looking for topic {topic!r} at {self._config.endpoints}"
        endpoints = consumer.client_configuration.rpc_endpoints
        request.endpoints.CopyFrom(endpoints.endpoints)
        with faults.as_source_errors(what):
            asked = consumer.rpc_client.query_topic_route_async(
                endpoints, request, metadata=consumer.sign(), timeout=self._config.request_timeout_s
            )
            answer = asked.result(self._config.request_timeout_s + 1)
        if answer.status.code != faults.OK:
            raise faults.refusal(answer.status.code, answer.status.message, what)
        return answer.message_queues

    def _address(self, request: Any, topic: str) -> None:  # noqa: ANN401 - protobuf's
        request.group.name, request.group.resource_namespace = self._config.group, self._config.namespace
        request.topic.name, request.topic.resource_namespace = topic, self._config.namespace

    def _ask(
        self,
        call: str,
        delivery: Delivery,
        request: Any,  # noqa: ANN401 - protobuf's
        *,
        read: Callable[[Any], T],
        unknown: T,
        answer: Callable[[T], None],
    ) -> None:
        consumer = self._consumer
        if consumer is None:
            answer(unknown)
            return

        def answered(asked: Future[Any]) -> None:
            try:
                verdict = read(asked.result())
            except Exception as error:  # noqa: BLE001 - any error means that there is no answer
                _log.debug("%s: %s", call, error)
                verdict = unknown
            answer(verdict)

        timeout_s = self._config.request_timeout_s
        asked = getattr(consumer.rpc_client, call)(
            delivery.endpoints, request, metadata=consumer.sign(), timeout=timeout_s
        )
        asked.add_done_callback(answered)


def load() -> ModuleType:
    """Import the package without its module for logging, which creates ~/logs/rocketmq_python, writes there, and closes
    the application's handlers. Its messages go to the logger "rocketmq-python-client" instead.

    Raises MissingExtraError, ClientUnusable.
    """
    if installed() is Package.GRPC and _LOG_MODULE not in sys.modules:
        quiet = ModuleType(_LOG_MODULE)
        _client_log.addHandler(logging.NullHandler())
        quiet.logger = _client_log  # type: ignore[attr-defined]
        sys.modules[_LOG_MODULE] = quiet
    return load_grpc()


def _end(consumer: Any) -> None:  # noqa: ANN401 - the client has no types
    try:
        if consumer is not None:
            consumer.shutdown()
    except Exception as error:  # noqa: BLE001 - the consumer is not used any more
        _log.warning("closing rocketmq-python-client: %s", error)


def _consumer_class(package: ModuleType) -> Any:  # noqa: ANN401 - the client has no types
    """Make a subclass of SimpleConsumer whose polls name topic and broker. The package's own polls take topics and
    queues in turn, so that two polls may both wait at one topic, and none at the other. A poll of any queue polls all
    queues of its broker (observed on 5.5.0)."""

    class Polling(package.SimpleConsumer):  # type: ignore[name-defined,misc]
        def greeted(self, timeout_s: float) -> bool:
            """Wait until the proxy has the consumer's settings: earlier polls fail. Returns whether it has."""
            return bool(self._init_settings_event.wait(timeout_s))

        def _Client__heartbeat_callback(self, future: Future[Any], endpoints: Any) -> None:  # noqa: ANN401, N802
            """Log a failed heartbeat. The package's own callback logs and then raises, so that Python logs the error
            once more, with its traceback."""
            if (error := future.exception()) is not None:
                _client_log.warning("heartbeat to %s: %s", endpoints, error)

        def brokers(self, topic: str) -> dict[str, Any]:
            """Broker -> one of its queues, for each broker that has the topic."""
            found: dict[str, Any] = {}
            for queue in self._retrieve_topic_route_data(topic).message_queues:
                if queue.is_readable() and queue.is_master_broker():
                    found.setdefault(queue.message_queue0().broker.name, queue)
            return found

        def _Consumer__handle_receive_message_response(self, responses: Sequence[Any], queue: Any) -> Any:  # noqa: ANN401, N802
            """Read a poll's answer as the package does, except that there one unreadable message fails all others."""
            read = super()._Consumer__handle_receive_message_response
            return _read_each(package, responses, lambda: read(responses, queue))

        def poll(self, topic: str, broker: str, at_most: int, invisible_s: int) -> Future[Any]:
            """Begin a poll, which ends as soon as there are messages, after `await_duration` at most. Raises KeyError:
            the broker does not have the topic any more."""
            queue = self.brokers(topic)[broker]
            request = self._receive_req(topic, queue, at_most, False, invisible_s, self.await_duration)
            timeout_s = self.client_configuration.request_timeout + self.await_duration
            return asyncio.run_coroutine_threadsafe(
                self._receive_coroutine(queue, request, timeout_s), self._rpc_channel_io_loop()
            )

    return Polling


def _read_each(package: ModuleType, responses: Sequence[Any], read: Callable[[], Sequence[Any]]) -> Sequence[Any]:
    """The messages of a poll, each with two more attributes. `packed`: its body is still compressed. `fault`: the error
    if it cannot be read, else None.

    The package would unpack all bodies at once, without a limit: some hundred kilobytes may become gigabytes. It would
    also fail the whole poll because of one unreadable message. The same messages would be delivered again and again,
    until the proxy puts all of them into the dead letters.
    """
    sent = [each.message for each in responses if each.HasField("message")]
    packed = [message.system_properties.body_encoding == _GZIP for message in sent]
    for message, is_packed in zip(sent, packed, strict=True):
        if is_packed:
            _leave_compressed(message)
    faults: list[Exception | None] = [None] * len(sent)
    try:
        messages = read()
    except Exception:
        faults = [_conversion_error(package, message) for message in sent]
        if not any(faults):
            raise
        messages = read()
    for message, is_packed, fault in zip(messages, packed, faults, strict=True):
        message.packed, message.fault = is_packed, fault
    return messages


def _conversion_error(package: ModuleType, message: Any) -> Exception | None:  # noqa: ANN401 - protobuf's
    try:
        package.Message().fromProtobuf(message)
    except Exception as error:  # noqa: BLE001 - the package raises errors without a class of their own
        _leave_compressed(message)
        return error
    return None


def _leave_compressed(message: Any) -> None:  # noqa: ANN401 - protobuf's
    """Make the package leave the body compressed."""
    message.system_properties.body_encoding = _IDENTITY


def _delivery(message: Any) -> Delivery:  # noqa: ANN401 - the client has no types
    """Convert a message. Properties get RocketMQ's own names."""
    headers = [(name, value.encode()) for name, value in message.properties.items()]
    keys = " ".join(sorted(message.keys))
    headers += [(name, value.encode()) for name, value in ((KEYS, keys), (TAGS, message.tag)) if value]
    headers.append((UNIQUE_KEY, message.message_id.encode()))
    attempt = message.delivery_attempt or 1
    if attempt > 1:
        headers.append((RECONSUME_TIMES, str(attempt - 1).encode()))
    key = message.message_group or keys
    return Delivery(
        topic=message.topic,
        message_id=message.message_id,
        receipt=message.receipt_handle,
        endpoints=message.endpoints,
        body=message.body,
        key=key.encode() if key else None,
        headers=headers,
        born_ms=message.born_timestamp,
        attempt=attempt,
        fault=getattr(message, "fault", None),
        packed=getattr(message, "packed", False),
        crc=zlib.crc32(message.body),
    )
