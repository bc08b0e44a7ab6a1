"""Store: the store of a scripted world, with faults for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.dedup.claims import ClaimKey
from holdfast.testing.brokers.logs import position_name
from holdfast.testing.scripted.cluster import GROUP
from holdfast.testing.store import SimulatedStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.records import Record
    from holdfast.testing.brokers.kafka import MemoryBroker
    from holdfast.testing.scheduler import Scheduler
    from holdfast.testing.scripted.book import Work
    from holdfast.testing.scripted.cluster import Say


class Store:
    """The Redis of a scripted world: its faults. No method waits; `world.run` lets time pass."""

    def __init__(self, scheduler: Scheduler, broker: MemoryBroker, say: Say, forgot: Callable[[], None]) -> None:
        self._scheduler, self._broker, self._say, self._forgot = scheduler, broker, say, forgot
        #: The store itself.
        self.server = SimulatedStore(scheduler)
        self._times = 0
        self._forgotten: set[str] = set()

    def silent(self, for_s: float, *, hears: bool = False) -> None:
        """Answer nothing for `for_s` virtual seconds. With `hears`, calls arrive and are applied all the same."""
        self._say("test", f"the store gives no answer for {for_s:g} s{', though it hears' if hears else ''}")
        self.server.network.go_silent(hears=hears)
        self._later(for_s, "the store answers again", self.server.network.speak)

    def refuses(self, for_s: float) -> None:
        """Refuse credentials for `for_s` virtual seconds."""
        self._say("test", f"the store refuses credentials for {for_s:g} s")
        self.server.network.refuse()
        self._later(for_s, "the store takes credentials again", lambda: self.server.network.refuse(""))

    def slow(self, up_to_s: float) -> None:
        """From now on each call, and each answer, takes up to so many seconds; 0 = as before."""
        self._say("test", f"the store is up to {up_to_s:g} s away")
        self.server.network.slow(up_to_s)

    def empty(self) -> None:
        """Lose all data, as a Redis does that restarts without persistence."""
        self._say("test", "the store loses all that it knew")
        self._forgot()
        self._forgotten |= self.server.state.sessions.keys()
        self.server.empty()

    # ---- Sight
    def alive(self, session: str) -> bool:
        """Whether that session lives. An unknown session does: it belongs to an app without claims."""
        state = self.server.state
        return session not in self._forgotten and (session not in state.sessions or state.alive(session))

    def done(self, work: Work, record: Record) -> bool:
        """Whether that work is done, as the store has it."""
        if work.scope:
            return self.server.is_finished(ClaimKey(*work))
        partition = record.partition
        name = position_name(GROUP, partition, self._broker.id_of(partition.topic))
        return self.server.is_done(name, record.offset)

    def _later(self, for_s: float, what: str, call: Callable[[], None]) -> None:
        self._times = mine = self._times + 1

        def then() -> None:
            if mine == self._times:  # else a later fault has begun, with an end of its own
                self._say("test", what)
                call()

        self._scheduler.at(self._scheduler.now + for_s, then)
