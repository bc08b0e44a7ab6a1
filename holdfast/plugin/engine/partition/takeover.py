"""Takeover: makes an assigned partition an owned one. The store first, then the committed offset; a foreign one wins.

Whether the former owner still lives is for the store to say (dedup/scripts/acquire.lua).

Each partition goes its own way: one whose topic is gone or that has no leader waits alone, and is asked for again.

A committed offset is *ours* if it carries our mark with this very offset; then it is ours however low: a late commit of
a zombie cannot make anything run twice, since the positions know what is done. One that is not ours was set by another
program (a reset, a tool): positions from there on are dropped, and it is committed with our mark before anything runs.

Committed offsets expire. So an owner tells the store where the group stands before it begins, be it at 0. Only a
position that no owner has begun lets a group without an offset begin.

After a reset a message's identity says nothing below what was known before (`Acquired.again`), or the replay would find
it done and skip it.

Records that a former owner had in hand when it let go may still run there. They wait (`EntryState.WITH_FORMER_OWNER`),
and the store is asked for them until they are done, released, or their session is dead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from holdfast.dedup.claims import Acquired, AskInHand, Drop, InHand, Mark, Verdict
from holdfast.dedup.offset_set import OffsetSet
from holdfast.errors import NotAuthorised, SourceError, UnknownTopic
from holdfast.plugin.audit.schema import Outcome
from holdfast.plugin.engine.partition.group_position import group_position, is_new
from holdfast.plugin.engine.partition.ledger import Ledger
from holdfast.plugin.engine.partition.ownership import Phase
from holdfast.plugin.events import AdvanceIgnored, ResetHonoured, RewindIgnored, SourceTrouble
from holdfast.plugin.ports import Committed, Start
from holdfast.plugin.retrying.retry import BACKOFF
from holdfast.timing import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from holdfast.plugin.engine.partition.commits import Commits
    from holdfast.plugin.engine.partition.ownership import Ownership
    from holdfast.plugin.engine.parts import Parts
    from holdfast.plugin.ports import PartitionedSource
    from holdfast.records import Partition

_T = TypeVar("_T")

#: One look at the broker inside a rebalance callback; what it does not answer in time is asked again in the loop.
_LOOK_S = 3.0
#: The same in the loop, where marks and everything else wait for it.
_LOOK_AGAIN_S = 0.5
#: How often the store is asked whether a former owner has let a partition go, and for the records it had in hand.
_AGAIN_S = 0.05
#: A partition that stands still is told of at once, and then so often.
_TELL_S = 300.0


def may_pass(error: SourceError) -> bool:
    """Whether an app that was let into its group goes on: the broker answers again, the topic comes back or its
    partitions go, a slip in credentials or rights is mended."""
    return error.retriable or isinstance(error, (UnknownTopic, NotAuthorised))


class _Wait:
    """When a partition that the broker gave an error for is asked for again."""

    __slots__ = ("attempts", "told_at", "until")

    def __init__(self) -> None:
        self.attempts = 0
        self.until = 0.0
        self.told_at: float | None = None


class Takeover:
    """Moves ownerships from ASSIGNED to OWNED. One thread."""

    def __init__(
        self, parts: Parts, source: PartitionedSource, commits: Commits, wishes: Mapping[Partition, int]
    ) -> None:
        """Args: wishes: where a group begins that has no offset, as far as a user's loop has said so."""
        self._parts, self._source, self._commits, self._wishes = parts, source, commits, wishes
        self._clock, self._tell, self._sessions = parts.runtime, parts.tell, parts.sessions
        #: Partitions that this process owned when it last lost a session.
        self._had: frozenset[Partition] = frozenset()
        self._again = self._in_hand_again = 0.0
        self._look_s = _LOOK_S
        self._waits: dict[Ownership, _Wait] = {}

    def begin(self, owners: Sequence[Ownership], *, others_wait: bool) -> None:
        """Take over what is to be had at once, inside the rebalance; then `start` tells. Raises StoreUnavailable.

        Args: others_wait: other partitions are owned, and stand still until this is over.
        """
        self._look_s = _LOOK_AGAIN_S if others_wait else _LOOK_S
        self._advance(owners)

    def step(self, owners: Iterable[Ownership]) -> None:
        """Go on with those that wait: for a former owner, for the broker, for the store.

        Raises StoreUnavailable. Trouble with the broker is told, and asked again.
        """
        waiting = [owner for owner in owners if owner.phase < Phase.OWNED]
        if self._waits:
            self._waits = {owner: self._waits[owner] for owner in waiting if owner in self._waits}
        now = self._clock.now()
        if not waiting or now < self._again:
            return
        self._again = now + _AGAIN_S
        self._look_s = _LOOK_AGAIN_S
        self._advance([owner for owner in waiting if owner not in self._waits or self._waits[owner].until <= now])

    def session_lost(self, owners: Iterable[Ownership]) -> None:
        """These end with it."""
        self._had = frozenset(each.partition for each in owners if each.owned or each.partition in self._had)

    def adopted(self, owner: Ownership) -> None:
        """The broker has our commit of the offset that is adopted, or is to keep the one that it has: nothing is known
        from there on."""
        owner.own(Ledger(owner.adopting))

    def drop(self, owner: Ownership, offset: int) -> None:
        """Forget at the store what is done from there on, of a partition that is owned. Raises StoreUnavailable."""
        owner.adopting = offset
        if owner.session_.drop([Drop(owner.name, owner.store_epoch, offset)])[0]:
            self._tell(ResetHonoured(partition=owner.partition, offset=offset, watermark=owner.ledger.watermark))

    @staticmethod
    def start(owner: Ownership) -> Start:
        """Where the source has to begin."""
        if owner.phase is Phase.OWNED:
            return Start(owner.ledger.next, hold=False)
        return Start(owner.adopting if owner.phase in (Phase.RESETTING, Phase.ADOPTING) else None, hold=True)

    # ---- the steps
    def _advance(self, owners: Sequence[Ownership]) -> None:
        self._asking(self._name, [owner for owner in owners if not owner.name])
        self._acquire([owner for owner in owners if owner.name and owner.phase is Phase.ASSIGNED])
        self._asking(self._read, [owner for owner in owners if owner.phase is Phase.ACQUIRED])
        self._drop([owner for owner in owners if owner.phase is Phase.RESETTING])
        self._asking(self._commits.commit, [owner for owner in owners if owner.phase is Phase.ADOPTING])

    def _asking(self, step: Callable[[Sequence[Ownership]], None], owners: Sequence[Ownership]) -> None:
        """A step that asks the broker. What it raises is about all of them."""
        if owners:
            try:
                step(owners)
            except SourceError as error:
                self._troubled(owners, error)

    def _answered(self, owners: Sequence[Ownership], replies: Mapping[Partition, _T | SourceError]) -> list[Ownership]:
        """The owners that have an answer. One that was left out is asked for again, one that has an error after a
        while."""
        answered: list[Ownership] = []
        troubled: dict[str, tuple[SourceError, list[Ownership]]] = {}
        for owner in owners:
            reply = replies.get(owner.partition, owner)
            if isinstance(reply, SourceError):
                troubled.setdefault(str(reply), (reply, []))[1].append(owner)
            elif reply is not owner:
                answered.append(owner)
        for error, theirs in troubled.values():
            self._troubled(theirs, error)
        return answered

    def _troubled(self, owners: Sequence[Ownership], error: SourceError) -> None:
        if not may_pass(error):
            raise error
        now = self._clock.now()
        untold = []
        for owner in owners:
            wait = self._waits.setdefault(owner, _Wait())
            wait.attempts += 1
            wait.until = now + (BACKOFF.wait_s(wait.attempts, error, self._clock.random) or 0.0)
            if wait.told_at is None or now - wait.told_at >= _TELL_S:
                wait.told_at = now
                untold.append(owner)
        if untold:
            names = ", ".join(str(owner.partition) for owner in untold)
            self._tell(SourceTrouble(error=f"not taken over yet, and tried again: {names}: {error}"))

    def _name(self, owners: Sequence[Ownership]) -> None:
        names = self._source.position_names([owner.partition for owner in owners], self._deadline())
        for owner in self._answered(owners, names):
            owner.name = str(names[owner.partition])

    def _acquire(self, owners: Sequence[Ownership]) -> None:
        if not self._sessions.others_mark.passed:
            # An outage has ended all sessions. A former owner may still mark what it has done, until another member
            # takes its partition over.
            owners = [owner for owner in owners if owner.partition in self._had]
        if not owners:
            return
        for owner in owners:
            owner.acquire_unanswered = True
        replies = owners[0].session_.acquire([owner.name for owner in owners])
        for owner, reply in zip(owners, replies, strict=True):
            owner.acquire_unanswered = False
            if isinstance(reply, Acquired):
                owner.acquired, owner.again = reply, reply.again
                owner.move(Phase.ACQUIRED)
            elif reply is Verdict.FENCED:
                self._sessions.lost()
                return

    def _read(self, owners: Sequence[Ownership]) -> None:
        found = self._source.committed([owner.partition for owner in owners], self._deadline())
        new: list[Ownership] = []
        untold: dict[Ownership, Ledger] = {}
        for owner in self._answered(owners, found):
            committed = found[owner.partition]
            if isinstance(committed, Committed) and self._lost_at_store(owner, committed):
                committed = None
            if committed is None and _is_new(owner) and owner.partition in self._wishes:
                self._begins_at(owner, self._wishes[owner.partition])
            elif committed is None and _is_new(owner):
                new.append(owner)
            elif not isinstance(committed, SourceError):
                self._judge(owner, committed, untold)
        self._tell_where(untold)
        if new:
            self._asking(self._begin, new)

    def _lost_at_store(self, owner: Ownership, committed: Committed) -> bool:
        """Whether the store has held this position, and has lost all of it: our own commit names this very store. What
        was done there is undone, so the group begins again in this partition."""
        lost = self._sessions.truth and _is_new(owner) and committed.ours and committed.marked
        return lost and committed.store == self._sessions.store.store_id != ""

    def _tell_where(self, ledgers: Mapping[Ownership, Ledger]) -> None:
        """Own positions that no owner has begun: first tell the store where they begin."""
        if ledgers:
            marks = [Mark(owner.name, owner.store_epoch, ledger.watermark, ()) for owner, ledger in ledgers.items()]
            next(iter(ledgers)).session_.mark(marks)
            for owner, ledger in ledgers.items():
                owner.own(ledger)

    def _begin(self, owners: Sequence[Ownership]) -> None:
        """The group begins there. That is adopted like a reset, and so remembered: asked again later, a policy such as
        "latest" would answer with another offset, and what lies between would be lost."""
        first = self._source.first_offsets([owner.partition for owner in owners], self._deadline())
        for owner in self._answered(owners, first):
            offset = first[owner.partition]
            if not isinstance(offset, SourceError):
                self._begins_at(owner, offset)

    @staticmethod
    def _begins_at(owner: Ownership, offset: int) -> None:
        owner.adopting, owner.begins = offset, True
        owner.move(Phase.RESETTING)

    def _deadline(self) -> Deadline:
        return Deadline(self._look_s, self._clock)

    def _judge(self, owner: Ownership, committed: Committed | None, untold: dict[Ownership, Ledger]) -> None:
        """Own it, or move it to where it is reset.

        Args: untold: takes ledgers whose beginning the store is to be told first.
        """
        acquired = owner.acquired
        if acquired is None:
            raise AssertionError(owner)
        at = group_position(committed, acquired, truth=self._sessions.truth)
        foreign = at.offset if at.foreign else None
        foreign = owner.cut if owner.cut is not None else foreign
        if foreign is not None:
            owner.adopting = foreign
            owner.move(Phase.RESETTING)
            return
        if committed is not None:
            self._sessions.committed_with(owner.partition, committed.store)
            owner.committed, owner.committed_at = committed.offset, self._clock.now()
            self._tell_ignored(owner.partition, committed, acquired)
        known = OffsetSet(acquired.done)
        watermark = acquired.watermark if at.offset is None else at.offset
        known.remove_below(watermark)
        owner.waiting = {offset for offset in acquired.running if offset >= watermark and offset not in known}
        if acquired.begun:
            owner.own(Ledger(watermark, known))
        else:
            untold[owner] = Ledger(watermark, known)

    def _tell_ignored(self, partition: Partition, committed: Committed, known: Acquired) -> None:
        """A committed offset that does not count: see `group_position`."""
        offset, watermark = committed.offset, known.watermark
        if offset < watermark:
            self._tell(RewindIgnored(partition=partition, offset=offset, watermark=watermark))
        elif offset > watermark and not is_new(known) and (self._sessions.truth or not committed.marked):
            self._tell(AdvanceIgnored(partition=partition, offset=offset, watermark=watermark))

    def _drop(self, owners: Sequence[Ownership]) -> None:
        if not owners:
            return
        drops = [Drop(owner.name, owner.store_epoch, owner.adopting) for owner in owners]
        for owner, dropped in zip(owners, owners[0].session_.drop(drops), strict=True):
            if not dropped:
                self._sessions.lost()
                return
            acquired = owner.acquired
            watermark = acquired.watermark if acquired else 0
            if acquired:
                known_up_to = max(OffsetSet(acquired.done).end, max(acquired.running, default=-1) + 1)
                owner.again = max(owner.again, watermark, known_up_to)
            # A group that holdfast meets for the first time has nothing to forget; nor who has dropped it already.
            if acquired and watermark and (acquired.done or acquired.running or watermark != owner.adopting):
                self._tell(ResetHonoured(partition=owner.partition, offset=owner.adopting, watermark=watermark))
            owner.move(Phase.ADOPTING)
            if self._commits.is_untold(owner):
                self.adopted(owner)

    # ---- afterwards: records that former owners had in hand
    def ask_in_hand(self, owners: Iterable[Ownership]) -> list[Ownership]:
        """Ask the store what became of records that former owners had in hand.

        Returns: ownerships that the store does not know any more: to be taken over anew.
        """
        parts, session = self._parts, self._sessions.session
        waiting = [owner for owner in owners if owner.waiting and owner.phase is Phase.OWNED]
        if not waiting or session is None or not parts.outage.may_ask or self._clock.now() < self._in_hand_again:
            return []
        self._in_hand_again = self._clock.now() + _AGAIN_S
        ended: list[Ownership] = []
        with parts.outage.asking():
            polls = [AskInHand(owner.name, owner.store_epoch, sorted(owner.waiting)) for owner in waiting]
            replies = session.poll(polls)
            parts.outage.answered()
            for owner, reply in zip(waiting, replies, strict=True):
                if isinstance(reply, InHand):
                    self._resolve(owner, reply)
                else:
                    ended.append(owner)
        return ended

    def _resolve(self, owner: Ownership, reply: InHand) -> None:
        parts, before = self._parts, owner.ledger.watermark
        for offset in reply.done | reply.yours:
            owner.waiting.discard(offset)
            entry = owner.entries.get(offset)
            if offset in reply.done:
                owner.ledger.knows(offset)
                if entry is not None:
                    parts.meter.suppressed += 1
                    parts.recorder.passed(owner, range(offset, offset + 1), Outcome.SKIPPED_POSITION)
                    parts.outcomes.hand_back(entry)
                continue
            parts.meter.taken_up += 1
            if entry is not None:
                parts.claiming.resume(entry)
        if owner.ledger.watermark != before:
            owner.moved_at = self._clock.now()


def _is_new(owner: Ownership) -> bool:
    """Whether no owner has ever begun at the position."""
    return owner.cut is None and owner.acquired is not None and is_new(owner.acquired)
