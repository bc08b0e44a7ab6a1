"""Watch: judges that look at intervals for records, drains and members that wait without a reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast.plugin.engine.leased.leased import Leased
from holdfast.plugin.engine.partition.ownership import Phase
from holdfast.plugin.engine.partition.partitioned import Partitioned
from holdfast.plugin.engine.record.entry import EntryState
from holdfast.plugin.ports import CommitFate
from holdfast.testing.brokers.watcher import Watcher
from tests.simulation.judging.drains import Drains
from tests.simulation.judging.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.plugin.engine.loop import Engine
    from holdfast.plugin.engine.partition.ownership import Ownership
    from holdfast.plugin.engine.record.entry import Entry
    from holdfast.plugin.own_loop.driven import Driven
    from holdfast.records import Partition
    from tests.simulation.playing.stage import Actor, Stage

#: A record that may start does so within so many looks if nothing runs and a worker is free; while others run, within
#: so many looks and so many starts of others.
_IDLE_LOOKS = 6
#: A drain ends within so long after its deadline.
_AFTER_DRAIN_S = 1.0
_STARVED_LOOKS, _STARVED_STARTS = 4, 100


class _Waits(NamedTuple):
    """For how many looks a record has waited that could start, and what had started by then."""

    #: Looks in a row while its member was in order; and all looks.
    looks: int
    in_all: int
    own: int
    others: int


class _Ahead(NamedTuple):
    """A partition that is read too far beyond a record that is not done."""

    owner: Ownership
    watermark: int
    read: int
    #: The number of looks at which it was read further than before, while that record was open.
    grown: int


class Watch:
    """Looks at all members, a few times a second."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        #: (member, handler) -> the wait of its first records, which could start and do not.
        self._waits: dict[tuple[str, str], _Waits] = {}
        self._is_async = {each.name: "async" in each.kind for each in stage.world.handlers}
        self._drains, self._turns = Drains(stage), Turns(stage)
        self._ahead: dict[tuple[str, Partition], _Ahead] = {}

    def look(self) -> None:
        """Judge all members. A loop's user decides when it asks for records, so of loops only the turns are judged."""
        stage, waits = self._stage, dict[tuple[str, str], _Waits]()
        for member in stage.living:
            engine = member.engine
            if engine is None:
                continue
            in_order, held = self._in_order(member, engine), member.client is not None and member.client.held
            self._turns.look(member, engine, in_order=in_order and not held)
            if stage.world.loop:
                continue
            self._drains.look(member, engine, in_order=in_order)
            if in_order and member.client is not None:
                member.client.judge_polls()
            if not in_order or held:
                waits.update(self._held_up(member.name))
                continue
            self._look_ahead(member, engine)
            if member.client is not None:
                member.client.look(engine)
            for handler, ready in _ready(engine).items():
                seen = self._seen(member.name, handler)
                if seen is not None:
                    waits[member.name, handler] = seen
                    self._judge(member, engine, ready, seen)
        self._waits = waits

    def _look_ahead(self, member: Actor, engine: Engine | Driven) -> None:
        """Judge that a partition that was read too far beyond its lowest open record is read no further while that
        record is open, but for records that come before the engine looks."""
        most = self._stage.world.settings.max_ahead
        for owner in owners_of(engine) if isinstance(engine.family, Partitioned) else ():
            ledger = owner.ledger
            watermark, read = ledger.watermark, ledger.next
            if owner.phase is not Phase.OWNED or read - watermark < most:
                continue
            before = self._ahead.get((member.name, owner.partition))
            if before is None or before.owner is not owner or before.watermark != watermark:
                before = _Ahead(owner, watermark, read, 0)
            grown = before.grown + (read > before.read)
            self._ahead[member.name, owner.partition] = _Ahead(owner, watermark, read, grown)
            if grown > 1:
                what = f"{owner.partition} is read up to {read} at {member.name}, and {watermark} is not done"
                self._stage.judges.broken("AHEAD", f"{what}: no more than {most} beyond it were to be read")

    def _seen(self, member: str, handler: str) -> _Waits | None:
        """The wait of that handler; None = a call of it runs, or has started."""
        judges = self._stage.judges
        starts = judges.starts[member]
        own, others = starts[handler], self._others(member, handler)
        before = self._waits.get((member, handler))
        if judges.running[member][handler]:
            return None
        if before is None or before.own != own:
            return _Waits(0, 0, own, others)
        return before._replace(looks=before.looks + 1, in_all=before.in_all + 1)

    def _held_up(self, member: str) -> dict[tuple[str, str], _Waits]:
        """The waits of a member whose polling thread is held up by a handler; empty, if by something else."""
        if self._stage.world.settings.workers or not self._stage.judges.running[member].total():
            return {}
        return {
            at: waits._replace(looks=0, in_all=waits.in_all + 1) for at, waits in self._waits.items() if at[0] == member
        }

    def _others(self, member: str, handler: str) -> int:
        """How many records of other handlers have started in the same room: the worker threads, or the event loop."""
        is_async = self._is_async
        starts = self._stage.judges.starts[member]
        return sum(count for each, count in starts.items() if each != handler and is_async[each] == is_async[handler])

    def _judge(self, member: Actor, engine: Engine | Driven, ready: Entry, seen: _Waits) -> None:
        """Judge P5, and that no kind of handler starves another."""
        judges, kind = self._stage.judges, ready.handler.kind
        others = self._others(member.name, ready.handler.name) - seen.others
        if seen.in_all >= _STARVED_LOOKS and others > _STARVED_STARTS:
            judges.broken("STARVED", f"{ready!r} could start at {member.name}, and {others} others have started since")
        unacked = engine.parts.unacked
        batch = ready.handler.batch  # it starts as a whole
        wanted = ready.lane.ready(min(batch.records, unacked.share(kind))) if batch else ready.count
        free = engine.parts.workers.room(kind) > 0 and unacked.room(kind) >= wanted
        idle = not others and not judges.running[member.name].total()
        if seen.looks >= _IDLE_LOOKS and free and idle:
            judges.broken("STANDS", f"{ready!r} could start at {member.name}, and nothing does")

    def stands_still(self) -> None:
        """Report that nothing more is committed though records are left."""
        stage = self._stage
        left = [record for record in stage.book.records.values() if not record.over]
        stage.judges.broken(
            "STANDSTILL",
            f"{len(left)} records are not handled ({', '.join(map(str, left[:3]))}), "
            f"and committed is {'; '.join(stage.ground.behind())}",
        )

    def does_not_end(self) -> None:
        """Report that members do not end after they were asked to stop."""
        self._stage.judges.broken("NO END", ", ".join(each.name for each in self._stage.living))

    def failed(self, member: Actor) -> None:
        """Report that the member's app ended with an error that no world causes."""
        self._stage.judges.broken("ERROR", f"{member.name} ended with {member.error!r}")

    def errors(self) -> None:
        """Report errors that threads raised and did not catch."""
        for crash in self._stage.scheduler.errors:
            self._stage.judges.broken("ERROR", f"{crash}\n{crash.trace}")

    # ---- inside
    def _in_order(self, member: Actor, engine: Engine | Driven) -> bool:
        """Whether a record that may start must start, unless the member's loop waits for an answer."""
        process = member.process
        return (
            process.stalled_until < self._stage.scheduler.now
            and not engine.parts.stopping.begun
            and not member.interrupted  # it leaves, and may wait for answers of the broker
            and engine.parts.sessions.session is not None
            and engine.parts.sessions.session.live()
            and not engine.parts.outage.down
            and not getattr(engine.parts.sessions.store, "down", False)  # open: a call may wait for the store
            and not getattr(self._stage.store, "rows_left_locked", False)
        )


def owners_of(engine: Engine | Driven) -> Sequence[Ownership]:
    """The ownerships of an engine, of either family."""
    family = engine.family
    return list(family.owners.values()) if isinstance(family, (Partitioned, Leased)) else []


def _ready(engine: Engine | Driven) -> dict[str, Entry]:
    """Handler -> an entry that may start and is the first of its lane."""
    found: dict[str, Entry] = {}
    for owner in owners_of(engine):
        if owner.phase is Phase.OWNED:
            for entry in owner.entries.values():
                if entry.state is EntryState.READY and entry.handler.name not in found and entry.lane.head() is entry:
                    found[entry.handler.name] = entry
    return found


class Losses(Watcher):
    """Notes the members that have lost partitions: these did not change owners in order."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def on_lost(self, partitions: Sequence[Partition], member: object) -> None:
        """Implements `Watcher.on_lost`."""
        if (it := self._stage.member_of(member)) is not None:
            it.has_lost = True


class Revokes(Watcher):
    """Judges that a partition that a member gives up in order is committed by then, as far as the store has it as
    done."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        #: (member, partition) -> the highest offset that it has committed since the assignment.
        self._own: dict[tuple[object, Partition], int] = {}
        #: (member, partition) -> when it gave the partition up last. Work that ended before counts as a former owner's.
        self._gave_up_at: dict[tuple[object, Partition], float] = {}

    def on_commit(self, partition: Partition, offset: int, member: object, metadata: str) -> None:
        """Implements `Watcher.on_commit`."""
        self._own[member, partition] = max(offset, self._own.get((member, partition), 0))

    def on_lost(self, partitions: Sequence[Partition], member: object) -> None:
        """Implements `Watcher.on_lost`."""
        for partition in partitions:
            self._own.pop((member, partition), None)

    def on_revoke(self, partitions: Sequence[Partition], member: object) -> None:
        """Implements `Watcher.on_revoke`."""
        stage = self._stage
        it = stage.member_of(member)
        if (
            it is None
            or it.engine is None
            or it.engine.parts.stopping.hurry
            or it.engine.parts.sessions.session is None
        ):
            return
        if it.interrupted or stage.now < it.thrown_out_until:
            return  # its session is lost, or it is cut off: it owns nothing, and the next owner asks the store
        if stage.now <= it.session_lost_at + stage.world.settings.drain_s + _AFTER_DRAIN_S:
            return  # it may have lost its session inside this drain
        for partition in partitions:
            before, self._gave_up_at[member, partition] = self._gave_up_at.get((member, partition), 0.0), stage.now
            highest = self._own.pop((member, partition), None)
            committed = stage.ground.committed(partition) or 0
            # Else it has not begun there, or an earlier commit came late, or twice, and overwrote its last one: the
            # position is right, and the owner commits it anew. The same if another program has committed since.
            if highest is None or highest > committed or stage.ground.is_foreign(partition):
                continue
            refused = any(
                each.partition == partition and each.fate is not CommitFate.DONE for each in stage.group.attempts[-50:]
            )
            done = stage.store.is_done(stage.position_of(partition), committed)
            # The store also has records that a former owner ended since; they count when the client comes to them.
            if (
                done
                and self._ended_by(it.name, partition, committed, max(before, it.torn_at))
                and not refused
                and not stage.judges.unsure(stage.log(partition))
            ):
                stage.judges.broken(
                    "UNCOMMITTED", f"{it.name} gives up {partition}: {committed} is committed, and more is done"
                )

    def _ended_by(self, member: str, partition: Partition, offset: int, since: float) -> bool:
        stage = self._stage
        record = stage.book.at(stage.log(partition), offset)
        runs = record.unit.runs if record is not None else ()
        heard = stage.now - stage.world.store_timeout_s  # by then a member knows how its transaction has ended
        return any(
            run.record is record
            and run.member == member
            and run.ended_at is not None
            and run.since >= since
            and (run.tx is None or (run.ended_at < heard and not run.left))
            for run in runs
        )
