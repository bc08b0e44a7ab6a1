"""Troubles with brokers: either one stops the app, or it is reported from time to time while the app goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.inbox import Trouble
from holdfast.adapters.rocketmq.names import RETRY
from holdfast.adapters.rocketmq.remoting.answers import is_of_broker
from holdfast.errors import NotAuthorised, SourceFatal, SourceUnavailable, UnknownGroup
from holdfast.timing import SYSTEM_CLOCK

if TYPE_CHECKING:
    from holdfast.adapters.rocketmq.inbox import Alarm
    from holdfast.adapters.rocketmq.queue import Shared
    from holdfast.adapters.rocketmq.queues import Queues
    from holdfast.adapters.rocketmq.topics import Topics
    from holdfast.errors import SourceError

#: The time between two reports of the same trouble with a broker.
_TROUBLE_S = 10.0


class Troubles:
    """Raises the troubles that events bring, one by one. One thread.

    Args:
        queues: has the error at which reading stopped, and the refusals of commits.
        topics: all queues of the group.
        shared: says whether a broker has answered a pull.
    """

    def __init__(self, queues: Queues, topics: Topics, shared: Shared) -> None:
        self._queues, self._topics, self._shared = queues, topics, shared
        self._troubles: list[Trouble] = []
        self._alarms: list[Alarm] = []
        #: Broker, or (topic, broker) -> time of the last report.
        self._told: dict[str | tuple[str, str], float] = {}

    def add(self, event: Trouble | Alarm) -> None:
        """Note an event, for the next `raise_one`."""
        if isinstance(event, Trouble):
            self._troubles.append(event)
        else:
            self._alarms.append(event)

    def raise_one(self) -> None:
        """Raise one trouble, if there is one. A permanent one stops the app. The others are raised from time to time as
        SourceUnavailable, and only the queue that is refused stands still.

        A missing permission stops the app at its start. Once a broker has answered a pull, it counts as temporary: an
        administrator will restore it. It also counts as temporary for retry topics of other kinds of consumers, which
        the user has not named."""
        if self._queues.broken is not None:
            raise self._queues.broken
        troubles, self._troubles = self._troubles, []
        alarms, self._alarms = self._alarms, []
        for queue, error in troubles:
            closed = isinstance(error, NotAuthorised) and not (self._shared.let_in or queue.topic.startswith(RETRY))
            if closed or isinstance(error, SourceFatal):
                raise error
        for alarm in alarms:
            raise alarm.error
        refusal = self._queues.commits.lasting_refusal()
        if refusal is not None and self._is_of_the_group(refusal[1]):
            raise refusal[1]
        found = [(queue, f"{queue} cannot be read for now", error) for queue, error in troubles]
        if refusal is not None:
            found.append((refusal[0], f"{refusal[0]} waits for a commit, which its broker refuses", refusal[1]))
        now = SYSTEM_CLOCK.now()
        for queue, what, error in found:
            key = queue.broker if is_of_broker(error) else (queue.topic, queue.broker)
            if now - self._told.get(key, 0.0) > _TROUBLE_S:
                self._told[key] = now
                raise SourceUnavailable(f"{what}: {error}") from error

    def _is_of_the_group(self, refusal: SourceError) -> bool:
        """Whether a lasting refusal of commits means that the group cannot start: the broker says that the group is
        unknown, or refuses the commits of all queues. Otherwise only that queue stands still: if the app stopped, the
        next member would get the queue, and stop too."""
        if isinstance(refusal, UnknownGroup):
            return self._queues.commits.never_taken
        own = [queue for queue in self._topics.queues if not queue.topic.startswith(RETRY)]
        return bool(own) and self._queues.commits.refused_as_a_whole(own)
