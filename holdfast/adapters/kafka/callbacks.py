"""librdkafka's callbacks. They run inside of `poll` or `close`, in the thread that called these.

A callback may not raise: an exception that leaves it loses the messages of the poll around it. The next poll raises
errors instead; an exception of a signal's handler is raised at the end of the same poll (see `shielding`).
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any

from holdfast.adapters.kafka import faults
from holdfast.adapters.kafka._client import KafkaError, KafkaException, partition_of, partitions_of, topic_partitions
from holdfast.adapters.kafka.commit_mark import is_marked
from holdfast.adapters.kafka.properties import DEFAULT_PORT
from holdfast.adapters.kafka.quirks.shielding import NoLog, Shield
from holdfast.errors import SourceError, SourceFatal, SourceUnavailable
from holdfast.plugin.folding import EVERY_S, Folding
from holdfast.plugin.listening import refusal, unreached
from holdfast.plugin.ports import CommitFate, Start
from holdfast.plugin.retrying.failures import Failures
from holdfast.timing import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.adapters.kafka._client import Consumer, TopicPartition
    from holdfast.plugin.ports import RebalanceListener
    from holdfast.records import Partition

_log = logging.getLogger("holdfast.kafka")
_client_log = logging.getLogger("holdfast.kafka.client")

#: How often lasting trouble is reported: the client meets it at each attempt to connect.
_TELL_S = 30.0
#: The start of the log (rdkafka.h, RD_KAFKA_OFFSET_BEGINNING).
_BEGINNING = -2

#: The binding calls a logger with a level, a format, and three strings for it.
_LOG_ARGUMENTS = 5

_FATES = {
    faults.CommitFate.DONE: CommitFate.DONE,
    faults.CommitFate.AGAIN: CommitFate.AGAIN,
    faults.CommitFate.DISCARD: CommitFate.DISCARD,
    faults.CommitFate.NOTHING: CommitFate.DISCARD,
    faults.CommitFate.FATAL: CommitFate.DISCARD,
}


class ClientLog:
    """Logs librdkafka's own lines at DEBUG, whatever their level: it writes one for each failed attempt to connect, ten
    a second. Important ones come as error events too, and holdfast reports these. Any thread."""

    def __init__(self) -> None:
        self._folding = Folding(SYSTEM_CLOCK)

    def log(self, _: int, text: str, *args: object) -> None:
        """Log a line, as a logging.Logger does. A line that repeats is logged only from time to time."""
        if not _client_log.isEnabledFor(logging.DEBUG):
            return
        if (said := self._folding.says(text % args if args else text)) is not None:
            _client_log.debug("%s", said)


class ShieldedLog:
    """Passes the client's lines on to a logger."""

    def __init__(self, logger: Any, shield: Shield) -> None:  # noqa: ANN401 - whatever has a method `log`
        self.log = shield.around(logger.log, _LOG_ARGUMENTS)


def client_log(conf: Mapping[str, object], shield: Shield) -> NoLog | ShieldedLog:
    """Make the logger of a client: the one in the configuration, or ours."""
    if (theirs := conf.get("logger")) is not None:
        return ShieldedLog(theirs, shield)
    return ShieldedLog(ClientLog(), shield) if _client_log.isEnabledFor(logging.DEBUG) else NoLog()


def _nothing() -> None:
    """Do nothing."""


class Callbacks:
    """The callbacks of one source, over all the clients that it makes."""

    def __init__(self, group: str, brokers: str) -> None:
        self._group, self._brokers = group, brokers
        self.listener: RebalanceListener
        #: Whether partitions come and go one by one (cooperative, consumer) or all at once (eager).
        self.incremental = False
        #: The application's own error_cb, by `applications`.
        self.error_cb: Callable[[KafkaError], object] | None = None
        #: Keeps exceptions that signals' handlers raise in callbacks.
        self.shield = Shield()
        self.assigned: set[Partition] = set()
        #: Rises with each client that the source makes or gives up: callbacks of older clients are dropped.
        self.clients = 0
        #: How often partitions were assigned; 0 = no client of this source has been let into the group yet.
        self.assignments = 0
        #: Whether the group has assigned this client its share, which may be empty.
        self.in_group = False
        #: Brokers have accepted the credentials. `assignments` tells whether these allow the group, too.
        self.connected = False
        #: How many commits have no answer yet.
        self.commits_under_way = 0
        #: Called when partitions were handed over, before the client lets them go.
        self.handed_over: Callable[[], None] = _nothing
        #: Whether the client waits for us to hand partitions over.
        self.revoking = False
        #: The error that the next poll raises.
        self.trouble: SourceError | None = None
        self._folding = Folding(SYSTEM_CLOCK)
        #: When the client last had no connection to any broker.
        self.all_down_at = -math.inf
        #: Code and call of a lasting error -> when it was last reported.
        self._told_at: dict[tuple[int, str], float] = {}
        self._fates: list[tuple[dict[Partition, int], dict[Partition, CommitFate]]] = []

    def of_this_client(self, call: Callable[..., object], arguments: int) -> Callable[..., Any]:
        """Wrap a callback of the current client: it does nothing once the source has another client, since a client
        that was given up may go on calling.

        Args:
            call: the callback.
            arguments: how many it gets.
        """
        number = self.clients

        def unless_given_up(*args: object) -> None:
            if self.clients == number:
                call(*args)

        return self.shield.around(unless_given_up, arguments)

    def applications(self, name: str, call: Callable[..., object]) -> Callable[..., object]:
        """Wrap a callback of the application's configuration: its exceptions are logged, since no error may leave a
        client's callback."""
        failures = Failures()

        def without_raising(*args: object) -> None:
            try:
                call(*args)
            except Exception as error:  # noqa: BLE001 - the application's code
                failures.failed(name, "a call of the client, which goes on,", error)

        return without_raising

    def given_up(self) -> None:
        """Report the client's partitions as lost; its callbacks are dropped from now on."""
        self.clients += 1
        self.commits_under_way = 0
        self.in_group = False
        self.listener.lost(sorted(self.assigned))
        self.assigned.clear()

    # ---- the group
    def on_assign(self, consumer: Consumer, came: list[TopicPartition]) -> None:
        """Ask the engine for the offset at which each partition begins; partitions that it holds back are assigned
        paused."""
        partitions = partitions_of(came)
        self.assigned.update(partitions)
        self.assignments += 1
        self.in_group = True
        starts: Mapping[Partition, Start] = dict.fromkeys(partitions, Start(None, hold=True))
        try:
            starts = self.listener.assigned(partitions)
        except BaseException:
            self.listener.torn(partitions, ())
            raise
        finally:  # also if a signal's handler raises above: otherwise the client would begin by auto.offset.reset
            self._assign(consumer, partitions, starts)

    def _assign(self, consumer: Consumer, partitions: list[Partition], starts: Mapping[Partition, Start]) -> None:
        # Offsets go into the assign call: a seek right after it races with the fetcher's start. If an offset is not
        # known yet, assign the log's start: without it the client asks the coordinator for the committed offset, and if
        # that answer comes after our seek, the fetcher is stranded (librdkafka #5591).
        offsets = {one: _BEGINNING if start.offset is None else start.offset for one, start in starts.items()}
        held = [one for one in partitions if starts[one].hold]
        try:
            if self.incremental:
                consumer.incremental_assign(topic_partitions(partitions, offsets))
            else:
                consumer.assign(topic_partitions(partitions, offsets))
            consumer.pause(topic_partitions(held))
            # A partition that was paused when it was revoked comes back paused.
            consumer.resume(topic_partitions(one for one in partitions if not starts[one].hold))
        except KafkaException as error:
            self._out_of_step(error, "taking partitions over")

    def on_revoke(self, consumer: Consumer, gone: list[TopicPartition]) -> None:
        """Have the engine drain, commit and let go; then unassign at the client."""
        self._let_go(consumer, gone, self._revoked)

    def _revoked(self, partitions: Sequence[Partition]) -> None:
        self.revoking = True
        try:
            self.listener.revoked(partitions)
            self.handed_over()
        finally:
            self.revoking = False

    def on_lost(self, consumer: Consumer, gone: list[TopicPartition]) -> None:
        """Note partitions that other members own already: the group goes on without this one."""
        self.in_group = False
        self._let_go(consumer, gone, self.listener.lost)

    def _let_go(
        self, consumer: Consumer, gone: list[TopicPartition], tell: Callable[[Sequence[Partition]], None]
    ) -> None:
        try:
            tell(partitions_of(gone))
        except BaseException:
            self.listener.torn((), partitions_of(gone))
            raise
        finally:
            self._unassign(consumer, gone)

    def _unassign(self, consumer: Consumer, gone: list[TopicPartition]) -> None:
        self.assigned.difference_update(partitions_of(gone))
        try:
            if self.incremental:
                consumer.incremental_unassign(gone)
            else:
                consumer.unassign()
        except KafkaException as error:
            self._out_of_step(error, "letting partitions go")

    def _out_of_step(self, error: KafkaException, what: str) -> None:
        """Client and engine may now disagree about the assignment: stop the app, unless the client is finished
        anyway."""
        found = faults.as_source_error(error.args[0], what)
        if found.retriable and not isinstance(found, SourceFatal):
            found = SourceError(f"{found}; which partitions the client has now is unknown: restart this process")
        self.trouble = self.trouble or found

    # ---- commits
    def on_commit(self, error: KafkaError | None, offsets: list[TopicPartition]) -> None:
        """Keep the outcome until the next poll: the engine gets no outcomes in the middle of a rebalance. A commit
        without our mark is a move back (`KafkaSource.set_back`), whose outcome nobody awaits."""
        self.commits_under_way -= 1
        fates = {partition_of(one): self._fate(one.error or error) for one in offsets}
        if sent := {partition_of(one): one.offset for one in offsets if is_marked(one)}:
            self._fates.append((sent, {partition: fates[partition] for partition in sent}))

    def not_sent(self, error: KafkaError, offsets: Mapping[Partition, int]) -> None:
        """Note a commit that the client has refused to send."""
        self._fates.append((dict(offsets), dict.fromkeys(offsets, self._fate(error))))

    def note_fates(self, sent: Mapping[Partition, int], fates: Mapping[Partition, CommitFate]) -> None:
        """Keep the outcomes of commits that the client was not asked to make."""
        self._fates.append((dict(sent), dict(fates)))

    def tell_commits(self) -> None:
        """Pass the outcomes of commits to the engine."""
        while self._fates:
            self.listener.committed(*self._fates[0])  # removed afterwards: twice does no harm, not at all would
            self._fates.pop(0)

    def _fate(self, error: KafkaError | None) -> CommitFate:
        fate = faults.commit_fate(error)
        if error is not None:
            _log.info("a commit was refused: %s", error)
            if fate is faults.CommitFate.FATAL or faults.is_about_rights(error):
                self.met(error, f"committing for {self._group}")
        return _FATES[fate]

    # ---- errors
    def on_error(self, error: KafkaError) -> None:
        """Handle an error of the client as a whole, such as refused credentials."""
        if faults.cure_of(error) is faults.Cure.PERSON:
            self.met(error, f"talking to Kafka at {self._brokers}")
        else:
            self.log_passing(error)
        if self.error_cb is not None:
            self.error_cb(error)

    def log_passing(self, error: KafkaError) -> None:
        """Log, from time to time, an error that the client gets over by itself: it repeats while brokers are down. If
        all brokers are down, the next poll raises that, and single ones are not logged meanwhile."""
        now, where = SYSTEM_CLOCK.now(), f"Kafka at {self._brokers}"
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 - librdkafka's name
            if now - self.all_down_at > 2 * EVERY_S and self._folding.says(error.name()) is not None:
                _log.info("%s: %s (%s)", where, error.str(), error.name())
            return
        self.all_down_at = now
        if self._folding.says(error.name()) is not None:
            why = refusal(self._brokers, DEFAULT_PORT)
            found = faults.as_source_error(error, f"talking to {where}") if why is None else unreached(why)
            self.trouble = self.trouble or found

    def take_trouble(self) -> SourceError | None:
        """Return the error to raise, and forget it."""
        trouble, self.trouble = self.trouble, None
        return trouble

    def passes(self, error: KafkaError) -> bool:
        """Whether the app waits until a person has cured this error: it is about one topic, or about rights that this
        process had before. An app that has worked for days does not stop because a password is changed, or because a
        broker has not loaded its users yet."""
        if faults.is_about_a_topic(error):
            return True
        let_in = self.assignments > 0 or (self.connected and faults.is_about_credentials(error))
        return let_in and faults.is_about_rights(error)

    def met(self, error: KafkaError, what: str) -> None:
        """Note an error that only a person cures. The next poll raises it: it stops the app, or, if the app waits, it
        is reported from time to time while it lasts."""
        if faults.cure_of(error) is not faults.Cure.PERSON:
            return
        found = faults.as_source_error(error, what)
        if not self.passes(error):
            if self.trouble is None or self.trouble.retriable:
                self.trouble = found
            return
        now = SYSTEM_CLOCK.now()
        if now - self._told_at.get((error.code(), what), -_TELL_S) >= _TELL_S:
            self._told_at[error.code(), what] = now
            self.trouble = self.trouble or SourceUnavailable(f"{found}. Until then everything else goes on")
