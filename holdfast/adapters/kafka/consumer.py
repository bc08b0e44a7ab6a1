"""KafkaConsumer: way 2, around a loop that exists already. A drop-in for `confluent_kafka.Consumer`.

The methods, their arguments and results are the client's; what differs is said at each. Underneath is the engine of
`Holdfast`, driven by the loop's own calls: `holdfast/plugin/own_loop/driven.py`.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, Self, cast, overload

from holdfast.adapters.kafka.callbacks import partitions_of
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
from holdfast.dedup.none import NoClaims
from holdfast.errors import SettingError
from holdfast.plugin.audit.settings import checked
from holdfast.plugin.check_args import A_STORE, check_parts
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
    """`confluent_kafka.Consumer` for a loop that is to keep its grip.

    Records that are done already are not returned. What moves away is marked and committed before it goes. A loop
    that does not poll within max.poll.interval.ms loses its membership as before: `Holdfast` is for that.

    As with the client, one call runs at a time: another thread's waits for it. `done`, `again` and `processing` are
    the exception, any thread may call them at any time.

    Args:
        conf: as for `confluent_kafka.Consumer`. enable.auto.commit and enable.auto.offset.store say when a record is
            done (see `done_when`); the commits themselves are ours.
        claims: where claims live; None goes without (see `Holdfast`).
        key: what makes two records the same piece of work, for all topics or by topic; see `Holdfast.handler`. A key
            that another member has in hand holds up its partition until that one has ended.
        scope: what a key is unique in; by default the group and the topic.
        done_when: "next_poll": what was returned is done when the loop polls again (or commits). "commit": what the
            loop commits (or stores) is done; what it has not committed of a partition that goes, the next owner
            handles. "explicit": what the loop says by `done` or `processing`; the next owner waits for the rest.
            By default as `conf` has it: "commit" where it turns enable.auto.commit or enable.auto.offset.store off,
            else "next_poll".
        assignment: as for `KafkaSource`; "sticky" asks the broker, so the construction may take a moment.
        static_id: as for `KafkaSource`.
        leave: as for `KafkaSource`.
        settings: see `Settings`; what is about workers and handlers has no meaning here. By default a record without
            its key is protected by its position alone (`missing_key="position"`); with "error" `poll` raises
            KeyMissing at its turn.
        observers: see `holdfast.plugin.ports.Observer`.
        audit: see `Holdfast`. What the loop says is done is told as handled.

    Raises:
        SettingError: names the property, its value and the remedy; it is a KafkaException too.
        KafkaException: as the client; with "sticky" also where the broker gives no answer.
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
        settings = settings or Settings(missing_key="position")
        self._source = MessageSource(
            own.conf,
            assignment=assignment,
            static_id=static_id,
            leave=leave,
            on_commit=own.on_commit,
            ends_told=own.ends_told,
            deserialise=self._deserialiser(own),
        )
        self._source.check_settings(settings)
        self._asking = set()
        self._driven = Driven(
            self._source,
            done_when=own.done_when,
            store=claims if claims is not None else NoClaims(),
            routes=routes_of(key, scope),
            settings=settings.fitted(self._source.max_poll_interval_s),
            observers=observers,
            audit=checked(audit),
        )
        self._health = LoopHealth(self._driven, self._source.max_poll_interval_s)
        self._offsets = LoopOffsets(self._driven, self._source)
        callbacks = self._source.callbacks
        callbacks.facade, callbacks.settled = self, self._offsets.begin
        self.interrupted_by(lambda: False)
        self._stored_only = own.stored_only
        self._joined = self._closed = False
        self._source.build(Deadline(settings.startup_timeout_s))

    def interrupted_by(self, nobody_waits: Callable[[], bool]) -> None:
        """A `poll` that waits returns as soon as that is true: for those who wrap this."""
        callbacks = self._source.callbacks
        self._driven.interrupted = lambda: bool(
            self._offsets.tellable is not None or callbacks.raised or nobody_waits()
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
        """Subscribe as the client does: no broker is waited for. The first call reaches the store, so it may block for
        `Settings.startup_timeout_s`.

        on_assign is called when the partitions are assigned; an `assign` of other offsets in it is a `seek` to them;
        on_revoke before anything goes, so what it commits or calls done counts; on_lost as the client's.

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
        """Unsubscribe as the client does: the next poll revokes what was assigned."""
        with self._turn():
            self._source.unsubscribe()

    # ---- records
    def poll(self, timeout: float | None = -1) -> Message | None:
        """Return the next message, or one that carries an error, or None when the time is over. Seconds; -1 and None
        wait for ever (Ctrl-C is seen).

        Raises:
            HoldfastError: what stopped the engine: the store refuses, the log cannot be read.
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
        """Return as many messages as asked for, or those that have come when the time is over. Raises as `poll`."""
        with self._turn():
            check_count(num_messages)
            return self._take(num_messages, timeout) if num_messages else []

    def done(self, message: Message | None = None) -> None:
        """Note a message as handled; None: all that were returned. Any thread. A message that is not in hand any more
        (its partition was lost, say) is passed over in silence."""
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
        """Commit as the client does, and note what is done: the message and all before it in its partition; what lies
        below the offsets; without either, all that was returned (with enable.auto.offset.store=false: what was stored).

        What is committed is where the partition stands: not further than the first record that is not done (with
        "explicit", of another thread, say), and not further back than what is done: to read something again, `seek`.
        With asynchronous=False, while the store is away, it waits for it, ten seconds at most.

        Raises:
            KafkaException: as the client; _NO_OFFSET: nothing to commit; _ASSIGNMENT_LOST: not ours (any more);
                _TIMED_OUT: the store gives no answer, so that what is done cannot be committed yet.
        """
        with self._turn():
            if message is not None and offsets is not None:
                raise ValueError("message and offsets are mutually exclusive")
            if message is not None:
                check_message(message, "commit")
            if not self._joined:  # of no group: the broker decides, and members take it for somebody's reset
                how: dict[str, Any] = {"asynchronous": asynchronous, "offsets": offsets, "message": message}
                return cast("list[TopicPartition] | None", self._source.client.commit(**how))
            named = [behind(message)] if message is not None else offsets
            if named:
                self._source.callbacks.commits.says(partitions_given(named))
            below = self._offsets.done_below(named)
            if named is None and not self._stored_only and self._driven.done_when != "explicit":
                self._driven.end_all()
            return self._offsets.commit(below, asynchronous=asynchronous, by_offsets=offsets is not None)

    def store_offsets(self, message: Message | None = None, offsets: list[TopicPartition] | None = None) -> None:
        """Note as done the message and all before it, or what lies below the offsets. The consumer commits it by the
        clock, and in any case before its partition goes.

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
        """The positions: behind the last record that was returned."""
        with self._turn():
            return [self._offsets.position(one) for one in partitions_given(partitions)]

    def seek(self, partition: TopicPartition) -> None:
        """Seek as the client does: the loop reads on from there. What was returned before that offset and is not done
        stays undone, and in the loop's hands; what is done from there on is returned again. Only an offset below all
        that is not done is a reset: the group remembers it. It takes effect in polls to come.

        Raises:
            KafkaException: the partition is not ours.
        """
        with self._turn():
            self._offsets.seek(partition_given(partition))

    # ---- the assignment
    def assign(self, partitions: list[TopicPartition]) -> None:
        """Inside of on_assign: which of the partitions to read, and where to begin, as with the client. Elsewhere it is
        refused: what is assigned by hand does not move, and needs no holdfast.

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
        """Pause partitions, also over a rebalance: until `resume`. Those that are not assigned are passed over, as by
        the client."""
        with self._turn():
            self._driven.user.hold(
                each for each in partitions_of(partitions_given(partitions)) if self._offsets.is_assigned(each)
            )

    def resume(self, partitions: list[TopicPartition]) -> None:
        """Resume partitions. One that is not assigned (any more) is not held either when it comes back."""
        with self._turn():
            self._driven.user.let(partitions_of(partitions_given(partitions)))

    # ---- the end
    def close(self) -> None:
        """Mark, commit, leave the group. Idempotent.

        What was returned by the last poll is *not* done by that: whether the loop ended after its work or in the middle
        of it cannot be known from here. A loop that has handled it says `commit()` or `done()` first, or in its
        on_revoke, which is called first of all; else it runs again. Raises what on_revoke raised, when all is closed.
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
        """A block that ends well has handled what was returned, unless it says so itself."""
        if exc_type is None and not self._closed and self._driven.done_when == "next_poll":
            self.done()
        self.close()
        return None

    # ---- inside
    def _take(self, at_most: int, timeout: float | None) -> list[Message]:
        timeout_s = seconds(timeout, _FOR_EVER_S)
        if not self._joined:
            return self._take_unjoined(Deadline(timeout_s))
        if (told := self._offsets.next_told()) is None:
            records = cast("Sequence[MessageRecord]", self._driven.take(at_most, timeout_s))
            for record, error in self._driven.user.unfit:
                failed = cast("MessageRecord", record)
                failed.failure = failed.failure or error  # what could not be deserialised has no key to be judged by
            messages = [record.message for record in self._returned(records)]
        else:
            messages = [told]
        while len(messages) < at_most and (told := self._offsets.next_told()) is not None:
            messages.append(told)
        return messages

    def _take_unjoined(self, deadline: Deadline) -> list[Message]:
        """A moment at a time, since nobody else's call runs while the client waits. Its `consume` sees no Ctrl-C."""
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
        """The records that the loop gets now; the others come with its next call. Raises what the loop's callbacks
        raised; or what is wrong with the first record, which counts as returned by that."""
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
