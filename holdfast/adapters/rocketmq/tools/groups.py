"""RocketMQGroupViews: a view of a RocketMQ group for tools, from brokers' answers and the plan in the store.

Brokers know the connected clients and the group's subscription. Only clients know which queues they read: they are
asked through their broker, and RocketMQ's own clients answer. For members that holdfast coordinates, the plan in the
store has the queues.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from holdfast.adapters.rocketmq.names import is_ours
from holdfast.adapters.rocketmq.pop_view import given_out
from holdfast.adapters.rocketmq.remoting import Admin, codes
from holdfast.adapters.rocketmq.remoting.membership import (
    connections,
    read_connections,
    read_running,
    read_topics,
    running,
    topics_of,
)
from holdfast.adapters.rocketmq.remoting.network import ask_each
from holdfast.adapters.rocketmq.tools.queues import QueueViews
from holdfast.errors import NotAuthorised, SourceError, SourceUnavailable, UnknownGroup
from holdfast.timing import Deadline
from holdfast.tools.advice.group_view import GroupView, MemberView

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from typing import TypeVar

    from holdfast.adapters.rocketmq.remoting import GroupConnections, RemotingClient
    from holdfast.adapters.rocketmq.remoting.answers import Answer
    from holdfast.adapters.rocketmq.remoting.in_flight import Request
    from holdfast.adapters.rocketmq.remoting.membership import GroupMember, RunningInfo
    from holdfast.dedup.coordinator import Coordinator, GroupState

    T = TypeVar("T")

#: The time for answers of members. A broker waits 10 s for a client that does not support the request.
_MEMBER_S: Final = 3.0


class RocketMQGroupViews:
    """Views of one group. One thread.

    Args:
        connect: makes the client, which is closed here.
        group: the consumer group.
        coordinator: keeps the plan, if the group has holdfast's members; the caller closes it.
    """

    def __init__(
        self, connect: Callable[[], RemotingClient], group: str, coordinator: Coordinator | None = None
    ) -> None:
        self.group = group
        self._client = connect()
        self._coordinator = coordinator
        self._queues = QueueViews(self._client, group)

    def view(self, deadline: Deadline, *, topics: Collection[str] = ()) -> GroupView:
        """The group now; see `GroupViews.view`. With a coordinator, raises StoreError too."""
        notes: list[str] = []
        masters = {
            name: members[codes.MASTER]
            for name, members in Admin(self._client).cluster(deadline).brokers.items()
            if codes.MASTER in members
        }
        seen = self._connections(masters, deadline, notes)
        planned = None if self._coordinator is None else self._coordinator.describe(self.group)
        if planned is not None and not planned.members and not planned.plan.owners:
            planned = None
        had = self._topics(masters, deadline, notes)
        if not seen and not had and planned is None:
            raise UnknownGroup(
                f"{self._client.namesrv} has no group {self.group!r}: no member, and no offset; check the name and the "
                "cluster"
            )
        members = [*self._remoting(seen, masters, deadline, notes, coordinated=planned is not None)]
        members += _coordinated(planned, seen)
        subscribed = {topic for known in seen.values() for topic in known.subscriptions}
        offered = planned.queues if planned else frozenset()
        views = self._queues.view(
            subscribed | had | set(topics) | {queue.topic for queue in offered},
            topics,
            {queue for member in members for queue in member.partitions or ()},
            masters,
            deadline,
        )
        by_message = any(known.consume_type == "CONSUME_POP" for known in seen.values())
        if by_message or (not members and given_out(self._client, self.group, views, masters, deadline)):
            views = {queue: replace(each, given_out=True) for queue, each in views.items()}
            notes.append(
                "messages are given out one by one (POP), as to gRPC clients, whom a broker does not know as members: "
                "an offset moves when a message is given out, and what is in hand counts nowhere"
            )
        return GroupView(
            kind="rocketmq",
            group=self.group,
            state=_state(members, planned),
            protocol=("holdfast" if planned else "remoting") if members else "",
            generation=planned.plan.generation if planned else None,
            members=tuple(sorted(members, key=lambda each: (each.client_id, each.id))),
            partitions=views,
            notes=tuple(notes),
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    # ---- the group
    def _connections(
        self, masters: Mapping[str, str], deadline: Deadline, notes: list[str]
    ) -> dict[str, GroupConnections]:
        """Broker -> the group there. Brokers without members are left out."""
        return self._ask(masters, connections(self.group), read_connections, deadline, notes)

    def _topics(self, masters: Mapping[str, str], deadline: Deadline, notes: list[str]) -> set[str]:
        """The topics in which the group has offsets, its retry topic among them."""
        told = self._ask(masters, topics_of(self.group), read_topics, deadline, notes)
        return {topic for known in told.values() for topic in known}

    def _ask(
        self,
        masters: Mapping[str, str],
        request: Request,
        read: Callable[[Answer], T | None],
        deadline: Deadline,
        notes: list[str],
    ) -> dict[str, T]:
        """Send the same request to all masters; see `_known`."""
        asked = [(address, request) for address in masters.values()]
        replies = ask_each(self._client.network, asked, _share(deadline), read)
        return _known(dict(zip(masters, replies, strict=True)), notes)

    def _remoting(
        self,
        seen: Mapping[str, GroupConnections],
        masters: Mapping[str, str],
        deadline: Deadline,
        notes: list[str],
        *,
        coordinated: bool,
    ) -> list[MemberView]:
        """The members that are not in the plan in the store."""
        found: dict[str, tuple[str, GroupMember]] = {}
        connections: Counter[str] = Counter()
        for broker, known in seen.items():
            connections |= Counter(each.client_id for each in known.members)
            for each in known.members:
                found.setdefault(each.client_id, (broker, each))
        ours = [name for name in found if is_ours(name)]
        if ours and not coordinated:
            notes.append(
                "holdfast coordinates it: only its Redis knows the owners of the queues; --redis is missing"
                if self._coordinator is None
                else "holdfast coordinates this group in another Redis or namespace than the one that is named"
            )
        others = [name for name in found if not (coordinated and is_ours(name))]
        asked = [(masters[found[name][0]], running(self.group, name)) for name in others if not is_ours(name)]
        told: dict[str, RunningInfo] = {}
        replies = ask_each(self._client.network, asked, _share(deadline, _MEMBER_S), read_running)
        for name, reply in zip([name for name in others if not is_ours(name)], replies, strict=True):
            if isinstance(reply, SourceError):
                notes.append(f"{name} does not tell what it reads: {reply}")
            else:
                told[name] = reply
        members = []
        for name in others:
            broker, each = found[name]
            info = told.get(name)
            expressions = info.subscriptions if info else seen[broker].subscriptions
            members.append(
                MemberView(
                    id=name,
                    client_id=name,
                    host=each.address.rpartition(":")[0],
                    protocol="holdfast" if is_ours(name) else "remoting",
                    topics=frozenset(expressions),
                    expressions=expressions,
                    partitions=info.queues if info else None,
                    connections=connections[name],
                    client=each.language,
                )
            )
        return members


def _coordinated(planned: GroupState | None, seen: Mapping[str, GroupConnections]) -> list[MemberView]:
    """The members in the plan in the store."""
    if planned is None:
        return []
    addresses = {each.client_id: each.address for known in seen.values() for each in known.members}
    topics = frozenset(queue.topic for queue in planned.queues)
    return [
        MemberView(
            id=each.id,
            client_id=each.client_id,
            host=addresses.get(each.client_id, "").rpartition(":")[0] or each.description,
            protocol="holdfast",
            topics=topics,
            partitions=planned.plan.of(each.id),
            weight=each.weight,
            lease_left_s=planned.left_s.get(each.id),
            client="holdfast",
        )
        for each in planned.members
    ]


def _state(members: Collection[MemberView], planned: GroupState | None) -> str:
    if not members:
        return "empty"
    return "rebalancing" if planned is not None and not planned.settled else "stable"


def _share(deadline: Deadline, at_most_s: float | None = None) -> Deadline:
    """Half of the time that is left, so that a silent broker leaves time for further requests."""
    return Deadline(deadline.left_s(at_most_s) / 2)


def _known(replies: Mapping[str, T | SourceError | None], notes: list[str]) -> dict[str, T]:
    """Broker -> answer. Errors of single brokers become notes. Raises SourceError: none answered, or one refuses the
    credentials."""
    faults = {name: reply for name, reply in replies.items() if isinstance(reply, SourceError)}
    for name, fault in faults.items():
        if isinstance(fault, NotAuthorised) or len(faults) == len(replies):
            raise fault
        notes.append(f"broker {name}: {fault}")
    if not replies:
        raise SourceUnavailable("the name servers know no broker with a master now: check that the brokers run")
    return {name: reply for name, reply in replies.items() if reply is not None and not isinstance(reply, SourceError)}
