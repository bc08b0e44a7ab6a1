"""Requests to the cluster by an admin client, in bounded time: each is answered, or raises a typed error."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from holdfast.adapters.kafka._client import AdminClient, ConfigResource, KafkaError, KafkaException
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

    from holdfast.adapters.kafka._client import ResourceType
    from holdfast.timing import Deadline

_log = logging.getLogger("holdfast.kafka")
# The client's own lines ("Connect to ... failed") repeat our errors; a user's own logger is left in place.
_SILENT = NoLog()

# A call with a longer deadline is part of a start: it logs that it waits, and for what.
_TOLD_S = 5.0
# How long to wait for an answer before checking whether the client has met an error that waiting does not cure.
_LOOK_S = 0.05
# The longest time that one call blocks, if no signal can interrupt it and it can be repeated.
CALL_S = 2.0
# The shortest timeout of a call: with 0 it would time out before it was sent.
_LEAST_S = 0.1
#: The longest timeout of a request: a client refuses longer ones, and infinite ones.
MOST_S = 3_600.0
#: A topic for requests of metadata, instead of all topics: it exists wherever groups do, and no request creates it.
SOME_TOPIC = "__consumer_offsets"
#: A client is replaced after it was waited for in vain for this time, in one request or in several: each client needs
#: the time to connect.
_LIVES_S = 1.0
# Errors of a request that no broker has answered.
_NO_ANSWER = frozenset({KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN})  # noqa: SLF001 - public names of the binding
# The id of librdkafka's mock cluster. It names a controller that does not exist, so admin requests for the controller
# are never answered there.
_MOCK = "mockCluster"


def request_s(deadline: Deadline, share: float = 1.0, at_most: float | None = None) -> float:
    """The timeout of one call of a client: the rest of the deadline, or a share of it."""
    return min(max(deadline.left_s(at_most) * share, _LEAST_S), MOST_S)


class Admin:
    """An admin client with the consumer's credentials, made when it is first needed. One thread at a time.

    Each method raises SettingError: librdkafka refuses the configuration.
    """

    def __init__(self, conf: Mapping[str, object]) -> None:
        self._where = addresses(conf)
        self._errors: list[KafkaError] = []
        # AdminClient knows error_cb, and serves it in poll().
        own = {"error_cb": self._errors.append, "allow.auto.create.topics": False}
        self._conf: dict[str, Any] = {"logger": _SILENT, **for_helpers(conf), **own}
        self._client: AdminClient | None = None
        self._made_at = 0.0
        self._doubted = False
        #: When the current request began, and how long the client was waited for in vain since its last answer.
        self._asked_at = self._in_vain_s = 0.0

    @property
    def client(self) -> AdminClient:
        """The admin client. One without an answer may have forgotten its brokers (see `forgotten`): it is replaced, and
        its outstanding requests get no answer."""
        if self._client is None:
            self._client = self._make()
        elif self._doubted and SYSTEM_CLOCK.now() - self._made_at > _LIVES_S:
            with suppress(SettingError):  # a file of its configuration may be missing for a moment
                self._client = self._make()
        self._doubted = False
        return self._client

    def _make(self) -> AdminClient:
        try:
            made = AdminClient(self._conf)
        except KafkaException as error:
            raise refused(error) from error
        self._made_at, self._in_vain_s = SYSTEM_CLOCK.now(), 0.0
        return made

    def check(self) -> None:
        """Make the client now: a configuration that librdkafka refuses is an error where it is written."""
        self._client = self._client or self._make()

    def close(self) -> None:
        """Free the client, in this thread. Python's cyclic collector might free it in the client's own thread while
        that delivers an answer: then librdkafka aborts the process."""
        self._client = None

    def doubt(self, error: KafkaError) -> None:
        """Note the error of a request: if no broker has answered, the client may have forgotten its brokers."""
        self._doubted = self._doubted or error.code() in _NO_ANSWER

    def reach(self, deadline: Deadline) -> str:
        """Reach one broker and log in there; returns the cluster's id, "" = it has none. Raises SourceError."""
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
                wait.log_once()
                # Each call sends a new request, so a timeout below the round trip to the broker would never succeed.
                slice_s = min(2 * slice_s, CALL_S)
            else:
                return cast("str | None", cluster.cluster_id) or ""

    def is_mock(self, deadline: Deadline) -> bool:
        """Whether this is librdkafka's mock cluster. Raises SourceError."""
        return of_mocks(self.reach(deadline))

    def leaders(self, topics: Collection[str], deadline: Deadline) -> dict[Partition, int | SourceError]:
        """The id of the broker that leads each partition, or an error: it has no leader. An error about a whole topic
        is under its partition -1.

        A client that is asked for offsets of a partition without a leader waits for one, and delays the other
        partitions in that call. Raises SourceError: no broker answers.
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

    def configs(
        self, kind: ResourceType, names: Collection[str], deadline: Deadline, what: str
    ) -> dict[str, dict[str, str | None] | SourceError]:
        """The settings of topics, groups or brokers as the brokers have them; each has an answer, or its error.

        Args:
            kind: of all of them.
            names: theirs.
            deadline: of the whole call.
            what: the name of this call in errors, with {} for the name.
        """
        asked = self.client.describe_configs(
            [ConfigResource(kind, name) for name in sorted(names)], request_timeout=request_s(deadline)
        )
        found: dict[str, dict[str, str | None] | SourceError] = {}
        for resource, future in asked.items():
            try:
                entries = self.answer(future, deadline, what.format(resource.name))
            except SourceError as error:
                found[resource.name] = error
            else:
                found[resource.name] = {name: entry.value for name, entry in entries.items()}
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
        """Forget errors that the client has met before this request: a broker that refused us an hour ago may only have
        been starting. If the error lasts, the client meets it again while this request waits."""
        while self._client is not None and self._client.poll(0):
            pass
        self._errors.clear()
        self._asked_at = SYSTEM_CLOCK.now()

    def _look(self, deadline: Deadline, what: str) -> None:
        """Wait a moment, then raise an error that waiting does not cure: while the brokers refuse the credentials,
        librdkafka goes on trying, and no request is ever answered."""
        if self._client is not None:  # serves error_cb
            self._client.poll(deadline.left_s(at_most=_LOOK_S))
        for error in self._errors:
            if cure_of(error) is Cure.PERSON:
                raise as_source_error(error, what)
        if deadline.passed:
            raise self._no_answer(deadline, what)

    def _no_answer(self, deadline: Deadline, what: str) -> SourceUnavailable:
        self._in_vain_s += SYSTEM_CLOCK.now() - self._asked_at
        self._doubted = self._doubted or self._in_vain_s > _LIVES_S
        # The client's last error tells more than "timed out": a name that does not resolve, a closed port.
        met = f" ({self._errors[-1].str()})" if self._errors else ""
        return SourceUnavailable(
            f"{what}: no answer within {deadline.budget_s:g} s{met}; check the address, that the broker is running, "
            "and firewalls between"
        )


def of_mocks(cluster: str) -> bool:
    """Whether this is the id of librdkafka's mock cluster, which leaves many requests without an answer."""
    return cluster.startswith(_MOCK)


class Wait:
    """A wait for the brokers, which is logged once."""

    def __init__(self, what: str, deadline: Deadline, where: str = "") -> None:
        """Args: where: the brokers' addresses, if the wait is for a connection to them."""
        self.what, self._deadline, self._where = what, deadline, where
        self._told = deadline.budget_s < _TOLD_S

    def log_once(self) -> None:
        """Note that there was no answer, and that the call is tried again."""
        if not self._told:
            self._told = True
            why = refusal(self._where, DEFAULT_PORT) or f"{self.what}: no answer yet"
            _log.warning("%s; trying for another %.0f s", why, self._deadline.left_s())


def refused(error: KafkaException) -> SettingError:
    """The error about a configuration that librdkafka refuses. Its text names the property, without the value."""
    said: KafkaError = error.args[0]
    return SettingError("conf", "...", f"librdkafka refuses it: {said.str()}")
