"""Lanes: decide which records run one after the other, and which may start. Pure scheduling; one thread.

A lane is a Kafka key, a partition or a record, as `Settings.ordering` says; a business key has nothing to do with it.

Followers of a parked record stand in a deque of their own, and are let out one by one as they ask
(`Lane.let_ask`): walked for each record that waits, a lane would cost by its square. What another member holds is
only known by asking, and those asked for behind it were asked for in vain: such a lane is *wary*, and lets two ask for
each that has got its key.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from itertools import chain
from typing import TYPE_CHECKING

from holdfast.plugin.engine.record.entry import Entry, EntryState, Lane, Wanted
from holdfast.plugin.engine.record.settling import Unacked
from holdfast.plugin.engine.record.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from holdfast.plugin.handlers import Handler, Kind
    from holdfast.records import Partition


#: So many of a key count as about to start.
_SOON = 16


class Lanes:
    """All lanes, and those whose first entry may start. A lane's key is one of its partition."""

    def __init__(self, unacked: Unacked | None = None) -> None:
        self.unacked = unacked or Unacked()
        self._lanes: dict[Partition, dict[Hashable, Lane]] = {}
        #: By the kind of handler of their first entry: a kind that may not start now does not stand before others.
        self._ready: dict[Kind, Turns] = {}
        #: What becomes ready is to go first, and has become so: in `first`.
        self._first: list[Lane] | None = None
        #: Records that are with the workers.
        self.taken = 0
        #: Entries whose keys are to be asked for.
        self.wanted = Wanted()

    def __len__(self) -> int:
        """Keys that have a lane."""
        return sum(map(len, self._lanes.values()))

    def ready(self, kind: Kind) -> int:
        """Lanes whose first entry, of that kind, may start."""
        return len(self._ready.get(kind, ()))

    def of(self, partition: Partition) -> dict[Hashable, Lane]:
        """A partition's lanes by their keys."""
        return self._lanes.setdefault(partition, {})

    def clear(self) -> None:
        """Nothing waits any more: what is here was left by a call that was torn."""
        self._lanes.clear()
        self._ready.clear()

    # ---- in
    def add(self, entry: Entry, key: Hashable) -> None:
        """Put an entry behind all others of its lane."""
        lanes = self.of(entry.record.partition)
        lane = lanes.get(key)
        if lane is None:
            lane = lanes[key] = Lane(lanes, key)
        entry.lane = lane
        if lane.keys is not None:
            entry.keys = [key] * entry.count
        lane.add(entry)
        self.wake(lane)

    def begin(self, run: Entry, lane: Lane) -> None:
        """Put a run into a lane that was made for its keys, and is known by them in `of`."""
        keys = lane.keys or [lane.key]
        run.lane, run.keys, lane.key = lane, keys, keys[0]
        if run.count == 1:
            lane.keys = None
        lane.entries.append(run)
        self.wake(lane)

    def put_back(self, entry: Entry) -> None:
        """An entry that had ended, or was given away, must run: where its offset belongs."""
        before, key, offset = entry.lane, entry.lane.key, entry.record.offset
        with suppress(ValueError):  # it may not have left yet, behind another that had not ended
            before.entries.remove(entry)
        lane = before.home.setdefault(key, before)
        if lane.keys is not None and lane is not before:
            # A run with its key has come meanwhile, and has begun a lane of several keys. It waits for us, if it can.
            if not lane.taken:
                self._part(lane)
                lane = before.home.setdefault(key, before)
            else:
                entry.keys = [key]
        entry.lane = lane
        later = (at for at, other in enumerate(lane.entries) if other.record.offset > offset or other is lane.parked)
        place = next(later, len(lane.entries))
        lane.entries.insert(place, entry)
        self.wake(lane)

    # ---- what may start
    def wake(self, lane: Lane) -> None:
        """Look again: the lane's first entry may start now, or the lane is empty."""
        head = lane.head()
        if head is None:
            if not lane.taken:
                self._leave(lane)
        elif not lane.queued and not lane.taken and head.state is EntryState.READY:
            lane.queued = True
            if self._first is None:
                self._turns(head).append(head.handler.name, head.record.partition, lane)
            else:
                self._first.append(lane)

    def _turns(self, head: Entry) -> Turns:
        turns = self._ready.get(head.handler.kind)
        if turns is None:
            turns = self._ready[head.handler.kind] = Turns()
        return turns

    @contextmanager
    def first(self) -> Iterator[None]:
        """Put what becomes ready meanwhile ahead of the others of its partition: it is older. Behind all of them, it
        would keep the offset from being committed."""
        self._first = []
        try:
            yield
        finally:
            lanes, self._first = self._first, None
            for lane in reversed(lanes):
                lane.queued = False
                if (head := lane.head()) is not None:
                    lane.queued = True
                    self._turns(head).append(head.handler.name, head.record.partition, lane, ahead=True)

    def wake_all(self) -> None:
        """Look at every lane again."""
        for lanes in self._lanes.values():
            for lane in list(lanes.values()):
                self.wake(lane)

    @property
    def kinds(self) -> list[Kind]:
        """The kinds of handlers that have a record which may start."""
        return [kind for kind, ready in self._ready.items() if ready]

    def next(self, kind: Kind | None = None) -> Lane | None:
        """The lane whose turn it is, of that kind or of any: see `Turns`."""
        for each in self.kinds if kind is None else (kind,):
            turns = self._ready.get(each)
            while turns is not None and (lane := turns.pop()) is not None:
                if self._may_start(lane, each):
                    return lane
        return None

    def next_of(self, handler: Handler, partition: Partition | None = None) -> Lane | None:
        """The next ready lane of the handler's kind, if it is of that handler, and of one key: first of that partition,
        whose turn it is."""
        lane, turns = None, self._ready.get(handler.kind)
        while (
            partition is not None and turns is not None and (lane := turns.pop_of(handler.name, partition)) is not None
        ):
            if self._may_start(lane, handler.kind):
                break
        lane = lane or self.next(handler.kind)
        head = lane.head() if lane else None
        if lane is None or head is None or (head.handler is handler and lane.keys is None):
            return lane
        self.wait(lane)
        return None

    def _may_start(self, lane: Lane, kind: Kind) -> bool:
        """Whether a lane that was ready still is; else it is looked at anew."""
        lane.queued = False
        head = lane.head()
        if head is not None and not lane.taken and head.state is EntryState.READY and head.handler.kind is kind:
            return True
        self.wake(lane)
        return False

    def wait(self, lane: Lane) -> None:
        """A lane that `next` gave does not start now: it is the next one of its kind again."""
        if (head := lane.head()) is not None:
            lane.queued = True
            self._turns(head).put_first(head.handler.name, head.record.partition, lane)

    def ready_records(self, at_most: int) -> int:
        """Records that may start now, counted up to `at_most`."""
        count = 0
        for lane in chain.from_iterable(self._ready.values()):
            count += lane.ready(at_most - count)
            if count >= at_most:
                break
        return count

    def ready_bytes(self, at_most: int) -> int:
        """The bytes of as many records that may start now, or a little more: whole runs are counted."""
        count = size = 0
        for lane in chain.from_iterable(self._ready.values()):
            for entry in lane.entries:
                if entry.over:
                    continue
                if count >= at_most or entry.state is not EntryState.READY:
                    break
                count += entry.count
                size += entry.size
        return size

    def behind(self) -> Iterator[tuple[Partition, int]]:
        """Yield the partitions that have records which cannot start soon, and how many: behind `_SOON` others of their
        key. Where all of a partition is one lane, all of it is what its handlers want next."""
        for partition, lanes in self._lanes.items():
            count = 0
            for key, lane in lanes.items():
                if lane.key is not None and lane.key == key:  # a lane of several keys is found by each of them
                    count += max(0, len(lane.entries) + len(lane.followers) - _SOON)
            if count:
                yield partition, count

    # ---- out and back
    def take(self, lane: Lane, at_most: int) -> list[Entry]:
        """Take consecutive ready records of one handler from the front of a lane that `next` gave. A run that began a
        lane of several keys goes as a whole and alone: who follows it may get a lane of its own."""
        taken: list[Entry] = []
        if lane.keys is not None and (head := lane.head()) is not None:
            at_most = head.count
        room = at_most
        for entry in lane.entries:
            if entry.over:
                continue
            if entry.state is not EntryState.READY or room <= 0 or (taken and entry.handler is not taken[0].handler):
                break
            taken.append(entry)
            room -= entry.count
        if room < 0:
            self._shorten(lane, taken[-1], taken[-1].count + room)
        for entry in taken:
            entry.taken()
            self.unacked.take(entry)
        lane.taken += len(taken)
        self.taken += min(at_most, at_most - room)
        return taken

    def give(self, lane: Lane, at_most: int) -> list[Entry]:
        """Give consecutive ready records of a lane that `next` gave away: they leave it, it goes on without them."""
        given: list[Entry] = []
        while at_most > 0 and (head := lane.head()) is not None and head.state is EntryState.READY:
            if head.count > at_most:
                self._shorten(lane, head, at_most)
            head.taken()
            given.append(lane.entries.popleft())
            at_most -= head.count
        self.wake(lane)
        return given

    def take_again(self, entry: Entry) -> None:
        """Take one that came back and stayed the first of its lane, for something else than its handler."""
        entry.taken()
        entry.lane.taken += 1
        self.taken += entry.count

    def back(self, entry: Entry, gate: EntryState) -> None:
        """A taken entry is back from the workers."""
        entry.state = gate
        if gate is not EntryState.ENDED and gate is not EntryState.STUCK:  # those wait for the store, or run on
            self.unacked.leave(entry)
        lane = entry.lane
        lane.taken -= 1
        self.taken -= entry.count
        if lane.keys is not None and lane.head() is not None:
            self._part(lane)
        else:
            self.wake(lane)

    def drop(self, entry: Entry) -> None:
        """An entry that was not taken leaves."""
        entry.state = EntryState.GONE
        self.unacked.leave(entry)
        self.wake(entry.lane)

    # ---- runs that meet trouble
    def apart(self, run: Entry) -> list[Entry]:
        """An entry for each record of a run, each in the lane of its own key."""
        lane = run.lane
        pieces = run.apart()
        lane.replace(run, pieces)
        if lane.keys is not None:
            for piece in pieces:
                if piece.over:  # it has left; put back, it begins a lane of its own
                    piece.lane = Lane(lane.home, piece.keys[0])
            self._part(lane)
        return pieces

    def shrink(self, run: Entry, ended: int, begun: int) -> tuple[Entry | None, list[Entry]]:
        """A worker is busy with one record of a run that it has taken: the run is that record alone from now on.

        Args:
            run: taken.
            ended: how many records before that one have ended.
            begun: `ended` and that one.

        Returns: what has ended, and what follows; all of it counts as taken.
        """
        rest = run.cut(begun) if begun < run.count else None
        head = run.behead(ended) if ended else None
        lane = run.lane
        lane.replace(run, [piece for piece in (head, run, rest) if piece is not None])
        following = [] if rest is None else [rest]
        if lane.keys is not None:
            if rest is not None:
                following = rest.apart()
                lane.replace(rest, following)
            self._part(lane)
        return head, following

    # ---- inside
    def _shorten(self, lane: Lane, run: Entry, at: int) -> None:
        """Cut a run: what comes behind its first `at` records becomes the next entry of its lane."""
        lane.replace(run, [run, run.cut(at)])

    def _leave(self, lane: Lane) -> None:
        for key in (lane.key,) if lane.keys is None else lane.keys:
            if lane.home.get(key) is lane:
                del lane.home[key]

    def _part(self, lane: Lane) -> None:
        """Each key of the lane gets a lane of its own."""
        self._leave(lane)
        parked, entries = lane.take_apart()
        for entry in entries:
            pieces = entry.apart() if entry.count > 1 and entry.state is not EntryState.TAKEN else [entry]
            self._own_lanes(pieces, lane, parked)

    def _own_lanes(self, pieces: Sequence[Entry], lane: Lane, parked: Entry | None) -> None:
        for entry in pieces:
            if entry.over:
                continue
            key = entry.keys[0]
            own = lane.home.get(key)
            if own is None:
                own = lane.home[key] = Lane(lane.home, key)
            if not own.take_over(entry, parked=entry is parked):
                continue
            if entry.state is EntryState.BEHIND_BUSY_KEY or (
                entry.state is EntryState.CLAIM and entry is not pieces[0]
            ):
                self.wanted.ask(entry)  # it is no part of a run, or not behind a parked one, any more
            self.wake(own)
