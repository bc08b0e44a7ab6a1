"""Dead letters to RocketMQ. The broker acknowledges a letter before its record counts as done."""

from __future__ import annotations

import logging
import threading
from functools import partial
from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq import outgoing
from holdfast.adapters.rocketmq.delivery import Delivery
from holdfast.adapters.rocketmq.headers import sent_on
from holdfast.adapters.rocketmq.remoting import Admin, BrokerRefused, Message, SendStatus, codes
from holdfast.adapters.rocketmq.remoting.messages import KEYS, UNIQUE_KEY
from holdfast.adapters.rocketmq.unique_keys import UniqueKeys
from holdfast.errors import (
    DeadLetterError,
    DeadLetterRefused,
    LetterTooLarge,
    NotAuthorised,
    SourceError,
    SourceUnavailable,
    UnknownTopic,
)
from holdfast.plugin.retrying.dead_letter import forms_of
from holdfast.timing import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from holdfast.adapters.rocketmq.remoting import RemotingClient
    from holdfast.plugin.retrying.dead_letter import Letter
    from holdfast.records import Record
    from holdfast.timing import Deadline

_log = logging.getLogger("holdfast.rocketmq")

#: The value of `dead_letter=` that means the group's own dead letter topic, %DLQ%<group>.
OWN = "%DLQ%"
_PRODUCER_GROUP = "holdfast-dead-letters"
_ATTEMPT_S = 5.0
_AGAIN_S = 0.2
# As brokers create a dead letter topic: one queue (DLQ_NUMS_PER_GROUP), readable and writable.
_QUEUES, _PERM = 1, codes.PERM_READ | codes.PERM_WRITE


class RocketMQDeadLetters:
    """Sends letters with the source's credentials, over connections of its own, opened at the first use.

    A letter has the record's value, its properties (KEYS, TAGS and UNIQ_KEY among them) and holdfast's headers as
    further properties. A header that is no text, or has the bytes 1 or 2 in it, becomes `holdfast-base64-<name>`.

    At least once: if the answer is lost, the engine sends the letter again with the same UNIQ_KEY, and it may then be
    stored twice. `send` from several threads at once; `check` and `close` from one.

    Args:
        connect: makes a client to the source's name servers.
        group: the consumer group, whose topic `%DLQ%` stands for.
    """

    def __init__(self, connect: Callable[[], RemotingClient], group: str) -> None:
        self._connect, self._group = connect, group
        self._lock = threading.Lock()
        self._client: RemotingClient | None = None
        self._delivery: Delivery | None = None
        self._keys = UniqueKeys()
        self._closed = False

    def topic(self, named: str) -> str:
        """The topic that a handler's `dead_letter=` means."""
        return f"{OWN}{self._group}" if named == OWN else named

    def check(self, topics: Collection[str], deadline: Deadline) -> None:
        """Check at the start that every target exists and can be written to. A missing dead letter topic of a group
        (%DLQ%...) is created, as the broker does for its own letters.

        Raises UnknownTopic, NotAuthorised, SourceUnavailable.
        """
        client, _ = self._start()
        for topic in sorted({self.topic(each) for each in topics}):
            self._check(client, topic, deadline)

    def send(self, letter: Letter, deadline: Deadline) -> None:
        """Send a letter; return when it is acknowledged. Values above 4 KiB are compressed. A letter that is too large
        with all its headers is sent with fewer.

        Raises:
            DeadLetterError: not acknowledged by the deadline; it may still arrive. Send it again.
            LetterTooLarge: too large in each form.
            DeadLetterRefused: the target will never accept it (missing topic, no access).
        """
        topic = self.topic(letter.topic)
        what = f"dead letter of {letter.record.partition}@{letter.record.offset} to {topic}"
        refusal: LetterTooLarge | None = None
        for form in forms_of(letter):
            record = letter.record._replace(value=form.value, key=form.key)
            try:
                self._send(record, form.headers, named=letter.topic, what=what, deadline=deadline)
            except LetterTooLarge as error:
                refusal = error
            else:
                return
        if refusal is not None:
            raise refusal

    def _send(
        self, record: Record, headers: Sequence[tuple[str, bytes | None]], *, named: str, what: str, deadline: Deadline
    ) -> None:
        """Send one form of a letter. `named`: its topic, as the handler names it. Raises as `send`."""
        client, delivery = self._start()
        topic = self.topic(named)
        try:
            message = as_message(record, topic, sent_on(headers), self._keys)
            send = partial(delivery.send, [message], deadline, batch=not message.body)
            try:
                sent = send()
            except UnknownTopic:
                if named != OWN:
                    raise
                self._check(client, topic, deadline)  # for an unroutable record: no handler names it, so check it now
                sent = send()
        except ValueError as error:  # also SettingError: the properties are too long for the log
            raise LetterTooLarge(f"{what}: {error}") from error
        except SourceError as error:
            raise failure(error, what) from error
        if sent.status is not SendStatus.OK:
            _log.warning(
                "%s is on the master, which has not flushed or replicated it in time (%s)", what, sent.status.name
            )

    def close(self, deadline: Deadline) -> None:
        """Close the connections. Idempotent; `send` raises afterwards."""
        with self._lock:
            self._closed = True
            client, self._client = self._client, None
        if client is not None:
            client.close(deadline.left_s(at_most=1.0))

    def _start(self) -> tuple[RemotingClient, Delivery]:
        with self._lock:
            if self._closed:
                raise DeadLetterError("dead letters are closed: the app is leaving")
            if self._client is None or self._delivery is None:
                self._client = self._connect()
                self._delivery = Delivery(self._client, _PRODUCER_GROUP, _ATTEMPT_S)
            return self._client, self._delivery

    def _check(self, client: RemotingClient, topic: str, deadline: Deadline) -> None:
        while True:
            try:
                queues = client.route(topic, deadline, fresh=True).queues(read=False)
            except UnknownTopic as error:
                if not topic.startswith(OWN):
                    raise UnknownTopic(
                        f"the dead letter topic {topic} does not exist at {client.namesrv}: make it (mqadmin "
                        f"updateTopic -t {topic} ...), mend its name, or say dead_letter={OWN!r} for the group's own"
                    ) from error
                _log.info("making the dead letter topic %s at %s", topic, client.namesrv)
                Admin(client).create_topic(topic, deadline, queues=_QUEUES, perm=_PERM)
            except SourceUnavailable:
                if deadline.passed:
                    raise
            else:
                if queues:
                    return
                raise NotAuthorised(
                    f"the dead letter topic {topic} cannot be written to: give it perm 6 (mqadmin updateTopicPerm)"
                )
            if deadline.passed:
                raise SourceUnavailable(f"checking the dead letter topic {topic}: no answer in {deadline.budget_s:g} s")
            SYSTEM_CLOCK.sleep(deadline.left_s(at_most=_AGAIN_S))


def as_message(record: Record, topic: str, properties: dict[str, str], keys: UniqueKeys) -> Message:
    """Make a message from a record, with the record's UNIQ_KEY if it has one.

    A message without a value must be sent as a batch of one: brokers (5.5.0) fail at any other empty message. Raises
    SettingError: the properties are too long for the log.
    """
    properties.setdefault(UNIQUE_KEY, keys.next())
    if record.key and KEYS not in properties:
        properties[KEYS] = record.key.decode("utf-8", "replace")
    outgoing.check_properties(properties)
    body, sys_flag = outgoing.packed(record.value or b"", outgoing.COMPRESS_ABOVE_BYTES)
    return Message(topic, body, properties=properties, sys_flag=sys_flag)


def failure(error: SourceError, what: str) -> DeadLetterError:
    """Convert the broker's answer to a letter into an error."""
    said = f"{what}: {error}"
    if isinstance(error, BrokerRefused) and error.code == codes.MESSAGE_ILLEGAL:
        return LetterTooLarge(
            f"{said}; raise the brokers' maxMessageSize (a letter is a little larger than its record, by its "
            'properties), give the handler letter_too_large="without_value", or let it deal with this record'
        )
    if isinstance(error, UnknownTopic | NotAuthorised):
        return DeadLetterRefused(said)
    return DeadLetterError(said)
