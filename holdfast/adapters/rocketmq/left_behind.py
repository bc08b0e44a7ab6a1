"""Finds messages of the group that wait in retry topics which this kind of source does not read.

Messages sent back (by a RocketMQSource with retry="broker", a PushSource, RocketMQ's own clients) wait in
%RETRY%<group>. Messages given out by POP (as to a LeasedSource) and not acknowledged wait in a retry topic for each
topic. Brokers may take hours to move them there, so a check at the start is not enough.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.trouble_lines import TroubleLines
from holdfast.adapters.rocketmq.upkeep import Upkeep
from holdfast.errors import SourceError, UnknownTopic

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from holdfast.adapters.rocketmq.remoting import RemotingClient
    from holdfast.records import Partition
    from holdfast.timing import Deadline

_log = logging.getLogger("holdfast.rocketmq")

_LOOK_S = 10.0
_STOP_S = 1.0


class LeftBehind(SourceError):
    """Messages of the group wait in topics that neither this source nor another member reads."""


class LeftBehindWatch:
    """Looks for such messages. `start` may wait.

    Args:
        client: sends the requests; the caller closes it.
        group: the group's name at the brokers.
        topics: retry topics of other kinds of consumers, which this source does not read.
        readers: the kind of consumer that reads them, for the error.
        members_read: whether members that brokers list read them.
    """

    def __init__(
        self, client: RemotingClient, group: str, topics: Collection[str], *, readers: str, members_read: bool
    ) -> None:
        self._client, self._group, self._topics = client, group, sorted(topics)
        self._readers, self._members_read = readers, members_read
        self._told: TroubleLines[Partition] = TroubleLines(0.0)
        self._upkeep = Upkeep(f"{group}-left")
        self._upkeep.add("what another way of consumption has left", self._look_again, _LOOK_S)

    def start(self, deadline: Deadline) -> None:
        """Look now, then every 10 s. Brokers that do not answer are asked again.

        Raises:
            LeftBehind: messages wait there, and no member of the group reads them.
        """
        try:
            found = self.look(deadline)
        except SourceError as error:
            _log.info("what another way of consumption has left in %s is not known yet: %s", self._group, error)
        else:
            if found:
                raise LeftBehind(self._words(found))
        self._upkeep.start()

    def stop(self) -> None:
        """End. Idempotent."""
        self._upkeep.stop(_STOP_S)

    def look(self, deadline: Deadline) -> Mapping[Partition, int]:
        """Queue -> number of waiting messages. Queues that members of the group read are left out. Raises
        SourceError."""
        found: dict[Partition, int] = {}
        for route in self._client.routes_of(self._topics, deadline).values():
            if isinstance(route, UnknownTopic):
                continue
            if isinstance(route, SourceError):
                raise route
            for queue in route.queues(read=True):
                at = self._client.query_offset(queue, self._group, deadline)
                first, end = self._client.min_offset(queue, deadline), self._client.max_offset(queue, deadline)
                waits = end - max(first, at or 0)
                read = self._members_read and self._client.consumer_ids(queue.broker, self._group, deadline)
                if waits > 0 and not read:
                    found[queue] = waits
        return found

    def _look_again(self, deadline: Deadline) -> None:
        for queue, waits in self.look(deadline).items():
            if self._told.due(queue):
                _log.warning("%s", self._words({queue: waits}))

    def _words(self, found: Mapping[Partition, int]) -> str:
        where = ", ".join(f"{queue} ({waits})" for queue, waits in sorted(found.items())[:4])
        return (
            f"{sum(found.values())} messages of the group {self._group} wait where this source does not read: {where}. "
            f"They failed, or were under way, when the group was consumed in another way. Start {self._readers} in "
            f"this group until its lag is 0, and stop it in good order; or pass them over: mqadmin resetOffsetByTime "
            f"-g {self._group} -t {min(found).topic} -s now"
        )
