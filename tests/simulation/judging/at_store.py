"""AtStore: judges what the store lets sessions do (P4, from the store's side), and what sessions tell it.

It sees each call where the store applies it: its session, and what it changed. Only the store's specification is
watched so; the contracts hold the scripts to the same behaviour.
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
    """A position before a call."""

    owner: str | None
    epoch: int
    watermark: int
    above: OffsetSet
    running: dict[int, tuple[str, int]]
    #: The number of resets.
    again: int
    begun: bool

    def new(self, now: StoredPosition) -> set[int]:
        """The offsets that are done now and were not before."""
        if (now.watermark, now.above) == (self.watermark, self.above):
            return set()  # after most calls
        above = {*range(self.watermark, now.watermark), *now.above}
        return {offset for offset in above if offset >= self.watermark and offset not in self.above}


_NOTHING = _Was(None, 0, 0, OffsetSet(), {}, 0, False)


class _Noted(dict["ClaimKey", "Claimed | Finished"]):
    """Keys of the store, with the former states of those that changed since the last look."""

    was: dict[ClaimKey, Claimed | Finished | None]

    def __setitem__(self, key: ClaimKey, value: Claimed | Finished) -> None:
        self.was.setdefault(key, self.get(key))
        super().__setitem__(key, value)

    def __delitem__(self, key: ClaimKey) -> None:
        self.was.setdefault(key, self.get(key))
        super().__delitem__(key)


class AtStore:
    """Watches one store."""

    def __init__(self, stage: Stage, store: SimulatedStore) -> None:
        self._stage, self._store = stage, store
        self._server = 0
        #: Session -> the highest generation of its calls.
        self._generations: dict[str, int] = {}
        #: Position name -> log; and the number of logs when this was built.
        self._logs: dict[str, LogName] = {}
        self._known = 0

    def __call__(self, session: str, generation: int, apply: Callable[[], _T]) -> _T:
        """Apply a call, and judge what it changes."""
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
            # The group may have been reset to an offset above what is done, or it begins there.
            begins = self._stage.world.begins == "latest" and not was.begun
            if position.again == was.again and not begins and (new := was.new(position)):
                self._done(name, session, was, position, new)
        for key, had in keys.was.items():
            self._key(key, session, had, keys.get(key))
        return reply

    # ---- inside
    def _late(self, session: str, generation: int) -> None:
        """P7: a call that was given up and repeated must not be applied afterwards."""
        if self._server != self._store.server:
            self._server = self._store.server
            self._generations.clear()  # a replica may lack generations
        heard = self._generations.get(session, 0)
        self._generations[session] = max(heard, generation)
        if generation < heard and session in self._store.state.sessions:  # an unknown session cannot change anything
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
        """Judge that offsets in hand of a session only go when the owner takes them, or when it gives them back
        itself."""
        for offset, (holder, _) in was.running.items():
            if offset not in now.running and not now.is_done(offset) and session not in (now.owner, holder):
                self._broken("HANDS", f"{session} lets go of {name}@{offset}, which {holder} has in hand")

    def _done(self, name: str, session: str, was: _Was, now: StoredPosition, new: set[int]) -> None:
        """P4: only the owner marks, or the session that has that offset in hand. P3: a record's key is finished before
        its mark."""
        # The store may have lost a hand-over, or (open) was never told of it. Then the mark counts if the partition has
        # no owner.
        judges = self._stage.judges
        lost = (judges.forgotten or judges.open) and not (now.owner and self._store.alive(now.owner))
        for offset in sorted(new):
            holder = was.running.get(offset, ("", 0))[0]
            # A session that lets go marks in the same call.
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
        """P4: only its holder finishes a key or gives it back; it is not taken from a session that lives; a finished
        key stays finished."""
        if isinstance(had, Finished):
            self._broken("KEY", f"{session} changes {key}, which is done")
        elif isinstance(has, Finished) or has is None:
            # After a failover, or with an open store, a dead session's claim may stand though another did the work.
            if had is not None and had.session != session and (has is None or self._store.alive(had.session)):
                self._broken("KEY", f"{session} ends {key}, which {had.session} holds")
            elif (had is None or had.session != session) and not self._store.alive(session):
                self._broken("KEY", f"{session}, which is dead, ends {key}, which is not its own")
        elif had is not None and had != has and self._store.alive(had.session):
            self._broken("KEY", f"{session} takes {key} from {had.session}, which lives")

    def _record(self, name: str, offset: int) -> Placed | None:
        """The record of that offset; None = the position's name does not tell the log (see `queue_leases`)."""
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
