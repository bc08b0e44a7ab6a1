"""Claiming: asks the store for business keys in batches; a record with a BUSY key parks, its followers hold no key.

A run's claims are asked for and finished in one go; where they do not all go the same way, `Claiming.each` takes it
apart, and each record goes on with its own verdict. Then who stood behind a parked record of another key is free to ask
(`Lanes.wanted`).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from holdfast.dedup.claims import Verdict
from holdfast.plugin.engine.record.entry import EntryState
from holdfast.plugin.retrying.retry import Retry
from holdfast.runtime import MACHINE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from random import Random

    from holdfast.dedup.claims import Claim, ClaimKey
    from holdfast.plugin.engine.record.entry import Entry
    from holdfast.plugin.engine.record.lanes import Lanes
    from holdfast.plugin.engine.store.owed import Owed
    from holdfast.plugin.engine.timers import Timers

#: When to ask again for a key that another member holds. The jitter keeps two that gave keys back to each other from
#: meeting again for ever.
_BUSY = Retry(attempts=1_000_000_000, wait_initial_s=0.02, wait_max_s=0.5, jitter_s=0.02)
_PARKED = RuntimeError("busy")


class Claiming:
    """The claims of one app. One thread.

    Args:
        skip: takes a record whose key is done.
    """

    def __init__(
        self, lanes: Lanes, timers: Timers, owed: Owed, skip: Callable[[Entry], None], chance: Random = MACHINE.random
    ) -> None:
        self._chance = chance
        self._lanes, self._timers, self._owed, self._skip = lanes, timers, owed, skip
        self._wanted = lanes.wanted
        #: Keys that a record of this process holds or asks for, and who waits for them here: records of one key in one
        #: process need not ask the store about each other. The holder is the claim and not the entry: a claim goes with
        #: its record into whichever piece of a run that comes to be in.
        self._holders: dict[ClaimKey, Claim] = {}
        self._waiters: dict[ClaimKey, deque[Entry]] = {}
        #: Whether the last step had anything to ask.
        self.asked = False

    @property
    def wanted(self) -> int:
        """Entries whose key is to be asked for."""
        return len(self._wanted)

    def want(self, entry: Entry) -> None:
        """Ask for the entry's key in the next step."""
        if entry.state is EntryState.CLAIM:
            self._wanted.ask(entry)

    def resume(self, entry: Entry) -> None:
        """A former owner has given the entry back: its turn, or its key; behind one that is parked it holds none."""
        asks = EntryState.BEHIND_BUSY_KEY if entry.follows else EntryState.CLAIM
        entry.state = EntryState.READY if entry.claim is None else asks
        self.want(entry)
        self._lanes.wake(entry.lane)

    def comes_again(self, entry: Entry) -> None:
        """An entry that failed is tried again: behind one that was put back meanwhile and is parked it holds no key."""
        if (parked := entry.lane.parked) is not None:
            self._hold_nothing_behind(parked)

    def step(self, ask: Callable[[Sequence[Claim]], Sequence[Verdict]], at_most: int) -> bool:
        """One call for all keys that are wanted. False = the session is fenced.

        Args:
            ask: the session's `claim`, or `StoreExchange.ask`.
            at_most: records of one call.

        Raises StoreUnavailable: nothing is known then; all of them are asked for again in a later step.
        """
        asked = self._choose(at_most)
        self.asked = bool(asked)
        if not asked:
            return True
        for entry in asked:
            entry.held = True  # until the answer says otherwise: it has to be given back either way
        try:
            verdicts = ask([claim for entry in asked for claim in entry.asked_for])
        except BaseException:
            self._wanted.ask_first(asked)
            raise
        fenced = False
        for entry, verdict in self.each(asked, verdicts, Verdict.NEW):
            if entry.state is not EntryState.CLAIM:
                continue  # one before it in its lane found its key BUSY: given back already
            if verdict is Verdict.NEW:
                entry.state = EntryState.READY
                if entry.asked:  # else it is as its class has it, and the entry is smaller by half
                    entry.asked = 0
                entry.lane.go_on_behind(entry, self._wanted)
                self._lanes.wake(entry.lane)
            elif verdict is Verdict.DONE:
                self._done(entry)
            elif verdict is Verdict.BUSY:
                entry.held = False
                self._park(entry, wary=True)
                entry.asked += 1
                wait_s = _BUSY.wait_s(entry.asked, _PARKED, self._chance) or 0.0
                self._timers.after(wait_s, lambda e=entry: self._ask_again(e))  # type: ignore[misc]
            else:
                entry.held = False
                self._wanted.ask(entry)
                fenced = True
        return not fenced

    def each(
        self, entries: Sequence[Entry], verdicts: Sequence[Verdict], well: Verdict
    ) -> Iterator[tuple[Entry, Verdict]]:
        """Entries with their verdicts; a run whose claims did not all go well as its records."""
        at = 0
        for entry in entries:
            own = verdicts[at : at + entry.count]
            at += entry.count
            if own.count(well) == len(own):
                yield entry, well
            else:
                yield from zip(self.apart(entry), own, strict=True)

    def apart(self, run: Entry) -> list[Entry]:
        """An entry for each record of a run, with its own claim."""
        return self._lanes.apart(run) if run.count > 1 else [run]

    def give_back(self, entry: Entry) -> None:
        """The entry will not run here, or not now: its key is free, here and (owed) in the store."""
        if entry.held:
            for claim in entry.asked_for:
                self._owed.unclaim(entry.owner.session_, claim)
            entry.held = False
        self.free(entry)
        entry.lane.go_on_without(entry, self._wanted)

    def free(self, entry: Entry) -> None:
        """The entry no longer holds or asks for its keys: of those who wait for one here, the first asks."""
        for claim in entry.asked_for:
            if self._holders.get(claim.key) is not claim:
                continue
            del self._holders[claim.key]
            waiters = self._waiters.get(claim.key)
            while waiters:
                waiter = waiters.popleft()
                if waiter.state is EntryState.BUSY and waiter is not entry and waiter.claim is not None:
                    self._holders[claim.key] = waiter.claim
                    self._wanted.ask(waiter)
                    break
            if waiters is not None and not waiters:
                del self._waiters[claim.key]

    # ---- inside
    def _choose(self, at_most: int) -> list[Entry]:
        asked: list[Entry] = []
        count = 0
        while self._wanted and count < at_most:
            entry = self._wanted.take()
            if entry.state is not EntryState.CLAIM or entry.claim is None:
                continue
            if self._hold_all(entry.asked_for):
                asked.append(entry)
                count += entry.count
                if not entry.lane.wary:
                    entry.lane.let_ask(self._wanted)
            elif entry.count > 1:
                self._wanted.ask_first(self.apart(entry))
            else:
                self._waiters.setdefault(entry.claim.key, deque()).append(entry)
                self._park(entry)
        return [entry for entry in asked if entry.state is EntryState.CLAIM]

    def _hold_all(self, claims: Sequence[Claim]) -> bool:
        """Make them the holders of their keys; none of them, if one key is another's, or two of them have the same."""
        wanted = {claim.key: claim for claim in claims}
        if len(wanted) < len(claims):
            return False
        holders = self._holders
        if not holders.keys().isdisjoint(wanted) and any(
            holders.get(key, claim) is not claim for key, claim in wanted.items()
        ):
            return False
        holders.update(wanted)
        return True

    def _done(self, entry: Entry) -> None:
        """Settle an entry whose key is done: it is a duplicate, and so are all who wait for that key here."""
        entry.held = False
        claims = entry.asked_for
        for key in [claim.key for claim in claims if self._holders.get(claim.key) is claim]:
            del self._holders[key]
            for other in self._waiters.pop(key, ()):
                if other.state is EntryState.BUSY:
                    self._skipped(other)
        self._skipped(entry)

    def _skipped(self, entry: Entry) -> None:
        entry.lane.go_on_behind(entry, self._wanted)
        self._skip(entry)
        self._lanes.wake(entry.lane)  # it ends without coming back from a worker: who waits behind it may start now

    def _park(self, entry: Entry, *, wary: bool = False) -> None:
        """Followers of a parked entry give their claims back, or two members would wait for each other for ever."""
        entry.state = EntryState.BUSY
        self._hold_nothing_behind(entry, wary=wary)

    def _hold_nothing_behind(self, entry: Entry, *, wary: bool = False) -> None:
        for other in entry.lane.park(entry, wary=wary):
            other.state = EntryState.BEHIND_BUSY_KEY
            self.give_back(other)

    def _ask_again(self, entry: Entry) -> None:
        if entry.state is EntryState.BUSY:
            self._wanted.ask(entry)
