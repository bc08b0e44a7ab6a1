"""A view of a Kafka group from outside: `tools.advice.group_view.GroupViews`, by an admin client and by own
requests."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Literal

from holdfast.adapters.kafka._client import (
    ConsumerGroupTopicPartitions,
    KafkaError,
    ResourceType,
    TopicCollection,
    partition_of,
)
from holdfast.adapters.kafka.admin import Admin, request_s
from holdfast.adapters.kafka.properties import addresses
from holdfast.adapters.kafka.quirks.leave_static import why_unsendable
from holdfast.adapters.kafka.tools import describing
from holdfast.adapters.kafka.tools.partitions import PartitionViews, node_of
from holdfast.adapters.kafka.topic_keeping import keeping_of
from holdfast.adapters.kafka.wire import Malformed, tls_context, uses_tls
from holdfast.errors import NoCoordinator, NotAuthorised, SourceError, SourceUnavailable, UnknownGroup
from holdfast.plugin.assign.java import offsets_partition
from holdfast.plugin.retrying.retry_topics import delay_in
from holdfast.timing import SYSTEM_CLOCK
from holdfast.tools.advice.group_view import GroupView, MemberView

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from holdfast.plugin.retrying.keeping import Keeping
    from holdfast.records import Partition
    from holdfast.timing import Deadline
    from holdfast.tools.advice.group_view import Node

_OFFSETS: Final = "__consumer_offsets"
_RETENTION: Final = "offsets.retention.minutes"
_AGAIN_S: Final = 0.2
_CAPITAL: Final = re.compile(r"(?<!^)(?=[A-Z])")


class KafkaGroupViews:
    """Views of one group. One thread. Needs DESCRIBE on the group and on its topics.

    Args:
        conf: of a client: addresses and credentials are taken from it; properties of consumers are ignored.
        group: its name.

    Raises:
        SettingError: librdkafka refuses the configuration.
    """

    def __init__(self, conf: Mapping[str, object], group: str) -> None:
        self.group = group
        self._conf = dict(conf)
        self._where = addresses(conf)
        self._admin = Admin(conf)
        self._admin.check()
        self._partitions = PartitionViews(self._admin)

    def view(self, deadline: Deadline, *, topics: Collection[str] = ()) -> GroupView:
        """The group now. See `GroupViews.view`."""
        self._admin.reach(deadline)
        notes: list[str] = []
        described = self._describe(deadline)
        coordinator = node_of(described.coordinator)
        consumer_protocol = described.type.name == "CONSUMER"
        by_hand = self._by_hand(coordinator, deadline, notes, consumer_protocol=consumer_protocol)
        # After the description: with a broker that has no `__consumer_offsets` yet, this call of 2.16.1 ends the
        # process, and describing the group creates that topic.
        committed = self._committed(deadline)
        if described.state.name == "DEAD" and not described.members and not committed:
            raise UnknownGroup(
                f"{self._where} has no group {self.group!r}: no member, and no offset; check the name and the cluster"
            )
        state = _state(described, by_hand)
        members = self._members(described, by_hand, state, notes)
        read = {topic for each in members for topic in each.topics or ()}
        has = {partition.topic for each in members for partition in (each.partitions or ())}
        had = {partition.topic for partition in committed}
        wanted = read | has | had | set(topics)
        partitions, missing, unseen = self._partitions.view(wanted, topics, committed, deadline)
        notes += [f"{topic}: a member subscribes to it, and there is no such topic" for topic in missing & read]
        offsets_partition, leader = self._place(deadline, notes)
        return GroupView(
            kind="kafka",
            group=self.group,
            state=state,
            protocol=_protocol(described, by_hand, consumer_protocol=consumer_protocol),
            assignor=(by_hand.assignor if by_hand else described.partition_assignor) or None,
            generation=by_hand.epoch if by_hand else None,
            coordinator=coordinator,
            offsets_partition=offsets_partition,
            offsets_leader=leader,
            offsets_retention_s=self._retention_s(coordinator, deadline) if had - read else None,
            members=members,
            partitions=partitions,
            unseen=unseen,
            keeping=self._keeping(wanted - missing, deadline, notes),
            notes=tuple(notes),
        )

    def close(self) -> None:
        """Do nothing: the client ends with this object."""

    def _keeping(self, topics: Collection[str], deadline: Deadline, notes: list[str]) -> dict[str, Keeping]:
        """How the retry topics keep their records."""
        found = {}
        waiting = [topic for topic in topics if delay_in(topic, self.group) is not None]
        for topic, told in keeping_of(self._admin, waiting, deadline).items():
            if isinstance(told, SourceError):
                notes.append(f"{topic}: how it keeps its records is not known: {told}")
            else:
                found[topic] = told
        return found

    # ---- the group
    def _describe(self, deadline: Deadline) -> Any:  # noqa: ANN401 - as the binding has it
        while True:
            asked = self._admin.client.describe_consumer_groups([self.group], request_timeout=request_s(deadline))
            try:
                return self._admin.answer(asked[self.group], deadline, f"asking who is in {self.group}")
            except SourceUnavailable as error:  # the coordinator moves, or its topic is being created
                if deadline.passed:
                    raise NoCoordinator(f"a broker answers, and the group's coordinator does not: {error}") from error
                SYSTEM_CLOCK.sleep(deadline.left_s(_AGAIN_S))

    def _committed(self, deadline: Deadline) -> dict[Partition, int | str]:
        """The group's offsets; or, for a partition without an answer, why. An error is not the same as no offset."""
        asked = self._admin.client.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(self.group)], request_timeout=request_s(deadline)
        )
        reply = self._admin.answer(asked[self.group], deadline, f"reading the offsets of {self.group}")
        return {
            partition_of(each): f"its offset is not told: {each.error.str()}" if each.error is not None else each.offset
            for each in reply.topic_partitions
            if each.offset >= 0 or each.error is not None
        }

    def _by_hand(
        self, coordinator: Node | None, deadline: Deadline, notes: list[str], *, consumer_protocol: bool
    ) -> describing.Description | None:
        """Ask for the description that librdkafka does not pass on; None = it cannot be asked, and a note says why."""
        why = why_unsendable(self._conf)
        if why is None and coordinator is not None:
            host, _, port = coordinator.address.rpartition(":")
            context = tls_context(self._conf) if uses_tls(self._conf) else None
            try:
                return describing.describe(
                    host, int(port), context, self.group, deadline, consumer_protocol=consumer_protocol
                )
            except (OSError, UnicodeError, Malformed) as error:
                why = str(error)
            except describing.Refused as error:
                if error.code == KafkaError.GROUP_ID_NOT_FOUND:
                    return None
                if error.code in (KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.TOPIC_AUTHORIZATION_FAILED):
                    raise NotAuthorised(
                        f"asking who is in {self.group} at {self._where}: the broker refuses; allow this user DESCRIBE "
                        "on the group and on its topics"
                    ) from error
                why = str(error)
        notes.append(f"members' subscriptions and epochs are unknown: {why or 'there is no coordinator'}")
        return None

    def _members(
        self,
        described: Any,  # noqa: ANN401 - as the binding has it
        by_hand: describing.Description | None,
        state: str,
        notes: list[str],
    ) -> tuple[MemberView, ...]:
        consumer_protocol = described.type.name == "CONSUMER"
        told = by_hand.members if by_hand else {}
        # A classic group tells its members' partitions only while it is stable; otherwise all members would seem idle.
        knows = consumer_protocol or state == "stable"
        all_assigned = {each.topic for member in described.members for each in member.assignment.topic_partitions}
        found = []
        for member in described.members:
            has = _partitions(member.assignment)
            more = told.get(member.member_id)
            found.append(
                MemberView(
                    id=member.member_id,
                    client_id=member.client_id,
                    host=member.host.removeprefix("/"),
                    instance_id=member.group_instance_id,
                    rack=more.rack if more else "",
                    protocol="consumer" if consumer_protocol and not (more and more.classic) else "classic",
                    topics=None if more is None else more.topics | _matching(more.pattern, all_assigned),
                    partitions=has if knows else None,
                    target=_partitions(member.target_assignment) if member.target_assignment else None,
                    epoch=more.epoch if more else None,
                )
            )
        if found and not knows:
            notes.append("the group rebalances: the broker does not report the partitions' owners now")
        if any(each.pattern for each in told.values()):
            notes.append("some members subscribe by a pattern: of the matching topics, only assigned ones are known")
        return tuple(sorted(found, key=lambda each: (each.client_id, each.id)))

    # ---- where its offsets are kept
    def _place(self, deadline: Deadline, notes: list[str]) -> tuple[int | None, Node | None]:
        """The group's partition of `__consumer_offsets`, and that partition's leader."""
        asked = self._admin.client.describe_topics(TopicCollection([_OFFSETS]), request_timeout=request_s(deadline))
        try:
            found: Sequence[Any] = self._admin.answer(asked[_OFFSETS], deadline, f"looking at {_OFFSETS}").partitions
        except SourceError as error:
            notes.append(f"the group's partition of {_OFFSETS} is not known: {error}")
            return None, None
        number = offsets_partition(self.group, len(found))
        return number, next((node_of(each.leader) for each in found if each.id == number), None)

    def _retention_s(self, coordinator: Node | None, deadline: Deadline) -> float | None:
        """How long offsets without a new commit are kept. None = not known: it needs DESCRIBE_CONFIGS."""
        if coordinator is None:
            return None
        kind, what = ResourceType.BROKER, "asking for the settings of broker {}"
        [found] = self._admin.configs(kind, [coordinator.name], deadline, what).values()
        said = None if isinstance(found, SourceError) else found.get(_RETENTION)
        return None if said is None else float(said) * 60


def _state(described: Any, by_hand: describing.Description | None) -> str:  # noqa: ANN401
    if by_hand is not None:
        word = _CAPITAL.sub(" ", by_hand.state).lower()
        return "empty" if word == "dead" else word
    name: str = described.state.name
    if name == "UNKNOWN":  # librdkafka 2.16 has no word for the states that only the consumer protocol has
        return "reconciling"
    if name == "DEAD":  # the group has offsets and no member
        return "empty"
    return name.lower().replace("rebalancing", "rebalance").replace("_", " ")


def _protocol(
    described: Any,  # noqa: ANN401 - as the binding has it
    by_hand: describing.Description | None,
    *,
    consumer_protocol: bool,
) -> Literal["", "classic", "consumer"]:
    if consumer_protocol:
        return "consumer"
    # A group that has only offsets, set by a tool, has no protocol.
    return "classic" if described.members or (by_hand is not None and by_hand.kind) else ""


def _partitions(assignment: Any) -> frozenset[Partition]:  # noqa: ANN401 - as the binding has it
    return frozenset(partition_of(each) for each in assignment.topic_partitions)


def _matching(pattern: str | None, topics: Collection[str]) -> frozenset[str]:
    if not pattern:
        return frozenset()
    try:  # RE2's syntax, which Python's `re` reads except for rare constructs
        wanted = re.compile(pattern)
    except re.error:
        return frozenset()
    return frozenset(topic for topic in topics if wanted.fullmatch(topic))
