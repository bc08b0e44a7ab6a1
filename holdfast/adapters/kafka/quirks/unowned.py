"""Partitions without an owner: a static member of the cooperative protocol notices them, and joins its group anew.

- What happens: a static member is killed while it gives partitions up, and comes back under its name within its
  session. The group is stable, so the coordinator answers the join with the last rebalance's assignment and begins no
  other rebalance. The member has nothing to revoke, so its client does not join again. The partitions that it was
  giving up have no owner until something else causes a rebalance.
- Seen in 22 of 22 tries on Kafka 4.3.1 with librdkafka 2.16; one of them was watched for 330 s. No
  issue of either was found.
- What holdfast does: `unsubscribe` and `subscribe` together. The client gives up its partitions, and its next join has
  other metadata, which begins a rebalance: cured in 12 of 12, within a second. `subscribe` to the same topics does
  nothing. Any member may do it.
- From outside, another member's drain looks the same for as long as it lasts, so the second look comes after a drain.
  The look needs DESCRIBE on the group and its topics, which READ includes.
- It can go when the coordinator or the client begins a rebalance in that case. The consumer protocol has no such hole:
  its broker waits until each member has said that it gave a partition up.
- Tests: tests/contracts/kafka/test_unowned.py, tests/unit/test_kafka_unowned.py.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.adapters.kafka._client import KafkaException, TopicCollection, partition_of
from holdfast.adapters.kafka.config import GroupProtocol
from holdfast.adapters.kafka.joining import join
from holdfast.errors import SourceError, SourceUnavailable
from holdfast.records import Partition
from holdfast.timing import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Mapping, Sequence
    from concurrent.futures import Future

    from holdfast.adapters.kafka._client import Consumer
    from holdfast.adapters.kafka.admin import Admin
    from holdfast.adapters.kafka.callbacks import Callbacks
    from holdfast.adapters.kafka.emission import ClientConfig

_log = logging.getLogger("holdfast.kafka")

#: The time from a client's first assignment to the first look: most rebalances have ended by then.
_FIRST_S: Final = 3.0
#: The time between the two looks, in addition to the longest drain: a member that has drained still commits and joins.
_BEYOND_DRAIN_S: Final = 2.0
#: The timeout of one request.
_REQUEST_S: Final = 5.0
#: How many partitions a text names at most.
_NAMED: Final = 10


class Sight(NamedTuple):
    """A stable group at one look: if two are equal, no rebalance between them has moved a partition."""

    #: Member id -> its partitions.
    assigned: Mapping[str, frozenset[Partition]]
    unowned: frozenset[Partition]


class Watch:
    """The looks of one client, from before it joins. One thread, the one that polls.

    Args:
        client: its configuration.
        callbacks: they count assignments.
        admin: asks about the group.
        drain_s: the longest that a member drains.
    """

    def __init__(self, client: ClientConfig, callbacks: Callbacks, admin: Admin, drain_s: float) -> None:
        self._client, self._callbacks, self._admin = client, callbacks, admin
        self._between_s = drain_s + _BEYOND_DRAIN_S
        self._before = callbacks.assignments
        self._topics: Sequence[str] = ()
        self._looks = self._look_twice()
        self._found: frozenset[Partition] = frozenset()

    def step(self, consumer: Consumer, topics: Sequence[str]) -> None:
        """Take one step, without blocking. Raises SourceUnavailable: partitions have no owner, and the client joins
        anew; a later poll revokes its partitions."""
        if not self._found:
            self._topics = topics
            try:
                next(self._looks)
            except StopIteration as over:
                self._found = over.value or frozenset()  # None: both looks were made before
            if not self._found:
                return
        try:
            # No LeaveGroup is sent, as long as the client has partitions. If a signal handler raises here, the next
            # step does both again.
            consumer.unsubscribe()
            join(consumer, topics, self._callbacks)
        except (KafkaException, SourceError) as error:  # only a finished client refuses: a poll raises why
            _log.info("%s: not joined anew (%s)", self._client.group, error)
            self._found = frozenset()
            return
        found, self._found = self._found, frozenset()
        raise SourceUnavailable(
            f"{self._client.group}: no member owns {_names(found)}. A static member was killed while it gave them up, "
            "and came back without a rebalance. This member gives its partitions up and joins anew, so that the group "
            "shares them out again"
        )

    # ---- inside: each `yield` is the end of a step
    def _look_twice(self) -> Generator[None, None, frozenset[Partition]]:
        nothing: frozenset[Partition] = frozenset()
        while self._callbacks.assignments == self._before:
            yield
        try:
            yield from _pause(_FIRST_S)
            first = yield from self._look()
            if first is None or not first.unowned:
                return nothing
            _log.debug("%s: no member owns %s now", self._client.group, _names(first.unowned))
            yield from _pause(self._between_s)
            return first.unowned if (yield from self._look()) == first else nothing
        except KafkaException as error:
            self._admin.doubt(error.args[0])
            _log.info("whether partitions of %s have no owner cannot be asked: %s", self._client.group, error.args[0])
            return nothing

    def _look(self) -> Generator[None, None, Sight | None]:
        """None: the group is not stable."""
        client, group = self._admin.client, self._client.group
        groups = client.describe_consumer_groups([group], request_timeout=_REQUEST_S)
        described = yield from _answer(groups[group])
        if (assigned := assigned_in(described)) is None:
            return None
        counts: dict[str, int] = {}
        if topics := topics_of(self._topics, assigned):
            asked = client.describe_topics(TopicCollection(sorted(topics)), request_timeout=_REQUEST_S)
            for topic, future in asked.items():
                try:
                    counts[topic] = len((yield from _answer(future)).partitions)
                except KafkaException as error:
                    _log.debug("the partitions of %s are not known: %s", topic, error.args[0])
        return Sight(assigned, unowned(counts, assigned))


def watch(client: ClientConfig, callbacks: Callbacks, admin: Admin, drain_s: float) -> Watch | None:
    """Make a watch for a static member of a cooperative group; None = the client is none."""
    if client.static_id is None or client.protocol is not GroupProtocol.COOPERATIVE:
        return None
    return Watch(client, callbacks, admin, drain_s)


# ---- pure
def assigned_in(described: Any) -> dict[str, frozenset[Partition]] | None:  # noqa: ANN401 - as the binding has it
    """Read the members' assignments, by member id. None: a classic group has them only while it is stable."""
    if described.state.name != "STABLE" or described.type.name == "CONSUMER":
        return None
    return {
        member.member_id: frozenset(partition_of(one) for one in member.assignment.topic_partitions)
        for member in described.members
    }


def topics_of(subscription: Collection[str], assigned: Mapping[str, Collection[Partition]]) -> set[str]:
    """The topics of a subscription: those that it names, and, for a pattern, those that are assigned to a member."""
    named = {each for each in subscription if not each.startswith("^")}
    known = {partition.topic for each in assigned.values() for partition in each}
    return named.union(*(_matching(each, known) for each in subscription if each not in named))


def unowned(counts: Mapping[str, int], assigned: Mapping[str, Collection[Partition]]) -> frozenset[Partition]:
    """The partitions that are assigned to no member. Args: counts: topic -> number of its partitions."""
    everything = {Partition(topic, number) for topic, count in counts.items() for number in range(count)}
    return frozenset(everything.difference(*assigned.values()))


def _matching(pattern: str, topics: Collection[str]) -> set[str]:
    try:  # librdkafka's syntax, which Python's `re` reads except for rare constructs
        return {topic for topic in topics if re.match(pattern, topic)}
    except re.error:
        return set()


def _names(partitions: Collection[Partition]) -> str:
    named = ", ".join(map(str, sorted(partitions)[:_NAMED]))
    return named if len(partitions) <= _NAMED else f"{named} and {len(partitions) - _NAMED} more"


# ---- waiting without waiting
def _pause(seconds: float) -> Generator[None, None, None]:
    over_at = SYSTEM_CLOCK.now() + seconds
    while SYSTEM_CLOCK.now() < over_at:
        yield


def _answer(future: Future[Any]) -> Generator[None, None, Any]:
    """Raises KafkaException."""
    while not future.done():
        yield
    return future.result()
