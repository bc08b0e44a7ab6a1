"""Dead letters in a RocketMQ topic, read and sent back: `tools.ports.DeadLetterTool`."""

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

#: The first part of the names of what is remembered of a replay.
REPLAY = "holdfast-replay"
_ATTEMPT_S = 5.0
_ORIGIN = f"{PREFIX}origin-topic"


class RocketMQDeadLetterTool(TopicView):
    """One thread. A dead letter topic that an old broker made cannot be read (perm 2): it needs perm 6."""

    def __init__(self, connect: Callable[[], RemotingClient]) -> None:
        super().__init__(connect, REPLAY)
        self._delivery = Delivery(self.client, REPLAY, _ATTEMPT_S)
        self._keys = UniqueKeys()

    def read(
        self, starts: Mapping[Partition, int], ends: Mapping[Partition, int], patience_s: float
    ) -> Iterator[Sequence[Record]]:
        """Each queue from its start up to its end, no more bodies at once than a consumer's poll has. Raises
        SourceError."""
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
        """Send one after the other, each under the UNIQ_KEY that it has: where a consumer has handled the one, it skips
        a copy."""
        return [self._send(letter, deadline) for letter in letters]

    def readers(self, topic: str, deadline: Deadline) -> Sequence[str]:
        """Groups that have members or an offset there, by all brokers."""
        brokers = Admin(self.client).cluster(deadline).brokers.values()
        asked = [(each[codes.MASTER], readers_of(topic)) for each in brokers if codes.MASTER in each]
        found: set[str] = set()
        for answer in ask_each(self.client.network, asked, deadline, read_readers):
            if isinstance(answer, SourceError):
                raise answer
            found.update(answer)
        return sorted(found - {REPLAY})

    def is_compacted(self, topic: str, deadline: Deadline) -> bool:  # noqa: ARG002 - as of the port
        """Not asked: topics of that kind (5.x, cleanup.policy=COMPACTION) are rare, and read by pull alone."""
        return False

    def _send(self, letter: Outgoing, deadline: Deadline) -> DeadLetterError | None:
        answer = self._try(letter, letter.letter.headers, deadline)
        # Its topic took the record without what a letter adds.
        bare = tuple(theirs(letter.letter.headers))
        return self._try(letter, bare, deadline) if isinstance(answer, LetterTooLarge | _Unfit) else answer

    def _try(
        self, letter: Outgoing, headers: Sequence[tuple[str, bytes | None]], deadline: Deadline
    ) -> DeadLetterError | None:
        what = f"sending letters to {letter.topic}"
        try:
            message = as_message(letter.letter, letter.topic, sent_on(headers), self._keys)
            self._delivery.send([message], deadline, batch=not message.body, queue=letter.partition)
        except ValueError as error:  # SettingError too: what cannot be stored
            return _Unfit(f"{what}: {error}")
        except SourceError as error:
            return failure(error, what)
        return None


class _Unfit(DeadLetterRefused):
    """No broker can store it as it is."""


def _record(queue: Partition, message: StoredMessage) -> Record:
    """Letters that the broker itself has written say where they were born as a retry does. Of one that cannot be read
    the value is what there is of it."""
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
