"""KafkaConsumer: way 2, around a loop that exists already. A drop-in for `confluent_kafka.Consumer`.

The methods, their arguments and results are the client's; each method's docstring says what differs. Underneath is the
engine of `Holdfast`, driven by the loop's own calls: `holdfast/plugin/own_loop/driven.py`.
"""

from __future__ import annotations

from contextlib import contextmanager
from threading import Condition
from typing import TYPE_CHECKING, Any, Literal, Self, cast, overload

from holdfast.adapters.kafka._client import partitions_of
from holdfast.adapters.kafka.client_calls import ClientCalls
from holdfast.adapters.kafka.loop_arguments import (
    check_callbacks,
    check_count,
    check_message,
    partition_given,
    partitions_given,
    seconds,
    topics_of,
)
from holdfast.adapters.kafka.loop_config import LoopConfig, read, routes_of, spelled
from holdfast.adapters.kafka.loop_errors import as_the_clients
from holdfast.adapters.kafka.loop_offsets import LoopOffsets, behind, is_place, place_of
from holdfast.adapters.kafka.loop_seen import LoopSeen
from holdfast.adapters.kafka.messages import MessageSource
from holdfast.dedup.claims import check_key
from holdfast.dedup.none import NoClaims
from holdfast.errors import SettingError
from holdfast.plugin.app_parts import A_STORE, check_parts
from holdfast.plugin.audit.settings import checked
from holdfast.plugin.own_loop.driven import Driven
from holdfast.plugin.own_loop.loop_health import LoopHealth
from holdfast.plugin.setting_names import known_arguments
from holdfast.plugin.settings import Settings
from holdfast.timing import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from holdfast.adapters.kafka._client import Message, TopicPartition
    from holdfast.adapters.kafka.config import Assignment
    from holdfast.adapters.kafka.messages import MessageRecord
    from holdfast.dedup.claims import ClaimStore
    from holdfast.dedup.keys import KeySpec
    from holdfast.plugin.audit.settings import Audit
    from holdfast.plugin.own_loop.user_loop import DoneWhen
    from holdfast.plugin.ports import Observer

_FOR_EVER_S = 1e9
_MOMENT_S = 0.1


class KafkaConsumer(ClientCalls, LoopSeen):
    """`confluent_kafka.Consumer` with holdfast's drains, fences and dedup, for a loop that exists already.

    Records that are done already are not returned. Before a partition is revoked, its done records are marked and
    committed. A loop that does not poll within max.poll.interval.ms loses its membership as with the client; `Holdfast`
    polls while handlers run.

    As with the client, one call runs at a time, and a call of another thread waits for it. Exceptions are `done`,
    `again` and `processing`: any thread may call them at any time.

    Args:
        conf: as for `confluent_kafka.Consumer`. enable.auto.commit and enable.auto.offset.store decide when a record is
            done (see `done_when`); holdfast makes the commits.
        claims: the store of claims; None = no store (see `Holdfast`).
        key: what makes two records the same piece of work, for all topics or by topic; see `Holdfast.handler`. A record
            whose key another member has in hand holds up its partition until that member's record has ended.
        scope: the scope in which a key is unique; by default the group and the topic.
        done_when: "next_poll": returned records are done when the loop polls again (or commits). "commit": records that
            the loop commits (or stores) are done; after a revoke the next owner handles those not committed.
            "explicit": records are done by `done` or `processing`; the next owner waits for the others. By default from
            `conf`: "commit" if it turns enable.auto.commit or enable.auto.offset.store off, else "next_poll".
        assignment: as for `KafkaSource`; "sticky" asks the broker, so the construction may take a moment.
        static_id: as for `KafkaSource`.
        leave: as for `KafkaSource`.
        settings: see `Settings`; settings of workers and handlers have no effect here. By default a record without its
            key is protected by its position alone (`missing_key="position"`); with "error" `poll` raises KeyMissing
            when it would return that record.
        observers: see `holdfast.plugin.ports.Observer`.
        audit: see `Holdfast`. Records that the loop reports as done count as handled.

    Raises:
        SettingError: names the property, its value and the remedy; it is a KafkaException too.
        KafkaException: as the client; with "sticky" also if the broker gives no answer.
    """

    @known_arguments(claims=A_STORE)
    @as_the_clients()
    def __init__(
        self,
        conf: Mapping[str, Any] | None = None,
        /,
        *,
        claims: ClaimStore | None,
        key: KeySpec | Mapping[str, KeySpec] | None = None,
        scope: str | None = None,
        done_when: DoneWhen | None = None,
        assignment: Assignment | None = None,
        static_id: str | Callable[[], str] | None = None,
        leave: bool = False,
        settings: Settings | None = None,
        observers: Sequence[Observer] = (),
        audit: Audit | None = None,
        **more_conf: Any,  # noqa: ANN401 - properties as keywords, as the client takes them
    ) -> None:
        own = read({**(conf or {}), **{spelled(name): value for name, value in more_conf.items()}}, done_when)
        check_parts(claims=claims, settings=settings, observers=observers)
        check_key(claims, key)
        settings = settings or Settings(missing_key="position")
        self._source = MessageSource(
            own.conf,
            assignment=assignment,
            static_id=static_id,
            leave=leave,
            on_commit=own.on_commit,
            wants_ends=own.wants_ends,
            deserialise=self._deserialiser(own),
        )
        self._source.check_settings(settings)
        self._waiting, self._turn_taken = set(), Condition()
        self._driven = Driven(
            self._source,
            done_when=own.done_when,
            store=claims if claims is not None else NoClaims(),
            routes=routes_of(key, scope),
            settings=settings.fitted(self._source.max_poll_interval_s),
            observers=observers,
            audit=checked(audit),
        )
        self.claims = claims
        self._health = LoopHealth(self._driven, self._source.max_poll_interval_s)
        self._offsets = LoopOffsets(self._driven, self._source)
        callbacks = self._source.callbacks
        callbacks.facade, callbacks.settled = self, self._offsets.begin
        self.interrupted_by(lambda: False)
        self._stored_only = own.stored_only
        self._joined = self._closed = False
        self._source.build(Deadline(settings.startup_timeout_s))

    def interrupted_by(self, condition: Callable[[], bool]) -> None:
        """Have a waiting `poll` return as soon as this function returns true: for wrappers of this class."""
        callbacks = self._source.callbacks
        self._driven.interrupted = lambda: bool(
            self._offsets.next_returnable is not None or callbacks.raised or condition()
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._source!r}, done_when={self._driven.done_when!r})"

    # ---- the subscription
    def subscribe(
        self,
        topics: list[str],
        on_assign: Callable[[Any, list[TopicPartition]], object] | None = None,
        on_revoke: Callable[[Any, list[TopicPartition]], object] | None = None,
        on_lost: Callable[[Any, list[TopicPartition]], object] | None = None,
    ) -> None:
        """Subscribe as the client does, without waiting for a broker. The first call reaches the store, so it may block
        for `Settings.startup_timeout_s`.

        on_assign is called when the partitions are assigned; an `assign` of other offsets in it is a `seek` to them.
        on_revoke is called before anything is handed over, so that records which it commits or reports as done count.
        on_lost is called as by the client.

        Raises:
            StoreError: the store refuses, or does not answer.
            KafkaException: the client refuses.
        """
        with self._turn():
            topics = topics_of(topics)
            check_callbacks(on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost)
            self._offsets.topics = topics
            self._source.callbacks.user.update(on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost)
            if self._joined:
                self._driven.family.subscribe(topics)
            else:
                self._driven.begin(topics)
                self._joined = True

    def unsubscribe(self) -> None:
        """Unsubscribe as the client does: the next poll revokes the assigned partitions."""
        with self._turn():
            self._source.unsubscribe()

    # ---- records
    def poll(self, timeout: float | None = -1) -> Message | None:
        """Return the next message, or one that carries an error, or None when the time is over. The timeout is in
        seconds; -1 and None wait for ever (Ctrl-C ends the wait).

        Raises:
            HoldfastError: the error that has stopped the engine: the store refuses, the log cannot be read.
            KeyMissing: see `settings`.
        """
        with self._driven.lock:
            record = cast("MessageRecord | None", self._driven.take_quick())
            if record is not None:
                self._driven.user.gave()
                if record.failure is not None:
                    raise record.failure
                return record.message
        with self._turn():
            return next(iter(self._take(1, timeout)), None)

    def consume(self, num_messages: int = 1, timeout: float | None = -1) -> list[Message]:
        """Return the number of messages asked for, or those that have come when the time is over. Raises as `poll`."""
        with self._turn():
            check_count(num_messages)
            return self._take(num_messages, timeout) if num_messages else []

    def done(self, message: Message | None = None) -> None:
        """Note a message as handled; None: all returned messages. Any thread. A message that is not in hand any more
        (because its partition was lost, for example) is ignored."""
        if message is None and self._driven.done_when == "next_poll":
            with self._turn():
                self._driven.end_all()
        elif message is None:
            if self._closed:
                raise RuntimeError("Consumer closed")
            self._driven.end_returned()
        else:
            self._driven.end(*place_of(message))

    def again(self, message: Message) -> None:
        """Have a message that was not handled returned again, here or by the partition's new owner. Any thread."""
        self._driven.again(*place_of(message))

    @contextmanager
    def processing(self, message: Message) -> Iterator[Message]:
        """`with consumer.processing(message):` done when the block ends, returned again when it raises. Any thread."""
        try:
            yield message
        except BaseException:
            self.again(message)
            raise
        self.done(message)

    # ---- offsets
    @overload
    def commit(self, *, asynchronous: Literal[True] = ...) -> None: ...
    @overload
    def commit(self, *, asynchronous: Literal[False]) -> list[TopicPartition]: ...
    @overload
    def commit(self, *, message: Message, asynchronous: Literal[True] = ...) -> None: ...
    @overload
    def commit(self, *, message: Message, asynchronous: Literal[False]) -> list[TopicPartition]: ...
    @overload
    def commit(self, *, offsets: list[TopicPartition], asynchronous: Literal[True] = ...) -> None: ...
    @overload
    def commit(self, *, offsets: list[TopicPartition], asynchronous: Literal[False]) -> list[TopicPartition]: ...
    def commit(
        self,
        message: Message | None = None,
        offsets: list[TopicPartition] | None = None,
        asynchronous: bool = True,
    ) -> list[TopicPartition] | None:
        """Commit as the client does, and note records as done: the message and all before it in its partition; all
        records below the offsets; without either, all returned records (with enable.auto.offset.store=false: the stored
        ones).

        The committed offset is the partition's watermark: not beyond the first record that is not done (with "explicit"
        another thread may still have one), and not below the done records: to read records again, `seek`. With
        asynchronous=False the call waits for a store that is down, ten seconds at most.

        Raises:
            KafkaException: as the client; _NO_OFFSET: nothing to commit; _ASSIGNMENT_LOST: the partition is not ours
                (any more); _TIMED_OUT: the store gives no answer, so done records cannot be committed yet.
        """
        with self._turn():
            if message is not None and offsets is not None:
                raise ValueError("message and offsets are mutually exclusive")
            if message is not None:
                check_message(message, "commit")
            if not self._joined:  # not in the group: the broker decides, and members take the commit for a reset
                how: dict[str, Any] = {"asynchronous": asynchronous, "offsets": offsets, "message": message}
                return cast("list[TopicPartition] | None", self._source.client.commit(**how))
            named = [behind(message)] if message is not None else offsets
            if named:
                self._source.callbacks.commits.by_loop(partitions_given(named))
            below = self._offsets.done_below(named)
            if named is None and not self._stored_only and self._driven.done_when != "explicit":
                self._driven.end_all()
            return self._offsets.commit(below, asynchronous=asynchronous, by_offsets=offsets is not None)

    def store_offsets(self, message: Message | None = None, offsets: list[TopicPartition] | None = None) -> None:
        """Note as done the message and all before it, or all records below the offsets. The consumer commits them at
        its interval, and always before their partition is revoked.

        Raises:
            KafkaException: as the client; _STATE: none of the partitions is ours (any more).
        """
        with self._turn():
            if message is not None and offsets is not None:
                raise ValueError("message and offsets are mutually exclusive")
            if message is not None:
                check_message(message, "store")
            elif offsets is None:
                raise ValueError("expected either message or offsets")
            self._offsets.store(message, offsets, allowed=self._stored_only)

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """The positions: the offset after the last returned record."""
        with self._turn():
            return [self._offsets.position(one) for one in partitions_given(partitions)]

    def seek(self, partition: TopicPartition) -> None:
        """Seek as the client does: the loop reads on from there. Returned records below that offset that are not done
        stay in the loop's hands; done records from there on are returned again. Only an offset below all undone records
        is a reset, which the group remembers. The seek takes effect in later polls.

        Raises:
            KafkaException: the partition is not ours.
        """
        with self._turn():
            self._offsets.seek(partition_given(partition))

    # ---- the assignment
    def assign(self, partitions: list[TopicPartition]) -> None:
        """Choose, inside of on_assign, which of the partitions to read and where to begin, as with the client.
        Elsewhere it is refused: partitions that are assigned by hand do not move, and need no holdfast.

        Raises:
            SettingError: outside of on_assign.
        """
        with self._turn():
            asked, wanted = partitions_given(partitions), self._source.callbacks.wanted
            if wanted is None:
                raise SettingError(
                    "assign",
                    [str(one) for one in asked],
                    "partitions come by subscribe(); those assigned by hand do not move: use confluent_kafka.Consumer",
                )
            wanted.extend(one for one in asked if is_place(one.offset))
            callbacks = self._source.callbacks
            callbacks.chosen = [*(callbacks.chosen or ()), *partitions_of(asked)]

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Assign as `assign` does."""
        self.assign(partitions)

    def pause(self, partitions: list[TopicPartition]) -> None:
        """Pause partitions until `resume`, also over a rebalance. Partitions that are not assigned are ignored, as by
        the client."""
        with self._turn():
            self._driven.user.hold(
                each for each in partitions_of(partitions_given(partitions)) if self._offsets.is_assigned(each)
            )

    def resume(self, partitions: list[TopicPartition]) -> None:
        """Resume partitions. A partition that is not assigned (any more) is not paused when it comes back."""
        with self._turn():
            self._driven.user.let(partitions_of(partitions_given(partitions)))

    # ---- the end
    def close(self) -> None:
        """Mark, commit, leave the group. Idempotent.

        The records of the last poll do *not* become done by this: the loop may have ended after its work or in the
        middle of it. A loop that has handled them calls `commit()` or `done()` before, or in its on_revoke, which is
        called first of all; otherwise they run again. If on_revoke raises, its exception is raised when all is closed.
        """
        with self._one_call():
            if not self._closed:
                callbacks = self._source.callbacks
                callbacks.leaving()
                self._closed = True
                self._driven.end_of_loop()
                if callbacks.raised is not None:
                    raise callbacks.raised

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: object, exc_value: object, exc_traceback: object) -> bool | None:
        """Close. With `done_when="next_poll"` a block that ends without an exception has handled all returned
        records."""
        if exc_type is None and not self._closed and self._driven.done_when == "next_poll":
            self.done()
        self.close()
        return None

    # ---- inside
    def _take(self, at_most: int, timeout: float | None) -> list[Message]:
        timeout_s = seconds(timeout, _FOR_EVER_S)
        if not self._joined:
            return self._take_unjoined(Deadline(timeout_s))
        if (told := self._offsets.take_error()) is None:
            records = cast("Sequence[MessageRecord]", self._driven.take(at_most, timeout_s))
            for record, error in self._driven.user.unfit:
                failed = cast("MessageRecord", record)
                failed.failure = failed.failure or error  # a failed deserialisation comes first: it has left no key
            messages = [record.message for record in self._returned(records)]
        else:
            messages = [told]
        while len(messages) < at_most and (told := self._offsets.take_error()) is not None:
            messages.append(told)
        return messages

    def _take_unjoined(self, deadline: Deadline) -> list[Message]:
        """Poll the client before the loop has subscribed: a tenth of a second at a time, since calls of other threads
        wait meanwhile. Not by the client's `consume`, which does not see Ctrl-C."""
        while True:
            message = self._source.client.poll(deadline.left_s(_MOMENT_S))
            callbacks = self._source.callbacks
            callbacks.shield.raise_kept()
            if callbacks.raised is not None:
                error, callbacks.raised = callbacks.raised, None
                raise error
            if message is not None:
                return [message]
            if deadline.passed or self._driven.interrupted():
                return []

    def _returned(self, records: Sequence[MessageRecord]) -> Sequence[MessageRecord]:
        """The records that the loop gets now; the others come with its next call. Raises the exception of a callback of
        the loop, or the failure of the first record, which then counts as returned."""
        callbacks = self._source.callbacks
        error, callbacks.raised = callbacks.raised, None
        returned = next((at for at, record in enumerate(records) if record.failure is not None), len(records))
        if error is not None:
            returned = 0
        elif records and returned == 0:
            error, returned = records[0].failure, 1
        for record in records[returned:]:
            self._driven.again(record.partition, record.offset)
        if error is not None:
            raise error
        return records[:returned]

    def _deserialiser(self, own: LoopConfig) -> Callable[[Message], None] | None:
        if own.deserialisers:
            raise SettingError(
                ", ".join(sorted(own.deserialisers)), "...", "use DeserializingKafkaConsumer, which knows deserialisers"
            )
        return None
