"""Commits: decide which offset goes to the broker, and when. Two settings are the policy; ownerships keep the state.

- Commits are asynchronous, also inside of on_revoke (see `KafkaSource.commit`). One that is refused is harmless with
  a store: the position says what is done.
- ILLEGAL_GENERATION and REBALANCE_IN_PROGRESS under cooperative-sticky are transient for partitions that stay: the
  offset is kept and sent again by the clock.
- Another program may set the group's offset of a partition that is owned here: a producer's transaction, which takes
  the offsets of its inputs along (`send_offsets_to_transaction`), or a tool. The records below that offset count as
  done: they are not handled any more, here or by a successor, and no commit of ours goes back behind it.
- Commits may be transactions (`TransactionalSource`): one at a time, at the source's own interval.
- A reset that the store could not be told of (`store_down="open"`) stays the other program's: with a commit of ours in
  its place, the next owner would hold it against what the store knows, and go on as before the reset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.dedup.claims import Mark
from holdfast.dedup.offset_set import OffsetSet, Runs
from holdfast.plugin.engine.partition.ownership import Phase
from holdfast.plugin.engine.record.entry import EntryState
from holdfast.plugin.events import AdvanceHonoured, CommitOverwritten
from holdfast.plugin.ports import CommitFate, Committed, transactions_each_s
from holdfast.timing import Deadline

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from holdfast.plugin.engine.family import Loop
    from holdfast.plugin.engine.partition.ownership import Ownership
    from holdfast.plugin.engine.parts import Parts
    from holdfast.plugin.ports import PartitionedSource
    from holdfast.records import Partition

#: A commit without any outcome for so long is sent again: clients promise a callback, brokers do not promise an answer.
_UNANSWERED_S = 30.0
#: How long the broker may take to say what the group's offsets are, and how soon it is asked again where it did not.
_LOOK_S = 0.5
_AGAIN_S = 30.0
#: How often offsets are read that others commit.
_LOOK_EACH_S = 10.0
#: How soon it is looked again whether a transaction has ended that the next one waits for.
_ONE_AT_A_TIME_S = 0.005
#: States of entries that have started: their handlers' ends decide about them.
_STARTED = frozenset({EntryState.TAKEN, EntryState.STUCK, EntryState.ENDED})


class Commits:
    """Commits watermarks of marked records, of owned partitions, before they are unassigned. One thread."""

    def __init__(self, parts: Parts, loop: Loop, source: PartitionedSource) -> None:
        self._parts, self._loop, self._source = parts, loop, source
        self._settings, self._clock, self._tell = parts.settings, parts.runtime, parts.tell
        each_s = transactions_each_s(source)
        #: Whether commits are transactions, and what handlers make goes with them.
        self.transacting = each_s is not None
        self._each_s = self._settings.commit_interval_s if each_s is None else each_s
        self._next = self._clock.now() + self._each_s
        #: Something is to be committed in a transaction, and the next one is due; whether a timer says so.
        self.due = self._timed = False
        #: Others commit as a rule, the application's own transactions: then nothing of ours is committed anew, and the
        #: group's offsets are read more often, since they alone say what is done.
        self.others_commit = False
        #: Offsets sent, and those that the broker did not take, since the start.
        self.sent = 0
        self.refused = 0

    def step(self, owners: Iterable[Ownership]) -> None:
        """The commit that the clock asks for. Raises SourceError."""
        now = self._clock.now()
        if now >= self._next:
            owners = list(owners)
            if self.transacting and any(owner.commit_sent is not None for owner in owners):
                self._call_again(_ONE_AT_A_TIME_S)
                return
            self.due = False
            self._next = now + self._each_s
            for owner in owners:
                unfinished = owner.phase is Phase.OWNED and owner.elsewhere > owner.ledger.watermark
                if unfinished and self._parts.outage.may_ask:  # the store gave no answer before
                    self._done_below(owner, owner.elsewhere)
            self.commit_moved(owners)
            every_s = self._settings.commit_refresh_s
            every_s = min(every_s, _LOOK_EACH_S) if self.others_commit else every_s
            stale = [each for each in owners if each.committed is not None and each.committed_at < now - every_s]
            if stale:
                for owner in stale:  # if there is no answer
                    owner.committed_at = now - every_s + min(_AGAIN_S, every_s)
                self.refresh(stale)

    def moved(self) -> None:
        """Note that a watermark has moved: a transaction is waited for by those who read what it writes."""
        if self.transacting:
            self._call_again(max(0.0, self._next - self._clock.now()))

    def _call_again(self, seconds: float) -> None:
        if not self._timed:
            self._timed = True
            self._parts.timers.after(seconds, self._is_due)

    def _is_due(self) -> None:
        self.due, self._timed = True, False

    def commit_moved(self, owners: Iterable[Ownership], *, last: bool = False) -> None:
        """Commit those that have moved since the broker has acknowledged a commit. As `commit`."""
        self.commit([owner for owner in owners if self._moved(owner)], last=last)

    def refresh(self, owners: Iterable[Ownership]) -> None:
        """Read what the group has committed of partitions that do not move, and commit it anew, unless another program
        has committed further meanwhile. Raises SourceError.

        A transaction's offset says what its outputs are made of: a commit of ours over it, and the next owner makes
        them once more.
        """
        owners = [owner for owner in owners if owner.phase is Phase.OWNED and not self._moved(owner)]
        if owners:
            found = self._source.committed([owner.partition for owner in owners], Deadline(_LOOK_S, self._clock))
            self.commit([owner for owner in owners if self._is_ours(owner, found.get(owner.partition, owner))])

    def _is_ours(self, owner: Ownership, found: object) -> bool:
        """Whether a commit of ours belongs there. Args: found: the group's offset; None = there is none (any more)."""
        if isinstance(found, Committed) and not found.ours and found.offset >= owner.ledger.watermark:
            owner.elsewhere, owner.committed_at = found.offset, self._clock.now()
            if found.offset > owner.ledger.watermark:
                self._done_below(owner, found.offset)
            return False
        if isinstance(found, Committed) and not found.ours:
            committed = owner.committed if owner.committed is not None else owner.ledger.watermark
            self._tell(CommitOverwritten(partition=owner.partition, offset=found.offset, committed=committed))
            return True
        return not self.others_commit and (found is None or isinstance(found, Committed))

    def commit(self, owners: Iterable[Ownership], *, last: bool = False) -> None:
        """Commit these now, one commit a partition at a time. Raises SourceError.

        Args:
            owners: whose watermarks.
            last: the partitions go after this: do not wait for the answer to an earlier commit.
        """
        now = self._clock.now()
        offsets: dict[Partition, int] = {}
        sent: list[Ownership] = []
        for owner in owners:
            target = self._target(owner)
            under_way = owner.commit_sent is not None and now - owner.committed_at < _UNANSWERED_S
            if target is None or (under_way and (not last or owner.commit_sent == target)):
                continue
            owner.commit_sent, owner.committed_at = target, now
            offsets[owner.partition] = target
            sent.append(owner)
        if offsets:
            try:
                self._source.commit(offsets)
                self.sent += len(offsets)
            except Exception:
                for owner in sent:
                    owner.commit_sent = None  # nothing is under way: the next commit need not wait for an answer
                raise

    def finish(self, owners: Iterable[Ownership]) -> bool:
        """Commit what has moved, for the last time. False = all is committed and acknowledged. Raises SourceError."""
        open_ = [owner for owner in owners if self._moved(owner)]
        self.commit(open_, last=True)
        return bool(open_)

    def answered(
        self,
        owners: Mapping[Partition, Ownership],
        offsets: Mapping[Partition, int],
        fates: Mapping[Partition, CommitFate],
    ) -> list[Ownership]:
        """Note outcomes. What was refused for now is sent again by the clock, while the partition is owned.

        Returns: the ownerships whose adopted offset the broker has now.
        """
        adopted = []
        for partition, offset in offsets.items():
            owner = owners.get(partition)
            if owner is None or owner.commit_sent != offset:
                continue  # an answer to an earlier ownership
            owner.commit_sent = None
            self.refused += fates[partition] is not CommitFate.DONE
            if fates[partition] is not CommitFate.AGAIN:
                owner.committed = offset  # DISCARD too: sent again it would be refused again
            if fates[partition] is CommitFate.DONE and owner.phase is Phase.ADOPTING:
                adopted.append(owner)
        return adopted

    def _done_below(self, owner: Ownership, offset: int) -> None:
        """Count all records below that offset, which is above the watermark, as done: another program says so. Where
        the store does not answer, a later call has to complete it."""
        parts = self._parts
        self._loop.done_elsewhere(owner.partition, offset)
        self._loop.settle()
        unstarted = [
            each for each in owner.entries.values() if each.state not in _STARTED and each.record.offset < offset
        ]
        for run in unstarted:
            for entry in parts.claiming.apart(run):
                if entry.record.offset < offset:
                    parts.outcomes.hand_back(entry)
                else:  # the run may have waited to ask for its keys
                    parts.claiming.want(entry)
        ledger, had = owner.ledger, [each for each in owner.entries.values() if each.record.offset < offset]
        started = OffsetSet([each for entry in had for each in entry.offsets])
        passed = [each for span in ledger.open_below(offset) for each in started.gaps(span)]
        if not passed:
            return
        watermark = ledger.watermark_with(passed) if started or offset <= ledger.next else offset
        done = Runs([range(max(each.start, watermark), each.stop) for each in passed if each.stop > watermark])
        with parts.outage.asking():
            owner.session_.mark([Mark(owner.name, owner.store_epoch, watermark, done)])
            parts.outage.answered()
            for span in passed:
                owner.ledger.settle_all(span)
            if offset > owner.ledger.next:
                owner.ledger.reached(offset)
                owner.seek_needed, owner.second_look = True, None
            records = sum(map(len, passed))
            parts.tell(AdvanceHonoured(partition=owner.partition, offset=offset, records=records))

    def _moved(self, owner: Ownership) -> bool:
        target = self._target(owner)
        return target is not None and target != owner.committed and target > owner.elsewhere

    def _target(self, owner: Ownership) -> int | None:
        """The offset to commit now; None = nothing may be committed."""
        if self.is_untold(owner):
            return None
        if owner.phase is Phase.ADOPTING:
            return owner.adopting
        # FENCED only from OWNED: who never owned has no watermark of its own.
        if owner.phase in (Phase.OWNED, Phase.FENCED) and owner.owned:
            return owner.committable
        return None

    def is_untold(self, owner: Ownership) -> bool:
        """Whether it was reset by somebody, and the store could not be told. Where a group begins, it loses nothing."""
        return not owner.begins and self._parts.sessions.untold(owner.name)
