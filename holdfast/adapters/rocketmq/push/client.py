"""The C++ client as rocketmq-client-python has it, in both spellings: 0.5.0rc2 and 2.0.0."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.adapters.rocketmq.packages import load_classic
from holdfast.adapters.rocketmq.remoting.messages import KEYS, RECONSUME_TIMES, RETRY_TOPIC, TAGS, UNIQUE_KEY
from holdfast.adapters.rocketmq.unique_keys import identity_of
from holdfast.dedup.struck import of_a_handler
from holdfast.errors import SourceFatal
from holdfast.records import Partition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.adapters.rocketmq.remoting import Credentials

#: In the place of the broker's name, which the client does not tell: the record came by the group's retry topic. It has
#: the number and the offset of a queue there, and the name of the topic that it was sent to.
RETRY = "retry"
#: Read of every message, beside what the user asks for. The client gives properties by name alone.
_PROPERTIES = (KEYS, TAGS, UNIQUE_KEY, RETRY_TOPIC)


class Arrived(NamedTuple):
    """One message, read."""

    partition: Partition
    offset: int
    #: UNIQ_KEY, which stays the same on the retry topic, and the checksum of the body.
    identity: str
    key: bytes | None
    body: bytes
    headers: tuple[tuple[str, bytes], ...]
    born_ms: int


def read(message: Any, properties: Sequence[str]) -> Arrived:  # noqa: ANN401 - RecvMessage or ReceivedMessage, untyped
    """A message in a callback: it is gone when the callback has returned. Absent properties are b''."""
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


#: Of its package, of ctypes, and what a binding in C raises: its own tree has no base outside of the package.
_THEIRS = frozenset({"rocketmq", "ctypes", "_ctypes", "builtins"})


def _is_the_client_s(error: BaseException) -> bool:
    """Whether it is an error of the client; else somebody has raised it into the call: a job's time limit, Ctrl-C."""
    known = isinstance(error, Exception) and type(error).__module__.partition(".")[0] in _THEIRS
    return known and of_a_handler(error) is None


class PushClient:
    """One PushConsumer. It cannot be started again.

    Raises SourceFatal where the client does not do as asked, and what `load_classic` raises.
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
        """Args: take: called in threads of the client's own; True = acknowledged. It may not raise."""
        self._package = package = load_classic()
        statuses = package.ConsumeStatus
        well, again = statuses.CONSUME_SUCCESS, statuses.RECONSUME_LATER

        def call_back(message: Any) -> Any:  # noqa: ANN401 - see read()
            return well if take(message) else again

        self._ended = threading.Event()
        self._ending: threading.Thread | None = None
        starts = False
        try:
            consumer = self._consumer = package.PushConsumer(group)
            name_server = getattr(consumer, "set_name_server_address", None) or consumer.set_namesrv_addr
            name_server(namesrv)
            consumer.set_instance_name(instance)
            consumer.set_thread_count(threads)
            if credentials is not None:
                consumer.set_session_credentials(credentials.access_key, credentials.secret_key, "")
            for topic, expression in subscriptions.items():
                # A consumer has one callback: the one that was given last gets the messages of all topics.
                consumer.subscribe(topic, call_back, expression)
            starts = True
            consumer.start()
        except BaseException as error:
            if _is_the_client_s(error):
                raise SourceFatal(f"the C++ client did not start: {error!r}") from error
            if starts:  # it may run by now, and nobody would take what it fetches
                self.shut_down()
            raise

    def shut_down(self) -> None:
        """Begin: it fetches no more, waits for the batches whose callbacks run, commits, leaves. Returns at once."""
        if self._ending is None:
            self._ending = threading.Thread(target=self._shut_down, name="holdfast-push-shutdown", daemon=True)
            self._ending.start()

    def wait(self, timeout_s: float) -> bool:
        """Whether it is over, after `timeout_s` at most."""
        return self._ended.wait(timeout_s)

    def _shut_down(self) -> None:
        try:
            self._consumer.shutdown()
        finally:
            self._ended.set()
