"""Log checks: find out whether a partition's log was cut, or its topic was deleted and created again."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.dedup.claims import Mark
from holdfast.errors import SourceError
from holdfast.plugin.engine.partition.ownership import Phase
from holdfast.plugin.events import LogWentBack, SourceTrouble
from holdfast.timing import Deadline

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from holdfast.plugin.engine.partition.ownership import Ownership
    from holdfast.plugin.engine.parts import Parts
    from holdfast.plugin.ports import PartitionedSource
    from holdfast.records import Partition

#: How often topics are asked for their identity, and positions kept from expiring; one call each, for all partitions.
_REFRESH_S = 30.0
#: How long one question may keep the loop from its polls.
_LOOK_S = 0.5
#: How often the broker is asked for the ends of logs that seem to have gone back.
_SUSPECTS_S = 0.2


class LogChecks:
    """One thread."""

    def __init__(self, parts: Parts, source: PartitionedSource) -> None:
        self._parts, self._source = parts, source
        self._suspects_at, self._one_by_one = 0.0, False
        self._refresh_at, self._outages = parts.runtime.now() + _REFRESH_S, 0

    def cut(self, owners: Iterable[Ownership]) -> dict[Ownership, int]:
        """Look at the logs that seem to have gone back (`Ownership.suspect`).

        Returns: owners of logs that end before what was read of them, cut or made again, and where each goes on.
        """
        suspects = [owner for owner in owners if owner.suspect is not None and owner.phase is Phase.OWNED]
        if not suspects or self._parts.runtime.now() < self._suspects_at:
            return {}
        ends = self._ends_of([owner.partition for owner in suspects])
        self._suspects_at = self._parts.runtime.now() + _SUSPECTS_S
        found: dict[Ownership, int] = {}
        for owner in suspects:
            if owner.partition not in ends:
                continue  # it stays one: nothing more of it until the broker has answered
            came, expected = owner.suspect or 0, owner.ledger.next
            owner.suspect = None
            if ends[owner.partition] < expected:
                self._parts.tell(LogWentBack(partition=owner.partition, offset=came, expected=expected))
                # Not above the watermark: below what came there may be records that wait or run.
                found[owner] = min(came, owner.ledger.watermark)
        return found

    def made_again(self, owners: Iterable[Ownership]) -> list[Ownership]:
        """Now and then: keep positions from expiring, and ask whether a topic was deleted and made again. A client that
        is not rebalanced reads on in the new log, at the old offset. Where the store has the last word, the same after
        each outage: it may have been a failover that has lost marks, of partitions to which no record comes.

        Returns: owners of such logs.
        """
        parts, session = self._parts, self._parts.sessions.session
        outages = parts.outage.ended if parts.sessions.truth else 0
        if parts.runtime.now() < self._refresh_at and outages == self._outages:
            return []
        self._refresh_at, self._outages = parts.runtime.now() + _REFRESH_S, outages
        owners = [owner for owner in owners if owner.phase is Phase.OWNED]
        if not owners or session is None or not parts.outage.may_ask:
            return []
        names: Mapping[Partition, str | SourceError] = {}
        try:
            names = self._source.position_names([owner.partition for owner in owners], Deadline(_LOOK_S, parts.runtime))
        except SourceError as error:  # also of a topic that is gone: the client tells of that in its own way
            parts.tell(SourceTrouble(error=str(error)))
        found: list[Ownership] = []
        for owner in owners:
            name = names.get(owner.partition, owner.name)
            if isinstance(name, str) and name != owner.name:
                parts.tell(LogWentBack(partition=owner.partition, offset=0, expected=owner.ledger.next))
                found.append(owner)
        with parts.outage.asking():
            kept = [owner for owner in owners if owner not in found]
            if kept:
                session.mark([Mark(owner.name, owner.store_epoch, owner.ledger.watermark, ()) for owner in kept])
                parts.outage.answered()
        return found

    def _ends_of(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        """The ends of logs, as far as there are answers; the loop stays away from its polls for `_LOOK_S` at most.

        One partition that has no leader, or whose topic is gone, costs the others none: after a question for all that
        failed, the next look asks for each by itself.
        """
        ask = self._source.last_offsets
        one_by_one, self._one_by_one = self._one_by_one and len(partitions) > 1, False
        ends: dict[Partition, int] = {}
        if one_by_one:
            for partition in partitions:
                with suppress(SourceError):
                    ends.update(ask([partition], Deadline(_LOOK_S / len(partitions), self._parts.runtime)))
            return ends
        try:
            return ask(partitions, Deadline(_LOOK_S, self._parts.runtime))
        except SourceError as error:
            self._parts.tell(SourceTrouble(error=str(error)))
            self._one_by_one = True
            return ends
