"""One question to the cluster by an admin client, answered or raised as a typed error, in bounded time."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from holdfast.adapters.kafka._client import AdminClient, KafkaError, KafkaException
from holdfast.adapters.kafka.faults import Cure, as_source_error, cure_of
from holdfast.adapters.kafka.properties import DEFAULT_PORT, addresses, for_helpers
from holdfast.adapters.kafka.quirks.shielding import NoLog
from holdfast.errors import SettingError, SourceError, SourceUnavailable
from holdfast.plugin.listening import refusal, unreached
from holdfast.records import Partition
from holdfast.timing import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from concurrent.futures import Future

    from holdfast.timing import Deadline

_log = logging.getLogger("holdfast.kafka")
# The client's own lines ("Connect to ... failed") repeat what our errors say; a user's own logger is left in place.
_SILENT = NoLog()

# Who has so much time waits for a start, and wants to know for what.
_TOLD_S = 5.0
# How long to wait for an answer before looking whether the client has met an error that no waiting cures.
_LOOK_S = 0.05
# The longest that a call blocks which no signal interrupts, and which can be made again.
CALL_S = 2.0
# The least that a call gets: with 0 it would be over before it was sent.
_LEAST_S = 0.1
#: And the most: a client refuses more for a request, and cannot count what has no end.
MOST_S = 3_600.0
#: Exists wherever groups do, and no request for it creates anything. Metadata of one topic, instead of all of them.
SOME_TOPIC = "__consumer_offsets"
#: So long a client is waited for in vain, in one question or in several, before another one takes its place: each has
#: to have the time to connect.
_LIVES_S = 1.0
# What a question fails with that no broker has answered.
_NO_ANSWER = frozenset({KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN})  # noqa: SLF001 - public names of the binding
# How librdkafka's own brokers for tests call their cluster. It names a controller that is none of them, so that no
# admin request of one broker is ever answered there.
_MOCK = "mockCluster"


def request_s(deadline: Deadline, share: float = 1.0, at_most: float | None = None) -> float:
    """The timeout of one call of a client: what is left, or a share of it."""
    return min(max(deadline.left_s(at_most) * share, _LEAST_S), MOST_S)


class Admin:
    """An admin client with the consumer's credentials. One thread at a time.

    Raises SettingError where librdkafka refuses the configuration.
    """

    def __init__(self, conf: Mapping[str, object]) -> None:
        self._where = addresses(conf)
        self._errors: list[KafkaError] = []
        # AdminClient knows error_cb, and serves it in poll().
        own = {"error_cb": self._errors.append, "allow.auto.create.topics": False}
        self._conf: dict[str, Any] = {"logger": _SILENT, **for_helpers(conf), **own}
        self._client, self._made_at = self._made(), SYSTEM_CLOCK.now()
        self._doubted = False
        #: When the question now has begun, and how long the client was waited for in vain since its last answer.
        self._asked_at, self._in_vain_s = self._made_at, 0.0

    def _made(self) -> AdminClient:
        try:
            return AdminClient(self._conf)
        except KafkaException as error:
            raise refused(error) from error

    @property
    def client(self) -> AdminClient:
        """To ask by. One that had no answer may have forgotten its brokers (see `forgotten`): another takes its place,
        and what was asked of it stays without an answer."""
        if self._doubted and SYSTEM_CLOCK.now() - self._made_at > _LIVES_S:
            with suppress(SettingError):  # a file of its configuration may be missing for a moment
                self._client, self._made_at = self._made(), SYSTEM_CLOCK.now()
                self._in_vain_s = 0.0
        self._doubted = False
        return self._client

    def doubt(self, error: KafkaError) -> None:
        """Note what a question failed with: without an answer the client may have no brokers any more."""
        self._doubted = self._doubted or error.code() in _NO_ANSWER

    def reach(self, deadline: Deadline) -> str:
        """Reach one broker and log in there; returns the cluster's id, "" where it has none. Raises SourceError."""
        try:
            return self._reach(deadline)
        except SourceUnavailable:
            if (why := refusal(self._where, DEFAULT_PORT)) is None:
                raise
            raise unreached(why) from None

    def _reach(self, deadline: Deadline) -> str:
        self._forget()
        what, slice_s = f"connecting to {self._where}", 0.2
        wait = Wait(what, deadline, self._where)
        while True:
            try:
                cluster = self.client.list_topics(SOME_TOPIC, timeout=deadline.left_s(at_most=slice_s))
            except KafkaException as error:
                if cure_of(error.args[0]) is not Cure.CLIENT:
                    raise as_source_error(error.args[0], what) from error
                self._look(deadline, what)
                wait.goes_on()
                # Each call asks anew, so one that is shorter than the way to the broker and back would never succeed.
                slice_s = min(2 * slice_s, CALL_S)
            else:
                return cast("str | None", cluster.cluster_id) or ""

    def is_mock(self, deadline: Deadline) -> bool:
        """Whether these are librdkafka's own brokers for tests. Raises SourceError."""
        return of_mocks(self.reach(deadline))

    def leaders(self, topics: Collection[str], deadline: Deadline) -> dict[Partition, int | SourceError]:
        """Which broker leads each of their partitions; or why none does, or why nothing is known of the topic.

        Who asks a client for offsets of one that has no leader waits for it, and so do all others of the same call.
        Raises SourceError: no broker answers.
        """
        found: dict[Partition, int | SourceError] = {}
        for topic in sorted(topics):
            what = f"asking {self._where} who leads {topic}"
            try:
                known = self.client.list_topics(topic, timeout=request_s(deadline)).topics[topic]
            except KafkaException as error:
                self.doubt(error.args[0])
                raise as_source_error(error.args[0], what) from error
            for number, each in known.partitions.items():
                wrong = each.error or (KafkaError(KafkaError.LEADER_NOT_AVAILABLE) if each.leader < 0 else None)
                at = Partition(topic, number)
                found[at] = each.leader if wrong is None else as_source_error(wrong, f"{what}-{number}")
            if known.error is not None:
                found[Partition(topic, -1)] = as_source_error(known.error, what)
        return found

    def answer(self, future: Future[Any], deadline: Deadline, what: str) -> Any:  # noqa: ANN401 - as the binding has it
        """The future's result. Raises SourceError: the client's typed error, or SourceUnavailable at the deadline."""
        what = f"{what} at {self._where}"
        self._forget()
        while not future.done():
            self._look(deadline, what)
        try:
            found = future.result()
        except KafkaException as error:
            if error.args[0].code() == KafkaError._TIMED_OUT:  # noqa: SLF001 - a public name of the binding
                raise self._no_answer(deadline, what) from error
            self.doubt(error.args[0])
            raise as_source_error(error.args[0], what) from error
        self._in_vain_s = 0.0
        return found

    def _forget(self) -> None:
        """Forget the trouble that the client has met before this question: a broker that refused us an hour ago may
        only have been starting. If it is still so, the client meets it again while this question waits."""
        while self._client.poll(0):
            pass
        self._errors.clear()
        self._asked_at = SYSTEM_CLOCK.now()

    def _look(self, deadline: Deadline, what: str) -> None:
        """Wait a moment, then raise what no waiting cures: while the brokers refuse the credentials, librdkafka goes on
        trying, and no request is ever answered."""
        self._client.poll(deadline.left_s(at_most=_LOOK_S))
        for error in self._errors:
            if cure_of(error) is Cure.PERSON:
                raise as_source_error(error, what)
        if deadline.passed:
            raise self._no_answer(deadline, what)

    def _no_answer(self, deadline: Deadline, what: str) -> SourceUnavailable:
        self._in_vain_s += SYSTEM_CLOCK.now() - self._asked_at
        self._doubted = self._doubted or self._in_vain_s > _LIVES_S
        # What the client has met on its way says more than "timed out": a name that does not resolve, a closed port.
        met = f" ({self._errors[-1].str()})" if self._errors else ""
        return SourceUnavailable(
            f"{what}: no answer within {deadline.budget_s:g} s{met}; check the address, that the broker is running, "
            "and firewalls between"
        )


def of_mocks(cluster: str) -> bool:
    """Whether that is the id of librdkafka's own brokers for tests, which leave many a question without an answer."""
    return cluster.startswith(_MOCK)


class Wait:
    """A wait for the brokers, of which the log tells once."""

    def __init__(self, what: str, deadline: Deadline, where: str = "") -> None:
        """Args: where: the brokers' addresses, if those are what is waited for."""
        self.what, self._deadline, self._where = what, deadline, where
        self._told = deadline.budget_s < _TOLD_S

    def goes_on(self) -> None:
        """There was no answer, and it is tried again."""
        if not self._told:
            self._told = True
            why = refusal(self._where, DEFAULT_PORT) or f"{self.what}: no answer yet"
            _log.warning("%s; trying for another %.0f s", why, self._deadline.left_s())


def refused(error: KafkaException) -> SettingError:
    """A configuration that librdkafka does not take. Its words name the property; the values stay out of it."""
    said: KafkaError = error.args[0]
    return SettingError("conf", "...", f"librdkafka refuses it: {said.str()}")
