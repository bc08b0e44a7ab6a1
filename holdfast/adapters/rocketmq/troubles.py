"""Troubles with brokers: either one stops the app, or it is reported from time to time while the app goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.names import RETRY
from holdfast.adapters.rocketmq.remoting.answers import is_of_broker
from holdfast.errors import NotAuthorised, SourceFatal, SourceUnavailable, UnknownGroup
from holdfast.timing import SYSTEM_CLOCK

if TYPE_CHECKING:
    import threading

    from holdfast.adapters.rocketmq.logs import Logs
    from holdfast.adapters.rocketmq.offsets import Offsets
    from holdfast.adapters.rocketmq.prefetch import Prefetch
    from holdfast.adapters.rocketmq.topics import Topics
    from holdfast.adapters.rocketmq.watch import Watch
    from holdfast.errors import SourceError

#: The time between two reports of the same trouble with a broker.
_TROUBLE_S = 10.0


class Troubles:
    """Raises the troubles that other parts have found. One thread; `changed` guards lists that others write."""

    def __init__(
        self,
        prefetch: Prefetch,
        logs: Logs,
        watch: Watch,
        offsets: Offsets,
        topics: Topics,
        *,
        changed: threading.Condition,
    ) -> None:
        self._prefetch, self._logs, self._watch, self._offsets = prefetch, logs, watch, offsets
        self._topics, self._changed = topics, changed
        #: Broker, or (topic, broker) -> time of the last report.
        self._told: dict[str | tuple[str, str], float] = {}

    def raise_one(self) -> None:
        """Raise one trouble, if there is one. A permanent one stops the app. The others are raised from time to time as
        SourceUnavailable, and only the queue that is refused stands still.

        A missing permission stops the app at its start. Once a broker has answered a pull, it counts as temporary: an
        administrator will restore it. It also counts as temporary for retry topics of other kinds of consumers, which
        the user has not named."""
        if self._prefetch.broken is not None:
            raise self._prefetch.broken
        with self._changed:
            alarms, self._watch.alarms = self._watch.alarms, []
            troubles = [*self._prefetch.troubles, *self._logs.troubles]
            self._prefetch.troubles.clear()
            self._logs.troubles.clear()
        if troubles:
            self._watch.broker_was_away()
        for queue, error in troubles:
            closed = isinstance(error, NotAuthorised) and not (self._prefetch.let_in or queue.topic.startswith(RETRY))
            if closed or isinstance(error, SourceFatal):
                raise error
        for error in alarms:
            raise error
        refusal = self._offsets.lasting_refusal()
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
            return self._offsets.never_taken
        own = [queue for queue in self._topics.queues if not queue.topic.startswith(RETRY)]
        return bool(own) and self._offsets.refused_as_a_whole(own)
