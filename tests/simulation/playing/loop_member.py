"""Loop member: one process of a world whose records are handled by a loop of the user's own, around the engine.

It does what `KafkaConsumer` does with the engine: the same calls, under the same lock, in the same order. To the
judges a record is begun when it is handed out, and ended when the loop has said so.
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

#: How many of its seeks go back behind what is done.
_REPLAYS = 0.1

_Place = tuple["Partition", int]


class LoopMember(Member):
    """One start of one process, with a user's loop in it."""

    def __init__(
        self, stage: Stage, name: str, process: Process, source: PartitionedSource | LeasedSource, loop: Loop
    ) -> None:
        super().__init__(stage, name, process, source)
        self._loop = loop
        #: What the loop has, and has not said to be done or given back. In one place there may be several: its topic
        #: was made again, or the partition taken over anew. What the loop says next counts for all of them.
        self._handed_out: dict[_Place, list[list[Run]]] = {}
        #: What it has taken and has not got to; the first is what it is at.
        self._taken: deque[Record] = deque()
        self._uncommitted = 0
        self._chance = Random(f"{stage.world.seed} {name} seeks")
        #: What its other threads are to handle.
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
        """Say what is done, as on_revoke: the last chance."""
        if self._loop.says_at_revoke and self._loop.done_when == "commit":
            for place in [place for place in self._handed_out if place[0] in partitions]:
                with self._saying([place]):
                    self.driven.end_below(place[0], place[1] + 1)

    def dismissed(self, partitions: Collection[Partition]) -> None:
        """Note that the loop's records of these partitions are others' to handle."""
        for place in [place for place in self._handed_out if place[0] in partitions]:
            self._said(place, well=False)

    def done_elsewhere(self, partition: Partition, offset: int) -> None:
        """Note that another program has said that what the loop has below that offset is done."""
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
        """Where a signal struck, the next one goes on. What it struck in the midst of is handled from its beginning."""
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
        calm = self.stage.now > self.stage.world.calm_s  # a loop that seeks for ever comes to no end
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
        """Handle a record, and say so, as the user does."""
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
            driven.family.ours.commits.commit_moved(driven.family.owners.values())

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
        """Note that a move from `at` to that offset was made. `back`: what was done from there on is done again."""
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
        """Say what the loop has handled, or not; then close."""
        driven = self.driven
        with driven.lock, driven.whole():
            if self._loop.says_at_end and self._loop.done_when != "explicit":
                self._all_done()
                driven.end_all()
            driven.end_of_loop()

    # ---- for the judges
    def _look_whether_made_again(self, place: _Place, placed: Placed) -> None:
        """Look whether what a thread says of a record counts for another one: its topic was made again meanwhile."""
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
        """End the run of that place. Returns: whether there is one; a thread may still have what was handed out before
        its partition was taken over anew, and both say what became of the same place."""
        given = self._handed_out.pop(place, [])
        for runs in given:
            self.stage.judges.ended(runs, failed=() if well else runs)
        return bool(given)

    @contextmanager
    def _saying(self, places: Sequence[_Place]) -> Iterator[None]:
        """Around a call that says that these are done. One that a signal breaks off may have said it, or not."""
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
    """Tells the loop what a client's callbacks tell it."""

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
    """Tells the loop, for the judges, which of its moves are made."""

    def __init__(self, driven: _Driven, member: LoopMember) -> None:
        super().__init__(driven.parts, driven.family.ours, driven.user, driven.settle)
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
        routes.add(Handler(name=each.name, call=_nobody, topics=each.topics, scope=scope, key=key))
    return routes


def _nobody(_: object) -> None:
    raise AssertionError("the loop handles records by itself")
