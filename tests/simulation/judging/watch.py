"""Watch: judges of what does not happen: they look now and then at what waits, and tell what waits without a reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast.plugin.engine.leased.leased import Leased
from holdfast.plugin.engine.partition.ownership import Phase
from holdfast.plugin.engine.partition.partitioned import Partitioned
from holdfast.plugin.engine.record.entry import EntryState
from holdfast.plugin.ports import CommitFate
from holdfast.testing.brokers.watcher import Watcher
from tests.simulation.judging.drains import Drains

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.plugin.engine.loop import Engine
    from holdfast.plugin.engine.partition.ownership import Ownership
    from holdfast.plugin.engine.record.entry import Entry
    from holdfast.plugin.own_loop.driven import Driven
    from holdfast.records import Partition
    from tests.simulation.playing.stage import Actor, Stage

#: What may start does so within so many looks, where nothing runs and a worker is free; and where others go on, within
#: so many looks and starts of others.
_IDLE_LOOKS = 6
#: A drain ends within that time after its deadline.
_AFTER_DRAIN_S = 1.0
_STARVED_LOOKS, _STARVED_STARTS = 4, 100


class _Waits(NamedTuple):
    """Since when something waits that could start, and what had started then."""

    #: While its member was in order, without a break; and in all.
    looks: int
    in_all: int
    own: int
    others: int


class _Ahead(NamedTuple):
    """A partition that is read far beyond a record that is not done."""

    owner: Ownership
    watermark: int
    read: int
    #: At so many looks it was read further than at the one before, while that record was open.
    grown: int


class Watch:
    """Looks at all members, a few times a second."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        #: By member and handler: its first records could start, and none does.
        self._waits: dict[tuple[str, str], _Waits] = {}
        self._is_async = {each.name: "async" in each.kind for each in stage.world.handlers}
        self._drains = Drains(stage)
        self._ahead: dict[tuple[str, Partition], _Ahead] = {}

    def look(self) -> None:
        """Start members that may start; when a loop comes for more is its user's affair."""
        stage, waits = self._stage, dict[tuple[str, str], _Waits]()
        for member in stage.living:
            engine = member.engine
            if stage.world.loop or engine is None:
                continue
            in_order = self._in_order(member, engine)
            self._drains.look(member, engine, in_order=in_order)
            if in_order and member.client is not None:
                member.client.judge_polls()
            if not in_order or (member.client is not None and member.client.held):
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
        """Judge that a partition is read no further while its lowest record is open, once it was read too far beyond
        that one; but for what comes before the engine looks."""
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
        """For how long nothing of that handler has started; None: something runs, or has started."""
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
        """Waits of a member whose loop a handler in the polling thread holds up; none, if something else does."""
        if self._stage.world.settings.workers or not self._stage.judges.running[member].total():
            return {}
        return {
            at: waits._replace(looks=0, in_all=waits.in_all + 1) for at, waits in self._waits.items() if at[0] == member
        }

    def _others(self, member: str, handler: str) -> int:
        """How many records of other handlers have started that share its room: workers' threads, or the event loop."""
        is_async = self._is_async
        starts = self._stage.judges.starts[member]
        return sum(count for each, count in starts.items() if each != handler and is_async[each] == is_async[handler])

    def _judge(self, member: Actor, engine: Engine | Driven, ready: Entry, seen: _Waits) -> None:
        """P5, and that no kind of handler starves another."""
        judges, kind = self._stage.judges, ready.handler.kind
        others = self._others(member.name, ready.handler.name) - seen.others
        if seen.in_all >= _STARVED_LOOKS and others > _STARVED_STARTS:
            judges.broken("STARVED", f"{ready!r} could start at {member.name}, and {others} others have started since")
        free = engine.parts.workers.room(kind) > 0 and engine.parts.unacked.room(kind) >= ready.count
        idle = not others and not judges.running[member.name].total()
        if seen.looks >= _IDLE_LOOKS and free and idle:
            judges.broken("STANDS", f"{ready!r} could start at {member.name}, and nothing does")

    def stands_still(self) -> None:
        """Nothing more is committed, and that is not all."""
        stage = self._stage
        left = [record for record in stage.book.records.values() if not record.over]
        stage.judges.broken(
            "STANDSTILL",
            f"{len(left)} records are not handled ({', '.join(map(str, left[:3]))}), "
            f"and committed is {'; '.join(stage.ground.behind())}",
        )

    def does_not_end(self) -> None:
        """Members were asked to stop, and are still there."""
        self._stage.judges.broken("NO END", ", ".join(each.name for each in self._stage.living))

    def failed(self, member: Actor) -> None:
        """The member's app has raised what no world brings about."""
        self._stage.judges.broken("ERROR", f"{member.name} ended with {member.error!r}")

    def errors(self) -> None:
        """Report what threads have raised and nobody caught."""
        for crash in self._stage.scheduler.errors:
            self._stage.judges.broken("ERROR", f"{crash}\n{crash.trace}")

    # ---- inside
    def _in_order(self, member: Actor, engine: Engine | Driven) -> bool:
        """Whether what may start has to, unless its loop waits for an answer."""
        process = member.process
        return (
            process.stalled_until < self._stage.scheduler.now
            and not engine.parts.stopping.begun
            and not member.interrupted  # it leaves, and may have to wait for answers of the broker
            and engine.parts.sessions.session is not None
            and engine.parts.sessions.session.live()
            and not engine.parts.outage.down
            and not getattr(engine.parts.sessions.store, "down", False)  # it is open: a call may wait for the store
        )


def owners_of(engine: Engine | Driven) -> Sequence[Ownership]:
    """Whatever it has, of either family."""
    family = engine.family
    return list(family.owners.values()) if isinstance(family, (Partitioned, Leased)) else []


def _ready(engine: Engine | Driven) -> dict[str, Entry]:
    """Of each handler, one that may start and is the first of its lane."""
    found: dict[str, Entry] = {}
    for owner in owners_of(engine):
        if owner.phase is Phase.OWNED:
            for entry in owner.entries.values():
                if entry.state is EntryState.READY and entry.handler.name not in found and entry.lane.head() is entry:
                    found[entry.handler.name] = entry
    return found


class Losses(Watcher):
    """Notes who has lost partitions: those have not changed hands in order."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def on_lost(self, partitions: Sequence[Partition], member: object) -> None:
        """Implements `Watcher.on_lost`."""
        if (it := self._stage.member_of(member)) is not None:
            it.has_lost = True


class Revokes(Watcher):
    """Judges that what a member gives up by its own will is committed by then, as far as the store knows it as done."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        #: What each member has committed since it came to it, at most: that was its own by then.
        self._own: dict[tuple[object, Partition], int] = {}
        #: When it gave that partition up last. What it had ended by then counts like a former owner's.
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
            return  # its session is lost, or nobody hears it: it owns nothing, and the next owner asks the store
        if stage.now <= it.session_lost_at + stage.world.settings.drain_s + _AFTER_DRAIN_S:
            return  # it may have lost its session inside of this drain
        for partition in partitions:
            before, self._gave_up_at[member, partition] = self._gave_up_at.get((member, partition), 0.0), stage.now
            highest = self._own.pop((member, partition), None)
            committed = stage.ground.committed(partition) or 0
            # Else it has not begun there, or what it has committed last was overwritten by an earlier one that came
            # late, or twice: the position holds, and who owns the partition commits it anew.
            # Nor has it, where another program has committed since.
            if highest is None or highest > committed or stage.ground.is_foreign(partition):
                continue
            refused = any(
                each.partition == partition and each.fate is not CommitFate.DONE for each in stage.group.attempts[-50:]
            )
            done = stage.store.is_done(stage.position_of(partition), committed)
            # What a former owner has ended since is known here as well, but counts only when the client comes to it.
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
        record = self._stage.book.at(self._stage.log(partition), offset)
        runs = record.unit.runs if record is not None else ()
        return any(
            run.record is record and run.member == member and run.ended_at is not None and run.since >= since
            for run in runs
        )
