"""Reads dead letters from a RocketMQ topic and replays them: `tools.ports.DeadLetterTool`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.dead_letter import as_message, failure
from holdfast.adapters.rocketmq.delivery import Delivery
from holdfast.adapters.rocketmq.headers import headers_of, sent_on
from holdfast.adapters.rocketmq.remoting import Admin, Malformed, codes
from holdfast.adapters.rocketmq.remoting.membership import read_readers, readers_of
from holdfast.adapters.rocketmq.remoting.messages import KEYS, POLL_BYTES, RETRY_TOPIC
from holdfast.adapters.rocketmq.remoting.network import ask_each
from holdfast.adapters.rocketmq.tools.topics import TopicView
from holdfast.adapters.rocketmq.unique_keys import UniqueKeys
from holdfast.errors import DeadLetterError, DeadLetterRefused, LetterTooLarge, SourceError
from holdfast.plugin.retrying.dead_letter import PREFIX, theirs
from holdfast.records import Record
from holdfast.tools.ports import NoFence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from holdfast.adapters.rocketmq.remoting import RemotingClient, StoredMessage
    from holdfast.records import Partition
    from holdfast.timing import Deadline
    from holdfast.tools.ports import Outgoing

#: The group of a replay: the prefix of names under which its progress is kept.
REPLAY = "holdfast-replay"
_ATTEMPT_S = 5.0
_ORIGIN = f"{PREFIX}origin-topic"


class RocketMQDeadLetterTool(TopicView):
    """Reads and replays letters. One thread. Old brokers create dead letter topics with perm 2, which cannot be read:
    they need perm 6."""

    def __init__(self, connect: Callable[[], RemotingClient]) -> None:
        super().__init__(connect, REPLAY)
        self._delivery = Delivery(self.client, REPLAY, _ATTEMPT_S)
        self._keys = UniqueKeys()

    def read(
        self, starts: Mapping[Partition, int], ends: Mapping[Partition, int], patience_s: float
    ) -> Iterator[Sequence[Record]]:
        """Read each queue from its start to its end, in pieces of at most a consumer's poll. Raises SourceError."""
        for queue, messages in self.messages(starts, ends, patience_s):
            letters, size = list[Record](), 0
            for each in messages:
                letters.append(record := _record(queue, each))
                size += record.size_bytes
                if size >= POLL_BYTES:
                    yield letters
                    letters, size = [], 0
            yield letters

    def send(self, letters: Sequence[Outgoing], deadline: Deadline) -> Sequence[DeadLetterError | None]:
        """Send letters one after the other, each with its UNIQ_KEY: a consumer that has handled the message skips a
        copy."""
        return [self._send(letter, deadline) for letter in letters]

    def readers(self, topic: str, deadline: Deadline) -> Sequence[str]:
        """Groups that have members or an offset in the topic, from all brokers. Raises SourceError."""
        brokers = Admin(self.client).cluster(deadline).brokers.values()
        asked = [(each[codes.MASTER], readers_of(topic)) for each in brokers if codes.MASTER in each]
        found: set[str] = set()
        for answer in ask_each(self.client.network, asked, deadline, read_readers):
            if isinstance(answer, SourceError):
                raise answer
            found.update(answer)
        return sorted(found - {REPLAY})

    def is_compacted(self, topic: str, deadline: Deadline) -> bool:  # noqa: ARG002 - as of the port
        """Returns False without a request: compacted topics (5.x, cleanup.policy=COMPACTION) are rare."""
        return False

    def _send(self, letter: Outgoing, deadline: Deadline) -> DeadLetterError | None:
        answer = self._try(letter, letter.letter.headers, deadline)
        # The topic has accepted the record without the headers that a letter adds.
        bare = tuple(theirs(letter.letter.headers))
        return self._try(letter, bare, deadline) if isinstance(answer, LetterTooLarge | _Unfit) else answer

    def _try(
        self, letter: Outgoing, headers: Sequence[tuple[str, bytes | None]], deadline: Deadline
    ) -> DeadLetterError | None:
        what = f"sending letters to {letter.topic}"
        try:
            message = as_message(letter.letter, letter.topic, sent_on(headers), self._keys)
            self._delivery.send([message], deadline, batch=not message.body, queue=letter.partition)
        except ValueError as error:  # also SettingError: the message cannot be stored
            return _Unfit(f"{what}: {error}")
        except SourceError as error:
            return failure(error, what)
        return None


class _Unfit(DeadLetterRefused):
    """No broker can store the letter as it is."""


def _record(queue: Partition, message: StoredMessage) -> Record:
    """A letter as a record. Letters that the broker itself has written have their origin topic in RETRY_TOPIC. The
    value of an unreadable message is its raw body."""
    headers = headers_of(message.raw_properties)
    names = dict(headers)
    if _ORIGIN not in names and (born := names.get(RETRY_TOPIC)) is not None:
        headers = (
            *headers,
            (_ORIGIN, born),
            (f"{PREFIX}attempts", str(message.reconsume_times).encode()),
        )
    try:
        body = message.body
    except Malformed:
        body = message.raw_body
    return Record(queue, message.offset, names.get(KEYS), body, headers, message.stored_ms, NoFence())
