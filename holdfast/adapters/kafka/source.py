"""KafkaSource: a partitioned source on confluent-kafka. One thread owns the client; its callbacks run inside `poll`."""

from __future__ import annotations

import logging
import uuid
from contextlib import suppress
from itertools import repeat
from typing import TYPE_CHECKING, Any

from holdfast.adapters.kafka import broker_features, faults
from holdfast.adapters.kafka._client import KafkaError, KafkaException, TopicPartition, partition_of, topic_partitions
from holdfast.adapters.kafka.admin import Admin
from holdfast.adapters.kafka.broker_features import NOT_ASKED, BrokerFeatures
from holdfast.adapters.kafka.callbacks import Callbacks
from holdfast.adapters.kafka.commit_mark import CommitMark
from holdfast.adapters.kafka.config import (
    STATIC_ID,
    GroupProtocol,
    asked_static_id,
    check,
    check_drain,
    shorter_drain,
    with_static_id,
)
from holdfast.adapters.kafka.dead_letter import KafkaDeadLetters
from holdfast.adapters.kafka.emission import emit, needs_answer
from holdfast.adapters.kafka.group_session import GroupSession
from holdfast.adapters.kafka.joining import consumer_of, is_member, join, look_for_topics, never_let_in
from holdfast.adapters.kafka.offsets import (
    ENDS,
    LATEST,
    committed_of_each,
    fetched_watermarks,
    offsets_at,
    offsets_by_leader,
)
from holdfast.adapters.kafka.properties import as_int, check_known
from holdfast.adapters.kafka.quirks import leave_static, unowned
from holdfast.adapters.kafka.quirks.forgotten import Brokers, forgotten_error, give_up
from holdfast.adapters.kafka.quirks.header_names import ask, replace_unknown_names
from holdfast.adapters.kafka.quirks.log_ends import LogEnds
from holdfast.adapters.kafka.renewal import Renewal
from holdfast.adapters.kafka.starting_offsets import APP_DEFAULT, StartingOffsets
from holdfast.adapters.kafka.topic_ids import TopicIds
from holdfast.adapters.kafka.transacting import Job, Transacting, names_member
from holdfast.adapters.kafka.transactional_letters import TransactionalLetters
from holdfast.adapters.kafka.transactional_producer import Work
from holdfast.adapters.kafka.transactions import check_transactions, producer_conf
from holdfast.errors import SettingError, SourceError, SourceFatal, SourceUnavailable
from holdfast.plugin.budget import COMMIT_S
from holdfast.plugin.ports import NOTHING, Batch, CommitFate, End
from holdfast.plugin.setting_names import known_arguments
from holdfast.process_name import process_name
from holdfast.records import Partition, Record
from holdfast.timing import SYSTEM_CLOCK, Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from holdfast.adapters.kafka._client import Consumer, Message
    from holdfast.adapters.kafka.config import Assignment, Finding
    from holdfast.adapters.kafka.emission import ClientConfig
    from holdfast.adapters.kafka.transactions import Transactions
    from holdfast.plugin.engine.partition.made import Made
    from holdfast.plugin.observe.source_state import Silence
    from holdfast.plugin.ports import Committed, RebalanceListener
    from holdfast.plugin.settings import Settings
    from holdfast.records import Fence

_log = logging.getLogger("holdfast.kafka")
#: How long a change of the subscription waits to know which of its topics the group has read before.
_LOOK_S = 3.0
#: The timeout of a request that only wakes the client: the shortest possible, since the request is sent in any case.
_WAKE_S = 0.001
#: How long `close` waits for a client whose brokers have all gone, or do not answer: the client goes on trying to leave
#: the group.
_CUT_OFF_S = 0.2


class KafkaSource:
    """Consumes a group's share of topics.

    The client's configuration passes through. Settings that contradict the promise are refused here; settings that
    serve it badly cause a warning (logger "holdfast.kafka").

    Args:
        conf: as for `confluent_kafka.Consumer`.
        assignment: "sticky" asks the broker at the start, and uses the consumer protocol (KIP-848) with the uniform
            assignor if the broker has it, else cooperative-sticky. "keep" leaves the configuration as it is.
        static_id: the name under which this process comes back after a restart (group.instance.id), so that nothing
            moves meanwhile; or a function that returns it, called once, at the start.
        leave: a static member leaves for good at each stop, as other members do. `Holdfast.stop(leave=True)` does so
            once.
        transactions: commit in transactions, in which the outputs of handlers are written too (`Outputs`). Needs
            `claims=None`: the group's offsets alone say what is done.

    Raises:
        SettingError: names the property, its value and the remedy.
    """

    @known_arguments()
    def __init__(
        self,
        conf: Mapping[str, Any],
        *,
        assignment: Assignment | None = None,
        static_id: str | Callable[[], str] | None = None,
        leave: bool = False,
        transactions: Transactions | None = None,
    ) -> None:
        self._static_id, self._leave = static_id if callable(static_id) else None, leave
        named = conf if static_id is None or callable(static_id) else with_static_id(conf, static_id)
        self._checked = check(named, assignment)
        check_known(self._checked.conf)
        if transactions is not None:
            check_transactions(transactions, self._checked)
        self._transactions = transactions
        self._transacting: Transacting | None = None
        #: By when a hand-over waits no longer for transactions.
        self._commit_by = Deadline(0.0)
        self._warned: list[Finding] = []
        self._warn(self._checked.findings)
        self._client: ClientConfig | None = None
        self._consumer: Consumer | None = None
        self._owners: Mapping[Partition, Fence] = {}
        self._topics: list[str] = []
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._admin = admin = Admin(self._checked.conf)
        ids = TopicIds(admin)
        self._mark = CommitMark(self._checked.group, ids, lambda: self._callbacks.listener.store_id)
        self._ends = LogEnds(admin, self._checked.conf)
        self._session = GroupSession(self._checked.group, admin)
        self._callbacks = Callbacks(self._checked.group, self._checked.bootstrap)
        if transactions is not None:
            self._callbacks.handed_over = self._await_transaction
        self._starting_offsets = StartingOffsets(self._checked.group, self._checked.conf, self._begins_by_default, ids)
        self._unowned: unowned.Watch | None = None
        self._number: int | None = None
        #: Whether the client has subscribed: the group may have this member, or get it soon.
        self._subscribed = False
        self._brokers, self._renewal, self._drain_s = (
            Brokers(admin, self._checked.conf),
            Renewal(self._checked.group),
            0.0,
        )

    def __repr__(self) -> str:
        return f"KafkaSource({self._checked!r})"

    # ---- read by the engine before the start
    #: None each: messages have no identity beside their position (an idempotent producer stores nothing twice), and the
    #: broker has no retries of its own.
    identity = retry_topic = retries = unroutable_letters = None
    _begins_by_default, gaps_are_the_logs = APP_DEFAULT, False

    def brings_again(self, topic: str) -> bool:  # noqa: ARG002 - the port's signature
        """Return False: the broker delivers no record again by itself."""
        return False

    @property
    def group(self) -> str:
        """The consumer group's name."""
        return self._checked.group

    @property
    def protocol(self) -> str:
        """One of "eager", "cooperative", "consumer"; "unknown" before `open`."""
        return self._client.protocol.value if self._client else "unknown"

    @property
    def session_timeout_s(self) -> float | None:
        """The session timeout as configured. With the consumer protocol, or if it is not decided yet, the broker's
        value (`GroupSession` asks for it). None = not known."""
        if self._client is not None and self._client.session_timeout_s is not None:
            return self._client.session_timeout_s
        said = self._checked.conf.get("session.timeout.ms")
        if needs_answer(self._checked) and (asked_s := self._session.timeout_s) is not None:
            return asked_s
        return None if said is None else as_int("session.timeout.ms", said) / 1000

    @property
    def max_poll_interval_s(self) -> float:
        """The poll interval as configured, or librdkafka's default."""
        return self._checked.max_poll_ms / 1000

    @property
    def silence(self) -> Silence | None:
        """The silence of brokers that do not answer, some 20 s after the last record at the earliest; None = there is
        none."""
        return self._brokers.silence

    def cut_off(self) -> bool:
        """Whether all brokers have gone. Tries to connect to them."""
        return self._brokers.lost_at(self._callbacks.all_down_at)

    @property
    def in_group(self) -> bool:
        """Whether the group has let this client in."""
        consumer = self._consumer
        if consumer is None or self._client is None:
            return False
        # Under the consumer protocol a member without partitions gets no callback.
        asks = self._client.protocol is GroupProtocol.CONSUMER and not self._callbacks.assigned
        member = is_member(consumer) if asks else None
        return self._callbacks.in_group if member is None else member

    def check_settings(self, settings: Settings) -> None:
        """Compare the app's settings with the client's. Raises SettingError."""
        self._drain_s = settings.fitted(self.max_poll_interval_s).drain_s
        if settings.drain_timeout_s is not None:
            check_drain(self._checked, settings.drain_timeout_s)
        elif (finding := shorter_drain(self._checked, self._drain_s)) is not None:
            self._warn([finding])

    def use_static_id(self, static_id: str) -> None:
        """Take this static id, before `open`. Raises SettingError: the source has another."""
        if self._static_id is not None:
            raise SettingError(
                "static_id", static_id, "the source asks a function for its name: leave one of the two out"
            )
        with_static_id(self._checked.conf, static_id)  # refuses it, if the configuration has another
        self._static_id = lambda: static_id

    def use_process_number(self, number: int) -> None:
        """Set the number of this process among several; its client.id has the number."""
        self._number = number

    @property
    def member_name(self) -> str:
        """The name of this member for brokers and tools: its static id or its client.id."""
        conf = self._checked.conf if self._client is None else self._client.conf
        return str(conf.get(STATIC_ID) or conf.get("client.id") or process_name(self._number))

    @property
    def transactions_each_s(self) -> float | None:
        """Seconds between two transactions; None: commits are plain ones."""
        return None if self._transactions is None else self._transactions.interval_s

    def check_claims(self, claims: object) -> None:
        """Raises SettingError: a store of claims with transactions."""
        if self._transactions is not None and claims is not None:
            raise SettingError(
                "claims",
                type(claims).__name__,
                "use claims=None: with transactions the group's offsets say what is done, and a store that says more "
                "would let the next owner skip a record whose outputs were never committed",
            )

    def dead_letters(self) -> KafkaDeadLetters:
        """Make a sender of dead letters to the same brokers, with the same credentials."""
        kind = KafkaDeadLetters if self._transactions is None else TransactionalLetters
        return kind(self._checked.conf)

    def reads_all_of(self, topics: Collection[str]) -> None:
        """Read retry topics from the beginning even with "latest": this group wrote them."""
        self._starting_offsets.read_from_first = frozenset(topics)

    # ---- the start and the end
    def reach(self, topics: Collection[str], deadline: Deadline) -> None:
        """Reach the broker and look for the topics; join nothing yet. Raises SourceError: UnknownTopic names all
        missing topics."""
        self._topics = list(topics)
        self._admin.reach(deadline)  # the admin client first: it does not log each failed connection
        self._make_client(deadline)
        look_for_topics(self._client_or_raise(), self._topics, self._callbacks, self._checked.bootstrap, deadline)
        self._callbacks.connected = True

    def open(
        self,
        topics: Collection[str],
        listener: RebalanceListener,
        owners: Mapping[Partition, Fence],
        deadline: Deadline,
    ) -> None:
        """Reach the broker, look for the topics, join. Raises SourceError within the deadline."""
        self._callbacks.listener, self._owners = listener, owners
        if self._consumer is None:
            self.reach(topics, deadline)
        self._topics = list(topics)
        if self._transactions is not None:
            self._transacting = self._begin_transactions(self._transactions, deadline)
        self._starting_offsets.look(self._client_or_raise(), self._topics, deadline)
        self._join()

    def _begin_transactions(self, transactions: Transactions, deadline: Deadline) -> Transacting:
        """Make the producer before the group is joined: who cannot begin a transaction can commit nothing. Raises
        SourceError."""
        static_id = None if self._client is None else self._client.static_id
        name = f"{self.group}:{static_id or uuid.uuid4().hex}"
        conf = producer_conf(transactions, self._checked.conf, name)
        transacting = Transacting(conf, self._checked.conf)
        transacting.open(deadline)
        return transacting

    def _make_client(self, deadline: Deadline) -> None:
        """Make the client. The broker is asked for its features only if the configuration depends on them. Raises
        SourceError."""
        asked = broker_features.ask(self._checked.conf, deadline) if needs_answer(self._checked) else NOT_ASKED
        self._consumer = self._build(self._use(asked))

    def _use(self, asked: BrokerFeatures) -> ClientConfig:
        if self._static_id is not None:
            static_id, self._static_id = asked_static_id(self._static_id), None
            self._checked = check(with_static_id(self._checked.conf, static_id), self._checked.assignment)
        self._client = emit(self._checked, asked)
        self._warn(self._client.findings)
        for reason in self._client.reasons:
            _log.debug("%s", reason)
        self._callbacks.incremental = self._client.protocol is not GroupProtocol.EAGER
        theirs = self._client.error_cb
        self._callbacks.error_cb = theirs and self._callbacks.applications("error_cb", theirs)
        if self._client.static_id is not None:
            consumer_protocol = self._client.protocol is GroupProtocol.CONSUMER
            self._renewal.of_static_member(self._client.static_id, waits=consumer_protocol)
            why = leave_static.why_unsendable(self._checked.conf) if consumer_protocol else None
            if self._leave and why is not None:
                _log.warning("leave=True: %s, so others wait for this member's session when it stops", why)
        return self._client

    def _warn(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            if finding not in self._warned:
                self._warned.append(finding)
                _log.warning("%s", finding)

    def subscribe(self, topics: Collection[str]) -> None:
        """Subscribe to other topics from now on; the rebalance follows in later polls."""
        self._topics = list(topics)
        if self._consumer is not None:
            with suppress(SourceError):  # asked again when partitions of the topics are assigned
                self._starting_offsets.look(self._consumer, self._topics, Deadline(_LOOK_S))
        self._join()

    def close(self, deadline: Deadline, *, leave: bool = False) -> None:
        """Give the membership up. The caller has committed and let go before: a commit inside it can hang the process.

        Measured on Kafka 4.3: with an unpolled rebalance pending, the client's close() with a synchronous commit in
        on_revoke hung in 5 of 10 tries; after polls and commits, with nothing left to commit, in none of 7. The
        client's close() also waits for the answer to each commit, as long as requests may take (socket.timeout.ms, 60
        s). If answers are outstanding, this method waits no longer than its deadline; if the brokers do not answer at
        all (frozen, or the network is cut), 0.2 s at most: the commits were sent, and count if the brokers wake up
        within the session.
        """
        consumer, self._consumer = self._consumer, None
        self._unowned = None
        self._ends.close()
        self._admin.close()
        if self._transacting is not None:
            self._transacting.close(deadline)
        if consumer is None:
            return
        if self.cut_off():
            self._callbacks.clients += 1
            give_up(consumer, Deadline(min(deadline.left_s(), _CUT_OFF_S)))
        elif (hangs := self._brokers.may_hang(consumer)) or self._callbacks.commits_under_way:
            self._callbacks.clients += 1  # it closes in another thread; callbacks from there are dropped
            give_up(consumer, Deadline(min(deadline.left_s(), _CUT_OFF_S)) if hangs else deadline)
        elif self._client is not None and self._client.static_id is not None and self._subscribed:
            leave_static.close(consumer, self._client, deadline, leave=leave or self._leave)
        else:
            consumer.close()
        self._callbacks.shield.raise_kept()

    # ---- polling
    def poll(self, max_records: int, timeout_s: float) -> Batch:
        """Return records; handle rebalances. Raises SourceError: an error that no client can cure, or one from a
        callback. Also raises what a signal's handler has raised in a callback: the records of that poll are lost then,
        and the caller has to seek back."""
        if self._transacting is not None:
            self._tell_transactions(self._transacting)
        # Raise before anything is taken from the client, which delivers nothing twice.
        if (trouble := self._callbacks.take_trouble()) is not None:
            raise trouble
        consumer = self._consumer
        if consumer is None:
            self._rebuild(timeout_s)
            return NOTHING
        if self._brokers.forgotten(consumer):
            self._finish(forgotten_error(self.group, self._renewal.ended()))
            give_up(consumer)
            return NOTHING
        if self._unowned is not None:
            self._unowned.step(consumer, self._topics)
        assignments = self._callbacks.assignments
        # poll() returns at the first message, consume() only when it is full or the time is over.
        first = consumer.poll(timeout_s) if timeout_s > 0 or max_records == 1 else None
        # Sort it before consume(), in which its partition may go and come back: it belongs to the current ownership.
        batch = self._sort([first], Batch([], [])) if first is not None else Batch([], [])
        # An error's consequence, such as the loss of all partitions, may follow it: leave that to the next poll.
        more = max_records > 1 and (timeout_s <= 0 if first is None else first.error() is None)
        # After an assignment return first: the engine then asks for fewer records than before.
        same = self._callbacks.assignments == assignments
        if more and same and self._consumer is consumer and self._callbacks.trouble is None:
            batch = self._sort(consumer.consume(max_records - (first is not None), 0), batch)
        self._callbacks.shield.raise_kept()
        if batch.records or batch.ends:
            self._brokers.heard()
        self._callbacks.tell_commits()
        if self._callbacks.assignments != assignments:
            self._renewal.assigned()
        return batch

    def _sort(self, messages: list[Message], batch: Batch) -> Batch:
        """Add messages to a batch: records with their fence, and ends of partitions; errors go to `_failed`. Empties
        the list of messages."""
        records, ends = list(batch.records), list(batch.ends)
        owners, known, new = self._owners, self._partitions, tuple.__new__
        at, partition, fence = ("", -1), Partition("", -1), None
        # Each message is freed as its record is made. If all of both existed at once, Python's cyclic collector would
        # run in each poll: it counts allocations minus deallocations.
        messages.reverse()
        take: Callable[[int], Any] = messages.pop
        # Records and ends of partitions have a topic, a number and an offset; errors of a client may not.
        for message in map(take, repeat(-1, len(messages))):
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's name
                if self._failed(error, f"consuming {message.topic() or self._topics}"):
                    continue
                # The client may skip what it cannot read, so records after it are dropped. The next poll raises the
                # error, and the app stops with the watermark before the hole.
                break
            if (where := (message.topic(), message.partition())) != at:  # messages of a partition come together
                at = where
                partition = known.setdefault(where, Partition(*where))
                fence = owners.get(partition)
            if error is not None:
                ends.append(End(partition, message.offset()))
            elif fence is not None:
                # A call of a Python function costs as much as the rest of this block, so there is none here.
                try:
                    headers = ask(message) or ()
                except SystemError:
                    headers = replace_unknown_names(message)
                what, sent_ms = message.value(), message.timestamp()[1]
                fields = (partition, message.offset(), message.key(), what, headers, sent_ms, fence)
                records.append(new(Record, fields))
        return Batch(records, ends)

    def _failed(self, error: KafkaError, what: str) -> bool:
        """Handle an error event: the client goes on by itself (returns True), a new client is made, or the next poll
        raises it."""
        cure = faults.cure_of(error)
        if cure is faults.Cure.CLIENT:
            self._callbacks.log_passing(error)
            return True
        if cure is faults.Cure.PERSON and self._callbacks.passes(error):
            self._callbacks.met(error, what)
            if not error.fatal():
                return True
            cure = faults.Cure.REBUILD
        if cure is faults.Cure.REBUILD:
            finished = self._finish(self._renewal.ended_by(error))
            if finished is not None:
                finished.close()
            sticky, client = self._checked.assignment == "sticky", self._client
            if sticky and client is not None and never_let_in(client, self._callbacks):
                _log.warning("the brokers offer the consumer protocol but refuse it: joining with the classic protocol")
                self._use(BrokerFeatures(consumer_protocol=False, why=f"the brokers refused the join ({error})"))
        else:
            self._callbacks.met(error, what)
        return False

    def _finish(self, said: SourceError | None) -> Consumer | None:
        """Take a finished client away: its partitions are lost, and the next poll raises why. The caller closes it.

        Args:
            said: the error to raise; None = none.
        """
        self._callbacks.trouble = said
        finished, self._consumer = self._consumer, None
        self._callbacks.given_up()
        return finished

    def _rebuild(self, timeout_s: float) -> None:
        """Make the next client, once the wait for it is over."""
        wait_s = self._renewal.left_s
        if wait_s > 0 or self._client is None or self._renewal.final:
            SYSTEM_CLOCK.sleep(min(wait_s, timeout_s))
            return
        try:
            self._consumer = self._build(self._client)
        except SourceError as error:  # it worked before: perhaps a file of its configuration is missing for a moment
            raise SourceFatal(f"{error}; tried again in {self._renewal.ended():.1f} s") from error
        self._join()

    def _build(self, client: ClientConfig) -> Consumer:
        self._brokers = Brokers(self._admin, client.conf)
        self._unowned = unowned.watch(client, self._callbacks, self._admin, self._drain_s)
        begins = self._starting_offsets.chosen
        return consumer_of(client, self._callbacks, begins_by_itself=begins, name=process_name(self._number))

    def _join(self) -> None:
        if self._consumer is not None:
            self._subscribed = True
            join(self._consumer, self._topics, self._callbacks)

    # ---- positions
    def position_names(
        self, partitions: Sequence[Partition], deadline: Deadline
    ) -> Mapping[Partition, str | SourceError]:
        """Names of positions: group, topic, topic id, number. A topic that was deleted and made again has another
        id."""
        return self._mark.position_names(partitions, deadline)

    def committed(
        self, partitions: Sequence[Partition], deadline: Deadline
    ) -> Mapping[Partition, Committed | SourceError | None]:
        """The offsets that the group has committed. An error is never returned as None ("nothing"). While a transaction
        is under way it is waited for."""
        if self._transacting is not None:
            if not self._transacting.wait(deadline):
                raise SourceUnavailable("the group's offsets are not certain: a transaction is under way")
            self._tell_transactions(self._transacting)
        replies = committed_of_each(self._client_or_raise(), partitions, deadline, "reading the committed offsets")
        found = {partition_of(each): error or self._mark.read(each) for each, error in replies}
        self._mark.log_decisions()
        return found

    def first_offsets(
        self, partitions: Sequence[Partition], deadline: Deadline
    ) -> Mapping[Partition, int | SourceError]:
        """The offsets at which the group begins in partitions without a committed one; see `StartingOffsets`. Asked
        once a partition: afterwards the group's own commits count."""
        self._starting_offsets.look(self._client_or_raise(), self._topics, deadline)
        found: dict[Partition, int | SourceError] = {}
        for when, some in self._starting_offsets.of(partitions, self._mark.ids).items():
            found |= offsets_by_leader(self._client_or_raise(), self._admin, some, when, deadline)
        return found

    def last_offsets(self, partitions: Sequence[Partition], deadline: Deadline) -> Mapping[Partition, int]:
        """The ends of the logs; with isolation.level=read_committed (the default) the last stable offsets."""
        return offsets_at(self._client_or_raise(), partitions, LATEST, deadline, ENDS)

    def look_at_ends(self, partitions: Sequence[Partition]) -> Mapping[Partition, int] | None:
        """The ends of the logs, as in `last_offsets`, without waiting. None = there is no answer yet."""
        return self._ends.look(partitions)

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Begin to commit. Never blocks: inside on_revoke librdkafka itself holds the partitions until the broker has
        answered, or its request has timed out, and a synchronous commit has no bound at all (95 s were seen)."""
        said = self._mark.marked(offsets)
        if self._transactions is None:
            self._commit(said, offsets)
        else:
            self._transact(said, offsets)

    def set_back(self, partition: Partition, offset: int) -> None:
        """Commit it without a mark; as `commit` otherwise."""
        self._commit(topic_partitions([partition], {partition: offset}), {})

    def _commit(self, said: list[TopicPartition], awaited: Mapping[Partition, int]) -> None:
        """Send a commit. Args: awaited: the offsets of which the engine is told what became of them."""
        try:
            self._client_or_raise().commit(offsets=said, asynchronous=True)
            self._callbacks.commits_under_way += 1
        except KafkaException as error:
            self._callbacks.not_sent(error.args[0], awaited)

    # ---- transactions
    def _transact(self, said: list[TopicPartition], offsets: Mapping[Partition, int]) -> None:
        """Begin a transaction with these offsets and what was made of the records below. Where partitions go, it waits
        for the one that is under way."""
        transacting = self._transacting
        if transacting is not None and self._callbacks.revoking:
            self._commit_by = Deadline(COMMIT_S)
            self._await_transaction()
        # In one step with the offsets: with fresher metadata the broker would take old offsets.
        member = self._client_or_raise().consumer_group_metadata()
        if transacting is None or not transacting.may_begin or not names_member(member):
            self._callbacks.note_fates(offsets, dict.fromkeys(offsets, CommitFate.AGAIN))
            return
        owners: Mapping[Partition, Any] = self._owners
        made: dict[Partition, Made] = {each: owners[each].made for each in offsets if each in owners}
        outputs = [output for each, mine in made.items() for output in mine.below(offsets[each])]
        transacting.begin(Job(Work(outputs, said, member), offsets, made))

    def _await_transaction(self) -> None:
        """Wait for the transaction that is under way, for as long as a hand-over has for its commit."""
        if self._transacting is not None:
            self._transacting.wait(self._commit_by)
            self._tell_transactions(self._transacting)

    def _tell_transactions(self, transacting: Transacting) -> None:
        """Note what became of the last transaction."""
        if (told := transacting.take_told()) is not None:
            for partition, made in told.job.made.items():
                if told.fates[partition] is CommitFate.DONE:
                    made.forget(told.job.offsets[partition])
            self._callbacks.note_fates(told.job.offsets, told.fates)
        self._callbacks.trouble = self._callbacks.trouble or transacting.take_trouble()

    def end_offsets(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        """The ends of the logs as the client has seen them in its fetches."""
        seen = {} if self._consumer is None else fetched_watermarks(self._consumer, partitions)
        return {partition: high for partition, (_, high) in seen.items() if high >= 0}

    def start_offsets(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        """The beginnings of the logs: each answer to a fetch says where its log begins (Kafka 1.0 on)."""
        seen = {} if self._consumer is None else fetched_watermarks(self._consumer, partitions)
        return {partition: low for partition, (low, _) in seen.items() if low >= 0}

    def seek(self, partition: Partition, offset: int) -> None:
        """Read on from this offset. Raises SourceUnavailable: the fetcher has not started yet; ask again."""
        try:
            self._client_or_raise().seek(TopicPartition(partition.topic, partition.number, offset))
        except KafkaException as error:
            raise SourceUnavailable(f"{partition}: cannot seek yet ({error.args[0].str()})") from error

    def pause(self, partitions: Collection[Partition]) -> None:
        """Pause partitions. Records fetched ahead of them are thrown away."""
        self._try(lambda consumer: consumer.pause(topic_partitions(partitions)))

    def resume(self, partitions: Collection[Partition]) -> None:
        """Fetch again.

        Neither a resume nor a seek wakes librdkafka's thread for a broker from which it fetches nothing. That thread
        looks by itself once a second (2.16), and the first record came as late. A request wakes it; its answer is not
        awaited.
        """
        self._try(lambda consumer: consumer.resume(topic_partitions(partitions)))
        asked = topic_partitions(partitions, dict.fromkeys(partitions, LATEST))
        with suppress(KafkaException):
            self._client_or_raise().offsets_for_times(asked, timeout=_WAKE_S)

    def _try(self, call: Any) -> None:  # noqa: ANN401 - a call of the binding
        try:
            call(self._client_or_raise())
        except KafkaException as error:
            raise SourceUnavailable(str(error.args[0])) from error

    def _client_or_raise(self) -> Consumer:
        if self._consumer is None:
            raise SourceUnavailable("there is no client at the moment: it is being rebuilt")
        return self._consumer
