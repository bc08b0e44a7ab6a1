"""Trouble with brokers: it stops the app, or is told now and then while the app goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.names import RETRY
from holdfast.adapters.rocketmq.remoting.answers import is_of_broker
from holdfast.errors import NotAuthorised, SourceFatal, SourceUnavailable
from holdfast.timing import SYSTEM_CLOCK

if TYPE_CHECKING:
    import threading

    from holdfast.adapters.rocketmq.logs import Logs
    from holdfast.adapters.rocketmq.offsets import Offsets
    from holdfast.adapters.rocketmq.prefetch import Prefetch
    from holdfast.adapters.rocketmq.watch import Watch

#: The same trouble with a broker is told that often.
_TROUBLE_S = 10.0


class Troubles:
    """One thread; `changed` guards what others bring."""

    def __init__(
        self, prefetch: Prefetch, logs: Logs, watch: Watch, offsets: Offsets, changed: threading.Condition
    ) -> None:
        self._prefetch, self._logs, self._watch, self._offsets = prefetch, logs, watch, offsets
        self._changed = changed
        #: By broker, or by topic and broker.
        self._told: dict[str | tuple[str, str], float] = {}

    def raise_one(self) -> None:
        """Raise one of them, if there are any. What a broker will never do stops the app; the rest is told, now and
        then: a queue that is refused stands still by itself. Rights that are missing are an error of the start; once a
        broker has let us in, they are a slip that somebody mends. So they are for what another way of consumption has
        left, which nobody has named."""
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
        if (refusal := self._offsets.lasting_refusal()) is not None:
            if self._offsets.never_taken:
                raise refusal[1]
            troubles.append(refusal)
        now = SYSTEM_CLOCK.now()
        for queue, error in troubles:
            key = queue.broker if is_of_broker(error) else (queue.topic, queue.broker)
            if now - self._told.get(key, 0.0) > _TROUBLE_S:
                self._told[key] = now
                raise SourceUnavailable(f"{queue} cannot be read for now: {error}") from error
