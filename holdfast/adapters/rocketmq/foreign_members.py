"""Foreign members: clients in a broker's group that do not follow the plan, and read queues that it gives to others."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.names import RETRY, is_ours
from holdfast.adapters.rocketmq.pop_view import popped_topics
from holdfast.errors import ForeignMembers, SourceUnavailable
from holdfast.timing import SYSTEM_CLOCK, Deadline

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.adapters.rocketmq.remoting import RemotingClient
    from holdfast.adapters.rocketmq.topics import Topics
    from holdfast.dedup.coordinator import Coordinator

_log = logging.getLogger("holdfast.rocketmq")

#: The deadline for one broker, so that one without an answer leaves time for the others.
_ASK_S = 3.0
#: The wait before a second look: a client that has just left may still be in a broker's list.
_AGAIN_S = 0.1
_POP_LOOKS = 5
#: Brokers list a silent client for 120 s. A holdfast client that is listed for longer without being a member of the
#: coordinator's group uses another store.
_SILENT_S = 150.0


class ForeignMemberWatch:
    """Looks for foreign members. One thread at a time."""

    def __init__(
        self,
        client: RemotingClient,
        coordinator: Coordinator,
        group: str,
        topics: Topics,
    ) -> None:
        """`topics`: has the group's queues. Clients that get their messages by POP are in no broker's list, so the
        queues themselves are checked."""
        self._client, self._coordinator, self._group, self._topics = client, coordinator, group, topics
        self._first_seen: dict[str, float] = {}
        #: Brokers that did not answer the last time, which was logged.
        self._silent: set[str] = set()

    def look(self, deadline: Deadline, *, pops_end_s: float = 0.0) -> list[str]:
        """Client ids of foreign members at the brokers that answer. A broker that is down gives messages to no client.

        Args:
            deadline: for all requests.
            pops_end_s: how long to wait for polls to end: a gRPC client that has just ended may have left one.

        Raises SourceError: no broker answers, or one refuses; StoreError.
        """
        found = self._seen(deadline)
        if found:
            SYSTEM_CLOCK.sleep(deadline.left_s(_AGAIN_S))
            found &= self._seen(deadline)
        pops_end = Deadline(deadline.left_s(pops_end_s))
        while (popping := self._popping(deadline)) and not found and not pops_end.passed:
            SYSTEM_CLOCK.sleep(pops_end.left_s(1.0))
        return sorted(found) + popping

    def error(self, found: Iterable[str]) -> ForeignMembers:
        """The error about foreign members."""
        return ForeignMembers(
            f"the group {self._group} has members that do not go by holdfast's plan: {', '.join(found)}. Brokers let "
            f"them read and commit what is given to others, so records would run twice or be lost: stop them, or use "
            f"another group (foreign_members='warn' goes on all the same)"
        )

    def _popping(self, deadline: Deadline) -> list[str]:
        """Consumers through a proxy. Only one that waits in a poll is seen, so several looks are taken."""
        queues = [queue for queue in self._topics.queues if not queue.topic.startswith(RETRY)]
        masters: dict[str, str] = {}
        for broker in {queue.broker for queue in queues}:
            with suppress(SourceUnavailable):
                masters[broker] = self._client.master(broker)
        found: list[str] = []
        for look in range(_POP_LOOKS if masters else 0):
            if look:
                SYSTEM_CLOCK.sleep(deadline.left_s(_AGAIN_S))
            if found := popped_topics(self._client, self._group, queues, masters, Deadline(deadline.left_s(_ASK_S))):
                break
        return [f"clients over gRPC (POP, of {topic})" for topic in found]

    def _seen(self, deadline: Deadline) -> set[str]:
        listed: set[str] = set()
        brokers = self._client.broker_names()
        silent: dict[str, SourceUnavailable] = {}
        for broker in brokers:
            try:
                listed.update(self._client.consumer_ids(broker, self._group, Deadline(deadline.left_s(_ASK_S))))
            except SourceUnavailable as error:
                silent[broker] = error
        if silent and len(silent) == len(brokers):
            raise silent[brokers[0]]
        for broker in silent.keys() - self._silent:
            _log.warning("the members of %s at %s are not known for now: %s", self._group, broker, silent[broker])
        self._silent = set(silent)
        members = {member.client_id for member in self._coordinator.members(self._group)}
        others = listed - members - {self._client.client_id}
        now = SYSTEM_CLOCK.now()
        self._first_seen = {each: self._first_seen.get(each, now) for each in others}
        return {each for each in others if not is_ours(each) or now - self._first_seen[each] > _SILENT_S}
