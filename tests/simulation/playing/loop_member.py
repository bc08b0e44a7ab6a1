"""LoopMember: one process of a world in which a user's own loop around the engine handles records.

It makes the engine's calls that `KafkaConsumer` makes, under the same lock, in the same order. For the judges a record
begins when it is handed out, and ends when the loop reports it.
"""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING, Any, cast

from holdfast.dedup.keys import resolve_key
from holdfast.plugin.engine.partition.ownership import Phase
from holdfast.plugin.handlers import Handler, Routes
from holdfast.plugin.own_loop.driven import Driven
from holdfast.plugin.own_loop.moves import Moves
from tests.simulation.playing.member import Member

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from holdfast.plugin.engine.partition.ownership import Ownership
    from holdfast.plugin.ports import LeasedSource, PartitionedSource
    from holdfast.records import Partition, Record
    from holdfast.runtime import Queue
    from holdfast.testing.process import Process
    from tests.simulation.drawing.world import Loop, World
    from tests.simulation.playing.book import Placed, Run
    from tests.simulation.playing.stage import Stage

#: The part of seeks that go back before all that is done.
_REPLAYS = 0.1

_Place = tuple["Partition", int]


class LoopMember(Member):
    """One start of one process, with a user's loop in it."""

    def __init__(
        self, stage: Stage, name: str, process: Process, source: PartitionedSource | LeasedSource, loop: Loop
    ) -> None:
        super().__init__(stage, name, process, source)
        self._loop = loop
        #: Place -> runs of records that the loop has and has not reported or given back. There may be several: the
        #: topic was made again, or the partition taken over anew. The loop's next report counts for all of them.
        self._handed_out: dict[_Place, list[list[Run]]] = {}
        #: Records that it has taken and not handled; it handles the first.
        self._taken: deque[Record] = deque()
        self._uncommitted = 0
        self._chance = Random(f"{stage.world.seed} {name} seeks")
        #: Records for its other threads.
        self._jobs: Queue[Record] = process.runtime.queue()
        self.driven = _Driven(
            self,
            cast("PartitionedSource", source),
            done_when=loop.done_when,
            store=stage.store.claims(process),
            routes=_routes(stage.world),
            settings=stage.world.settings,
            observers=[self],
            runtime=process.runtime,
        )
        self._begin()

    @property
    def engine(self) -> Driven:
        """Implements `Member.engine`."""
        return self.driven

    def stop(self) -> None:
        """Implements `Member.stop`: the loop sees it when it comes round."""
        self.stops += 1

    def gone(self) -> None:
        """Implements `Member.gone`."""
        for given in self._handed_out.values():
            for runs in given:
                self.stage.judges.crashed(runs)
        self._handed_out.clear()

    # ---- what the engine says, with its lock
    def on_revoke(self, partitions: Collection[Partition]) -> None:
        """The user's on_revoke: the last chance to report what is done."""
        if self._loop.says_at_revoke and self._loop.done_when == "commit":
            for place in [place for place in self._handed_out if place[0] in partitions]:
                with self._saying([place]):
                    self.driven.end_below(place[0], place[1] + 1)

    def dismissed(self, partitions: Collection[Partition]) -> None:
        """Note that the loop's records of these partitions are left to other members."""
        for place in [place for place in self._handed_out if place[0] in partitions]:
            self._said(place, well=False)

    def done_elsewhere(self, partition: Partition, offset: int) -> None:
        """Note that another program's commit makes the loop's records below that offset done."""
        for place in [place for place in self._handed_out if place[0] == partition and place[1] < offset]:
            self._said(place, well=True)

    # ---- the loop
    def _main(self) -> None:
        loop, driven = self._loop, self.driven
        for number in range(loop.threads):
            self.process.runtime.spawn(self._handle_jobs, f"{self.name} thread {number}")
        try:
            with driven.lock, driven.whole():
                driven.begin([topic.name for topic in self.stage.world.topics])
            while not self.stops:
                try:
                    self._round()
                    self.interrupted = self._first_thread is not None and self._first_thread.is_to_be_interrupted
                except KeyboardInterrupt:
                    self.torn_at = self.stage.now
                    if loop.on_signal != "go on":
                        raise
        except KeyboardInterrupt:
            if loop.on_signal != "end":
                self._leave()
            raise
        except Exception:
            self._leave()
            raise
        self._leave()

    def _round(self) -> None:
        """One round of the loop. After a signal the next round goes on, and handles the record at which it struck
        anew."""
        loop = self._loop
        if not self._taken:
            self._taken.extend(self._take())
            self._uncommitted += len(self._taken)
        idle = not self._taken
        while self._taken:
            if loop.threads:
                self._jobs.put(self._taken[0])
            else:
                self._handle(self._taken[0])
            self._taken.popleft()
        calm = self.stage.now > self.stage.world.calm_s  # a loop that seeks for ever would never end
        if loop.seeks and not calm and self._chance.random() < loop.seeks:
            self._seek()
        if loop.done_when == "commit" and self._uncommitted and (self._uncommitted >= loop.commit_after or idle):
            self._commit()
            self._uncommitted = 0

    def _take(self) -> Sequence[Record]:
        """Take records as `KafkaConsumer.poll` and `consume` do."""
        loop, driven = self._loop, self.driven
        with driven.lock:
            if loop.done_when == "next_poll":
                self._all_done()
            if loop.at_most == 1 and loop.done_when == "next_poll" and (record := driven.take_quick()) is not None:
                self._given([record])
                driven.user.gave()
                return [record]
            with driven.whole():
                records = list(driven.take(loop.at_most, loop.wait_s))
                self._given(records)
                return records

    def _handle(self, record: Record) -> None:
        """Handle a record and report it, as the user does."""
        placed = self.stage.placed(record)
        self.process.runtime.sleep(placed.plan.takes_s)
        place = (record.partition, record.offset)
        self._look_whether_made_again(place, placed)
        if self.stage.fails.get(placed.number, 0) > 0:
            self.stage.fails[placed.number] -= 1
            if self._loop.gives_back and self._loop.done_when != "commit":
                self._said(place, well=False)
                self.driven.again(*place)
                return
        if self._loop.done_when == "explicit":
            if not self._said(place, well=True):
                self.stage.judges.handled_after_all(placed)
            self.driven.end(*place)

    def _handle_jobs(self) -> None:
        while True:
            self._handle(self._jobs.get())

    def _commit(self) -> None:
        """Commit as `KafkaConsumer.commit()` does."""
        driven = self.driven
        with driven.lock, driven.whole(), self._saying(list(self._handed_out)):
            driven.end_all()
            driven.collect()
            driven.settle()
            driven.family.partitions.commits.commit_moved(driven.family.owners.values())

    def _seek(self) -> None:
        """Seek as `KafkaConsumer.seek` does."""
        chance, driven, logs = self._chance, self.driven, self.stage.broker.logs
        with driven.lock, driven.whole():
            owned = driven.family.owners.items()
            able = sorted(each for each, owner in owned if owner.phase is Phase.OWNED and each in logs)
            if not able:
                return
            partition = chance.choice(able)
            watermark = driven.family.owners[partition].ledger.watermark
            start, end = logs[partition].start, logs[partition].end
            at = driven.user.position(partition)
            at = watermark if at is None else at
            offset = chance.choice(
                [at, chance.randint(min(watermark, at), at), at - 1, min(at + chance.randint(1, 5), end)]
            )
            if chance.random() < _REPLAYS:
                offset = chance.randint(start, max(start, watermark))
            self.stage.say(self.name, f"seeks from {at} to {offset} of {partition}, of which {watermark} is not done")
            driven.read_from(partition, max(offset, start))

    def moved(self, owner: Ownership, offset: int, at: int, *, back: bool) -> None:
        """Note that the loop's seek from `at` to `offset` was made. `back`: records from there on are handled again."""
        judges, log = self.stage.judges, self.stage.log(owner.partition)
        self.stage.say(self.name, f"reads {owner.partition} from {offset} on")
        for place in [
            place for place in self._handed_out if place[0] == owner.partition and (back or place[1] >= offset)
        ]:
            self._said(place, well=False)
        judges.forgets(log, offset)
        if not back:
            judges.passed_over(log, at, offset)

    def _leave(self) -> None:
        """Report what the loop has handled, or not; then close."""
        driven = self.driven
        with driven.lock, driven.whole():
            if self._loop.says_at_end and self._loop.done_when != "explicit":
                self._all_done()
                driven.end_all()
            driven.end_of_loop()

    # ---- for the judges
    def _look_whether_made_again(self, place: _Place, placed: Placed) -> None:
        """Check whether a thread's report of a record counts for another one, since its topic was made again
        meanwhile."""
        others = [runs for runs in self._handed_out.get(place, ()) if runs[0].record.log != placed.log]
        for runs in others:
            self._handed_out[place].remove(runs)
            self.stage.judges.ended(runs)
            self.stage.judges.in_doubt(runs)

    def _given(self, records: Sequence[Record]) -> None:
        for record in records:
            fence = record.fence
            placed = self.stage.placed(record)
            blind = self.stage.ground.is_blind(fence, placed)
            runs = self.stage.judges.started(self.name, fence.session, fence.epoch, [placed], blind=blind)
            self._handed_out.setdefault((record.partition, record.offset), []).append(runs)

    def _said(self, place: _Place, *, well: bool) -> bool:
        """End the run of that place. Returns: whether there is one. A thread may still have a record that was handed
        out before its partition was taken over anew; both reports are for the same place."""
        given = self._handed_out.pop(place, [])
        for runs in given:
            self.stage.judges.ended(runs, failed=() if well else runs)
        return bool(given)

    @contextmanager
    def _saying(self, places: Sequence[_Place]) -> Iterator[None]:
        """Around a call that reports these records as done. If a signal breaks it off, it may have been applied or
        not."""
        runs = [run for place in places for given in self._handed_out[place] for run in given]
        for place in places:
            self._said(place, well=True)
        try:
            yield
        except KeyboardInterrupt:
            self.stage.judges.in_doubt(runs)
            raise

    def _all_done(self) -> None:
        for place in list(self._handed_out):
            self._said(place, well=True)


class _Driven(Driven):
    """The engine, which calls the loop as a client's callbacks do."""

    def __init__(self, member: LoopMember, source: PartitionedSource, **how: Any) -> None:
        super().__init__(source, **how)
        self._member = member
        self.moves = _Moves(self, member)

    def on_revoke(self, partitions: Collection[Partition]) -> None:
        """Implements `Driven.on_revoke`."""
        self._member.on_revoke(partitions)
        super().on_revoke(partitions)

    def dismiss(self, partitions: Collection[Partition]) -> None:
        """Implements `Driven.dismiss`."""
        self._member.dismissed(partitions)
        super().dismiss(partitions)

    def done_elsewhere(self, partition: Partition, offset: int) -> None:
        """Implements `Driven.done_elsewhere`."""
        self._member.done_elsewhere(partition, offset)
        super().done_elsewhere(partition, offset)


class _Moves(Moves):
    """The engine's moves, which report each seek that is made, for the judges."""

    def __init__(self, driven: _Driven, member: LoopMember) -> None:
        super().__init__(driven.parts, driven.family.partitions, driven.user, driven.settle)
        self._member = member

    def _made(self, owner: Ownership, offset: int) -> bool:
        at, ledger = self._user.position(owner.partition), owner.ledger
        at = ledger.watermark if at is None else at
        made = super()._made(owner, offset)
        back = owner.phase is not Phase.OWNED  # the partition is taken over anew
        if made and (back or owner.ledger is not ledger):
            self._member.moved(owner, offset, at, back=back)
        return made


def _routes(world: World) -> Routes:
    routes = Routes()
    for each in world.handlers:
        key = resolve_key("unit") if each.keyed else None
        scope = "shared" if each.shared_scope else None
        routes.add(Handler(name=each.name, call=_not_called, topics=each.topics, scope=scope, key=key))
    return routes


def _not_called(_: object) -> None:
    raise AssertionError("the loop handles records by itself")
