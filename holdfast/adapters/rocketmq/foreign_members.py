"""Foreign members: members of a broker's group that do not go by the plan, and read queues that are given to others."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.names import is_ours
from holdfast.errors import ForeignMembers, SourceUnavailable
from holdfast.timing import SYSTEM_CLOCK, Deadline

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.adapters.rocketmq.remoting import RemotingClient
    from holdfast.dedup.coordinator import Coordinator

_log = logging.getLogger("holdfast.rocketmq")

#: One broker that does not answer does not keep us from asking the others.
_ASK_S = 3.0
#: Who has just left may still be in a broker's list.
_AGAIN_S = 0.1
#: A broker keeps a silent member for 120 s: one of our kind that is no member for longer goes by another store.
_SILENT_S = 150.0


class ForeignMemberWatch:
    """Looks for them. One thread at a time."""

    def __init__(self, client: RemotingClient, coordinator: Coordinator, group: str) -> None:
        self._client, self._coordinator, self._group = client, coordinator, group
        self._first_seen: dict[str, float] = {}
        #: Brokers that have not answered, which was told.
        self._silent: set[str] = set()

    def look(self, deadline: Deadline) -> list[str]:
        """Client ids, as far as brokers answer: one that is away gives nothing to anybody either.

        Raises SourceError: none answers, or one refuses; StoreError.
        """
        found = self._seen(deadline)
        if found:
            SYSTEM_CLOCK.sleep(deadline.left_s(_AGAIN_S))
            found &= self._seen(deadline)
        return sorted(found)

    def error(self, found: Iterable[str]) -> ForeignMembers:
        """The error to tell of foreign members."""
        return ForeignMembers(
            f"the group {self._group} has members that do not go by holdfast's plan: {', '.join(found)}. Brokers let "
            f"them read and commit what is given to others, so records would run twice or be lost: stop them, or use "
            f"another group (foreign_members='warn' goes on all the same)"
        )

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
            _log.warning("who is in the group %s at %s is not known for now: %s", self._group, broker, silent[broker])
        self._silent = set(silent)
        members = {member.client_id for member in self._coordinator.members(self._group)}
        others = listed - members - {self._client.client_id}
        now = SYSTEM_CLOCK.now()
        self._first_seen = {each: self._first_seen.get(each, now) for each in others}
        return {each for each in others if not is_ours(each) or now - self._first_seen[each] > _SILENT_S}
