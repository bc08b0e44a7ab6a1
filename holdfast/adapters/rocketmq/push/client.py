"""PushClient: the C++ client through rocketmq-client-python, with the method names of both 0.5.0rc2 and 2.0.0."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.adapters.rocketmq.packages import load_classic
from holdfast.adapters.rocketmq.remoting.messages import KEYS, RECONSUME_TIMES, RETRY_TOPIC, TAGS, UNIQUE_KEY
from holdfast.adapters.rocketmq.unique_keys import identity_of
from holdfast.dedup.interrupts import raised_by_handler
from holdfast.errors import SourceFatal
from holdfast.records import Partition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.adapters.rocketmq.remoting import Credentials

#: Takes the place of the broker's name, which the client does not report, for a record from the group's retry topic.
#: Such a record has a queue number and an offset of the retry topic, and the name of its origin topic.
RETRY = "retry"
#: Read for every message, besides those that the user names. The client returns properties only by name.
_PROPERTIES = (KEYS, TAGS, UNIQUE_KEY, RETRY_TOPIC)


class Arrived(NamedTuple):
    """One message from the client, as values."""

    partition: Partition
    offset: int
    #: UNIQ_KEY, which is the same on the retry topic, and the checksum of the body.
    identity: str
    key: bytes | None
    body: bytes
    headers: tuple[tuple[str, bytes], ...]
    born_ms: int


def read(message: Any, properties: Sequence[str]) -> Arrived:  # noqa: ANN401 - RecvMessage or ReceivedMessage, untyped
    """Read a message in a callback: it is freed when the callback returns. Absent properties are b''."""
    headers = [(name, message.get_property(name)) for name in (*_PROPERTIES, *properties)]
    given = dict(headers)
    if message.reconsume_times:
        headers.append((RECONSUME_TIMES, str(message.reconsume_times).encode()))
    return Arrived(
        Partition(message.topic, message.queue_id, RETRY if given[RETRY_TOPIC] else ""),
        message.queue_offset,
        identity_of(message.id, message.body or b""),
        given[KEYS] or None,
        message.body or b"",
        tuple((name, value) for name, value in headers if value),
        message.born_timestamp,
    )


#: The packages of errors that the client raises: its own, ctypes', and builtins, which C bindings raise.
_CLIENT_PACKAGES = frozenset({"rocketmq", "ctypes", "_ctypes", "builtins"})


def _is_from_client(error: BaseException) -> bool:
    """Whether the client has raised the error. Else a signal handler has, such as a job's time limit or Ctrl-C."""
    known = isinstance(error, Exception) and type(error).__module__.partition(".")[0] in _CLIENT_PACKAGES
    return known and raised_by_handler(error) is None


class PushClient:
    """One PushConsumer, which starts at construction and cannot be started again.

    Raises SourceFatal: the client did not start; and as `load_classic`.
    """

    def __init__(
        self,
        *,
        namesrv: str,
        group: str,
        instance: str,
        threads: int,
        credentials: Credentials | None,
        subscriptions: Mapping[str, str],
        take: Callable[[Any], bool],
    ) -> None:
        """`take`: called with each message on the client's threads; returns whether to acknowledge. Must not raise."""
        self._package = package = load_classic()
        statuses = package.ConsumeStatus
        success, later = statuses.CONSUME_SUCCESS, statuses.RECONSUME_LATER

        def call_back(message: Any) -> Any:  # noqa: ANN401 - see read()
            return success if take(message) else later

        self._ended = threading.Event()
        self._ending: threading.Thread | None = None
        may_run = False
        try:
            consumer = self._consumer = package.PushConsumer(group)
            name_server = getattr(consumer, "set_name_server_address", None) or consumer.set_namesrv_addr
            name_server(namesrv)
            consumer.set_instance_name(instance)
            consumer.set_thread_count(threads)
            if credentials is not None:
                consumer.set_session_credentials(credentials.access_key, credentials.secret_key, "")
            for topic, expression in subscriptions.items():
                # A consumer has one callback: the last one gets the messages of all topics.
                consumer.subscribe(topic, call_back, expression)
            may_run = True
            consumer.start()
        except BaseException as error:
            if _is_from_client(error):
                raise SourceFatal(f"the C++ client did not start: {error!r}") from error
            if may_run:  # then it would go on and fetch messages that nobody takes
                self.shut_down()
            raise

    def shut_down(self) -> None:
        """Begin the shutdown: the client stops fetching, waits for batches whose callbacks run, commits, and leaves.
        Returns at once."""
        if self._ending is None:
            self._ending = threading.Thread(target=self._shut_down, name="holdfast-push-shutdown", daemon=True)
            self._ending.start()

    def wait(self, timeout_s: float) -> bool:
        """Wait for the end of the shutdown, at most `timeout_s`. Returns whether it has ended."""
        return self._ended.wait(timeout_s)

    def _shut_down(self) -> None:
        try:
            self._consumer.shutdown()
        finally:
            self._ended.set()
