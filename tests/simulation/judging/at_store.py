"""At the store: a judge of what it lets sessions do (P4 from its side), and of what they tell it.

It sees each call where it is applied: by which session, and what it has changed. The specification's store alone is
looked at so; that the scripts do the same is held by the contracts.
"""

from __future__ import annotations

from bisect import bisect_left
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from holdfast.dedup.memory_state import Claimed, Finished
from holdfast.dedup.offset_set import OffsetSet

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.dedup.claims import ClaimKey
    from holdfast.dedup.memory_state import StoredPosition
    from holdfast.testing.store import SimulatedStore
    from tests.simulation.playing.book import LogName, Placed
    from tests.simulation.playing.stage import Stage

_T = TypeVar("_T")

_OFFSET = attrgetter("offset")


class _Was(NamedTuple):
    """A position as it was before a call."""

    owner: str | None
    epoch: int
    watermark: int
    above: OffsetSet
    running: dict[int, tuple[str, int]]
    #: Changed by a reset.
    again: int
    begun: bool

    def new(self, now: StoredPosition) -> set[int]:
        """The offsets that are done now, and were not."""
        if (now.watermark, now.above) == (self.watermark, self.above):
            return set()  # as after most calls
        above = {*range(self.watermark, now.watermark), *now.above}
        return {offset for offset in above if offset >= self.watermark and offset not in self.above}


_NOTHING = _Was(None, 0, 0, OffsetSet(), {}, 0, False)


class _Noted(dict["ClaimKey", "Claimed | Finished"]):
    """Keys, and what was changed had been since somebody has asked."""

    was: dict[ClaimKey, Claimed | Finished | None]

    def __setitem__(self, key: ClaimKey, value: Claimed | Finished) -> None:
        self.was.setdefault(key, self.get(key))
        super().__setitem__(key, value)

    def __delitem__(self, key: ClaimKey) -> None:
        self.was.setdefault(key, self.get(key))
        super().__delitem__(key)


class AtStore:
    """Looks on at one store."""

    def __init__(self, stage: Stage, store: SimulatedStore) -> None:
        self._stage, self._store = stage, store
        self._server = 0
        #: The highest generation that a session was heard with.
        self._generations: dict[str, int] = {}
        #: By the names of positions; and how many logs there were then.
        self._logs: dict[str, LogName] = {}
        self._known = 0

    def __call__(self, session: str, generation: int, apply: Callable[[], _T]) -> _T:
        """A call arrives, and is applied."""
        state = self._store.state
        self._late(session, generation)
        before = {
            name: _Was(p.owner, p.epoch, p.watermark, OffsetSet(p.above), dict(p.running), p.again, p.begun)
            for name, p in state.positions.items()
        }
        keys = state.keys = state.keys if isinstance(state.keys, _Noted) else _Noted(state.keys)
        keys.was = {}
        reply = apply()
        for name, position in state.positions.items():
            was = before.get(name, _NOTHING)
            self._owner(name, session, was, position)
            self._handed_over(name, session, was, position)
            # Somebody may have reset the group to an offset above what is done, or it begins there.
            begins = self._stage.world.begins == "latest" and not was.begun
            if position.again == was.again and not begins and (new := was.new(position)):
                self._done(name, session, was, position, new)
        for key, had in keys.was.items():
            self._key(key, session, had, keys.get(key))
        return reply

    # ---- inside
    def _late(self, session: str, generation: int) -> None:
        """P7: what was given up, and is asked again, is not heard any more."""
        if self._server != self._store.server:
            self._server = self._store.server
            self._generations.clear()  # a replica may know less
        heard = self._generations.get(session, 0)
        self._generations[session] = max(heard, generation)
        if generation < heard and session in self._store.state.sessions:  # one that is not known can do nothing
            self._broken("LATE", f"a call of {session} with generation {generation} counts, after one with {heard}")

    def _owner(self, name: str, session: str, was: _Was, now: StoredPosition) -> None:
        if now.owner in (was.owner, None):
            return
        if now.owner != session:
            self._broken("OWNER", f"a call of {session} makes {now.owner} the owner of {name}")
        elif was.owner is not None and self._store.alive(was.owner):
            self._broken("OWNER", f"{session} takes {name} from {was.owner}, which lives")
        elif now.epoch <= was.epoch:
            self._broken("OWNER", f"{session} takes {name} over, and its epoch {now.epoch} is not above {was.epoch}")

    def _handed_over(self, name: str, session: str, was: _Was, now: StoredPosition) -> None:
        """Judge records that a session has in hand: the owner took them from it, or it gave them back itself."""
        for offset, (holder, _) in was.running.items():
            if offset not in now.running and not now.is_done(offset) and session not in (now.owner, holder):
                self._broken("HANDS", f"{session} lets go of {name}@{offset}, which {holder} has in hand")

    def _done(self, name: str, session: str, was: _Was, now: StoredPosition, new: set[int]) -> None:
        """P4: only the owner marks, and who has been handed over exactly that. P3: what has a key is finished first."""
        # What was handed over may be lost, and its hand-over too, or an open store never heard of it: its mark counts
        # where nobody owns the partition.
        judges = self._stage.judges
        lost = (judges.forgotten or judges.open) and not (now.owner and self._store.alive(now.owner))
        for offset in sorted(new):
            holder = was.running.get(offset, ("", 0))[0]
            # Who lets go marks with the same call.
            if session not in (was.owner, now.owner, holder) and not lost:
                self._broken("ZOMBIE", f"{session} marks {name}@{offset}, and {now.owner} owns it")
        world = self._stage.world
        if self._stage.judges.forgotten or world.loop is not None or world.settings.store_down == "open":
            return
        for offset in sorted(new):
            record = self._record(name, offset)
            if record is None or not record.unit.business or record.letter_of is not None:
                continue
            if record.excused or record.sent_back or session in record.letters_of:
                continue
            if record.unit.key is not None and not self._stage.finished(record.unit.key):
                self._broken("UNFINISHED", f"{session} marks {record}, and its key is not done")

    def _key(self, key: ClaimKey, session: str, had: Claimed | Finished | None, has: Claimed | Finished | None) -> None:
        """P4: a key is done, or given back, by who holds it; it is taken from nobody who lives; done it stays so."""
        if isinstance(had, Finished):
            self._broken("KEY", f"{session} changes {key}, which is done")
        elif isinstance(has, Finished) or has is None:
            # A failover, or an open store, may have left a dead session's claim where another has done the work.
            if had is not None and had.session != session and (has is None or self._store.alive(had.session)):
                self._broken("KEY", f"{session} ends {key}, which {had.session} holds")
            elif (had is None or had.session != session) and not self._store.alive(session):
                self._broken("KEY", f"{session}, which is dead, ends {key}, which is not its own")
        elif had is not None and had != has and self._store.alive(had.session):
            self._broken("KEY", f"{session} takes {key} from {had.session}, which lives")

    def _record(self, name: str, offset: int) -> Placed | None:
        """The record of that offset; None where the position's name does not say of which log (see `queue_leases`)."""
        stage = self._stage
        if name not in self._logs or len(stage.book.logs) != self._known:
            self._known = len(stage.book.logs)
            of_name: dict[str, list[LogName]] = {}
            for log in stage.book.logs:
                of_name.setdefault(stage.name_of(log), []).append(log)
            self._logs = {each: logs[0] for each, logs in of_name.items() if len(logs) == 1}
        records = stage.book.logs[self._logs[name]] if name in self._logs else []
        at = bisect_left(records, offset, key=_OFFSET)
        return records[at] if at < len(records) and records[at].offset == offset else None

    def _broken(self, rule: str, what: str) -> None:
        self._stage.judges.broken(rule, what)
