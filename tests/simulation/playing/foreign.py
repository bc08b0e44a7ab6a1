"""Foreign: another program commits offsets of a Kafka group while members run, and members react to them.

Records below such an offset count as done: the judges excuse these, from then on, and no others. If a partition is
taken over while the offset stands, the group goes on from it, and marks above it are dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast.plugin.engine.partition.ownership import Phase
from holdfast.plugin.engine.partition.partitioned import Partitioned
from holdfast.plugin.events import CommitOverwritten
from holdfast.testing.brokers.watcher import Watcher

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.plugin.events import Event
    from holdfast.records import Partition
    from tests.simulation.drawing.world import FaultKind
    from tests.simulation.playing.book import LogName
    from tests.simulation.playing.stage import Actor, Stage

#: Another program may commit between a member's question for the committed offset and its next commit, within so long.
_RACE_S = 0.1
#: Faults by which answers get lost: then a commit that is sent again was not acknowledged.
_UNANSWERED: frozenset[FaultKind] = frozenset({"cut", "late", "twice", "leaderless"})


class _Stands(NamedTuple):
    """The last offset that another program has committed in a partition."""

    log: LogName
    offset: int
    since: float


class Foreign(Watcher):
    """Commits of another program in one group, and their judge."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._stands: dict[Partition, _Stands] = {}
        #: (member, partition) -> the offset that it committed last.
        self._own: dict[tuple[object, Partition], int] = {}
        #: (member, partition, offset) of offsets behind their own that members have reported.
        self._told: set[tuple[str, Partition, int]] = set()
        #: Logs that existed when the world began, without a committed offset until now.
        self._untouched: set[LogName] = set()
        self._answers = _UNANSWERED.isdisjoint(each.kind for each in stage.world.faults)

    def made(self, partitions: Iterable[Partition]) -> None:
        """Note the partitions that exist when the world begins."""
        self._untouched.update(map(self._stage.log, partitions))

    def commit(self, partition: Partition, offset: int) -> None:
        """Commit an offset as another program."""
        stage = self._stage
        stage.judge_commits()
        stage.group.set_offset(partition, offset)
        log = stage.log(partition)
        self._untouched.discard(log)
        stage.judges.committed_elsewhere(log, offset)
        self._stands[partition] = _Stands(log, offset, stage.now)

    def told(self, member: str, event: Event) -> None:
        """Note an event of a member."""
        if isinstance(event, CommitOverwritten):
            self._told.add((member, event.partition, event.offset))

    # ---- Watcher
    def on_commit(self, partition: Partition, offset: int, member: object, metadata: str) -> None:
        """Implements `Watcher.on_commit`: a member's commit is taken."""
        stage, it = self._stage, self._stage.member_of(member)
        if stage.world.begins == "latest" and (log := stage.log(partition)) in self._untouched:
            self._untouched.discard(log)
            stage.judges.begins(log, offset)
        before = self._own.get((member, partition))
        self._own[member, partition] = offset
        replays = it is not None and self._replays(it, partition, offset)
        if replays:
            stage.judge_commits()
            stage.judges.goes_on(stage.log(partition), offset)
        stands = self._stands.pop(partition, None)
        if stands is None or it is None or stands.log != stage.log(partition):
            return
        if offset == stands.offset and self._adopts(it, partition, offset):
            stage.judge_commits()  # the commits before it
            stage.judges.goes_on(stands.log, offset)
        elif offset == before and not replays:
            self._judge_anew(it, partition, offset, stands)

    # ---- inside
    @staticmethod
    def _replays(it: Actor, partition: Partition, offset: int) -> bool:
        """Whether the member's loop has sought the group back to that offset."""
        family = it.engine.family if it.stage.world.loop is not None and it.engine is not None else None
        owner = family.owners.get(partition) if isinstance(family, Partitioned) else None
        if owner is None or not isinstance(family, Partitioned):
            return False
        begins = owner.phase is Phase.ADOPTING and owner.cut == offset
        return begins or (family.partitions.wishes.get(partition) == offset < owner.ledger.watermark)  # committed first

    @staticmethod
    def _adopts(it: Actor, partition: Partition, offset: int) -> bool:
        """Whether the group goes on from that offset with this commit. A member that has ended is not asked."""
        family = it.engine.family if it.engine is not None and it.process.alive else None
        owner = family.owners.get(partition) if isinstance(family, Partitioned) else None
        return owner is None or (owner.phase is Phase.ADOPTING and owner.adopting == offset)

    def _judge_anew(self, it: Actor, partition: Partition, offset: int, stands: _Stands) -> None:
        """Judge a member that commits the same offset once more."""
        stage = self._stage
        if not self._answers or stage.now - stands.since < _RACE_S or it.process.stalled_until > stands.since:
            return
        what = f"{it.name} commits {offset} of {partition} anew over {stands.offset}, which another program has set"
        if stands.offset > offset:
            stage.judges.broken("OVERWRITTEN", what)
        elif (it.name, partition, stands.offset) not in self._told:
            stage.judges.broken("OVERWRITTEN", f"{what}, and does not tell it")
