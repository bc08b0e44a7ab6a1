"""SqlSession: the calls of claims.py's table on rows. One start of one process.

No lease: a session lives until the database is found to have lost what it had acknowledged. An owner is fenced by the
owner's name in the row, which each acquire replaces. So `acquire` waits for no other session, but for transactions that
hold a row. What is in hand is handed over within this process alone: a partition that is taken over anew, though the
client keeps it, waits for its handlers.

A call without an answer may have been applied, or be applied later, when it has waited for a row: each change is a
compare-and-set on owner and version, so a late one finds another version and changes nothing.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING
from uuid import UUID

from holdfast.adapters.sql.database import Busy
from holdfast.adapters.sql.held import Held, lost_by
from holdfast.dedup.claims import Acquired, Exchanged, InHand, Verdict, Wait
from holdfast.dedup.none import Keyless
from holdfast.errors import StateError, StoreLockedOut, StoreRefused, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from holdfast.adapters.sql.books import Books
    from holdfast.adapters.sql.changes import Change, Statement
    from holdfast.adapters.sql.database import Transaction
    from holdfast.adapters.sql.held import Content
    from holdfast.adapters.sql.rows import Position
    from holdfast.dedup.claims import AskInHand, Claim, Drop, LetGo, Mark, Token

#: How long `acquire` waits for a row: it asks again, and the loop has polls to make.
_LOCK_S = 0.1
#: Who has waited for a position asks for it again after so much of that time, and after this many seconds at the
#: latest: a transaction of a frozen process holds a row for long, and the loop stands still in each question.
_PAUSE, _PAUSE_S = 0.5, 1.0
#: Each round that does not end is one in which the row was changed in between.
_ROUNDS = 10
#: How many acquires without an answer are remembered: what such a one does late is done within seconds.
_UNANSWERED = 1000


class SqlSession(Keyless):
    """One start of one process at a SqlPositions. Any thread may call."""

    def __init__(self, books: Books, session_id: str, lease_s: float) -> None:
        self.id = session_id
        self._books, self._lease_s = books, lease_s
        self._database, self._statements = books.database, books.statements
        self._lost = False
        #: Position that another transaction holds -> since when it is waited for, and when it is asked for again.
        self._waits: dict[str, tuple[float, float]] = {}

    def live(self) -> bool:
        """Return True until the database was found to have lost changes of this process; then False for ever."""
        return not self._lost and self._books.own_process

    def renew(self) -> bool:
        """Ask the database for an answer. False = the session is lost."""
        with self._asking():
            self._database.run(lambda tx: tx.now_ms())
        return self.live()

    # ---- owners
    def acquire(self, partitions: Sequence[str]) -> list[Acquired | Wait | Verdict]:
        """Take partitions over. WAIT: another transaction holds a row, or another process has taken it from this one
        while this one was frozen."""
        with self._asking() as books:
            now = books.runtime.now()
            self._waits = {name: self._waits[name] for name in partitions if name in self._waits}
            names = [name for name in dict.fromkeys(partitions) if self._waits.get(name, (0.0, now))[1] <= now]
            if not names:
                self._database.run(lambda tx: tx.now_ms())  # an answer from memory would say that the database is back
                return [Wait.WAIT] * len(partitions)
            owner = UUID(hex=books.runtime.token(16))
            with books.lock:
                books.unanswered[owner] = None
                if len(books.unanswered) > _UNANSWERED:
                    del books.unanswered[next(iter(books.unanswered))]
            taken = self._taken(owner, names, self._statements.locked)
            if not taken and len(names) > 1 and self._database.skip_locked:
                taken = self._taken(owner, names, self._statements.not_held)
            replies: dict[str, Acquired] = {}
            with books.lock:
                books.unanswered.pop(owner, None)
                for name, (position, reply) in taken.items():
                    before = books.held.get(name)
                    if before is None or before.owner != position.first.owner:
                        books.in_hand.pop(name, None)  # another has had it: what runs here is fenced
                    held = books.held[name] = Held(owner, reply.epoch, position)
                    books.epochs[name] = reply.epoch
                    running = frozenset(each for each in books.in_hand.get(name, ()) if not held.has(each))
                    replies[name] = reply._replace(running=running)
            self._note_waits(names, replies)
            return [replies.get(name, Wait.WAIT) for name in partitions]

    def _note_waits(self, names: Sequence[str], replies: Collection[str]) -> None:
        now = self._books.runtime.now()
        for name in names:
            since, _ = self._waits.pop(name, (now, now))
            if name not in replies:
                self._waits[name] = since, now + min(_PAUSE * (now - since), _PAUSE_S)

    def _taken(
        self,
        owner: UUID,
        names: Sequence[str],
        locked: Callable[[Transaction, Sequence[str]], dict[str, Position]],
    ) -> dict[str, tuple[Position, Acquired]]:
        """Take positions over in one transaction; none, if another one holds a row for longer than is waited."""
        try:
            return self._database.run(lambda tx: self._take(tx, owner, names, locked), lock_s=_LOCK_S)
        except Busy:
            return {}

    def _take(
        self,
        tx: Transaction,
        owner: UUID,
        names: Sequence[str],
        locked: Callable[[Transaction, Sequence[str]], dict[str, Position]],
    ) -> dict[str, tuple[Position, Acquired]]:
        books, now = self._books, self._books.runtime.now()
        positions, now_ms = locked(tx, names), tx.now_ms()
        taken: dict[str, tuple[Position, Acquired]] = {}
        with books.lock:
            for name, position in positions.items():
                first = position.first
                if first.owner in books.unanswered or not books.takers.wait(position.head, now, self._lease_s):
                    epoch = max(first.epoch, books.epochs.get(name, 0)) + 1
                    taken[name] = position, position.acquired(epoch, max(first.born_ms, now_ms - epoch))
        rows = [(owner, reply.epoch, reply.born_ms, name) for name, (_, reply) in sorted(taken.items())]
        if rows:
            self._statements.take(tx, rows)
        return taken

    def let_go(self, partitions: Sequence[LetGo]) -> None:
        """End ownerships. What is in hand may be marked until another process takes the position: none waits for it."""
        with self._asking() as books:
            owners: set[tuple[str, UUID]] = set()
            with books.lock:
                for let in partitions:
                    held = books.held.get(let.partition)
                    if held is not None and let.epoch in (0, held.epoch):
                        owners.add((let.partition, held.owner))
                        in_hand = dict.fromkeys(let.unacked, let.known_as or held.epoch)
                        books.in_hand.setdefault(let.partition, {}).update(in_hand)
            self._change_all([self._statements.freeing(*each) for each in sorted(owners)])

    def poll(self, polls: Sequence[AskInHand]) -> list[InHand | Verdict]:
        """Ask for what this process itself has in hand."""
        with self._asking() as books:
            self._database.run(lambda tx: tx.now_ms())  # as in `acquire`
            with books.lock:
                return [self._in_hand(poll) for poll in polls]

    def _in_hand(self, poll: AskInHand) -> InHand | Verdict:
        held = self._held(poll.partition, poll.epoch)
        if held is None:
            return Verdict.FENCED
        done = frozenset(offset for offset in poll.offsets if held.has(offset))
        in_hand = self._books.in_hand.get(poll.partition, {})
        return InHand(done, frozenset(poll.offsets).difference(done, in_hand))

    def release(self, records: Sequence[Token]) -> None:
        """Report that records which were in hand are no longer running."""
        with self._asking() as books:
            self._database.run(lambda tx: tx.now_ms())  # as in `acquire`
            with books.lock:
                for name, offset, epoch in records:
                    in_hand = books.in_hand.get(name, {})
                    if in_hand.get(offset) == epoch:
                        del in_hand[offset]

    # ---- what is done
    def mark(self, marks: Sequence[Mark]) -> list[frozenset[int]]:
        """Note offsets as done. Replies with those that are fenced.

        A mark of no offset that changes nothing asks whether the database still has what it has acknowledged.
        """
        replies: dict[int, frozenset[int]] = {}
        with self._asking():
            self._look_back([mark for mark in marks if not mark.offsets])
            in_vain = 0
            while len(replies) < len(marks):
                # One mark a partition in a round, so that they are applied in their order.
                first = {mark.partition: at for at, mark in reversed([*enumerate(marks)]) if at not in replies}
                answered = self._mark_each([marks[at] for _, at in sorted(first.items())])
                replies |= {first[name]: fenced for name, fenced in answered.items()}
                in_vain = 0 if answered else in_vain + 1
                if in_vain == _ROUNDS:
                    raise StoreUnavailable(f"{self._database.where}: rows change while they are marked: ask again")
        return [replies[at] for at in range(len(marks))]

    def _mark_each(self, marks: Sequence[Mark]) -> dict[str, frozenset[int]]:
        """One round. A partition that is left out is to be marked again. Args: marks: one a partition, in the order in
        which rows are locked."""
        books, statements = self._books, self._statements
        replies: dict[str, frozenset[int]] = {}
        changes: list[tuple[Mark, Held, Change]] = []
        with books.lock:
            for mark in marks:
                held = books.held.get(mark.partition)
                ours = self._as_owner(mark, held)
                change = held.with_mark(ours) if held is not None and ours is not None else None
                if held is not None and ours is not None and change is None:
                    replies[mark.partition] = held.open_of(mark)
                elif held is not None and change is not None:
                    changes.append((mark, held, change))
        asked = [statements.marking(mark.partition, held.owner, change) for mark, held, change in changes]
        changed = self._change_all(asked)
        with books.lock:
            for (mark, held, change), rows in zip(changes, changed, strict=True):
                if rows:
                    held.marked(change)
                    replies[mark.partition] = held.open_of(mark)
            self._not_in_hand([mark for mark in marks if mark.partition in replies])
            refused = [(mark, *self._owned(mark)) for mark in marks if mark.partition not in replies]
        if refused:
            found = self._rows([mark.partition for mark, _, _ in refused])
            with books.lock:
                for mark, held, known in refused:
                    fenced = self._judge(mark, held, found.get(mark.partition), known)
                    if fenced is not None:
                        replies[mark.partition] = fenced
        return replies

    def _owned(self, mark: Mark) -> tuple[Held | None, Mapping[int, Content]]:
        """The ownership for which a mark is made, and its rows as they are known now; None = this process has none."""
        held = self._books.held.get(mark.partition)
        if held is None or self._as_owner(mark, held) is None:
            return None, {}
        return held, dict(held.rows)

    def _not_in_hand(self, marks: Sequence[Mark]) -> None:
        for mark in marks:
            if in_hand := self._books.in_hand.get(mark.partition):
                for offset in mark.offsets:
                    in_hand.pop(offset, None)

    def _as_owner(self, mark: Mark, held: Held | None) -> Mark | None:
        """The mark as one of the present ownership: it is, or it is of an earlier one in this process, and tells of
        what that has left in hand. None: it is of neither."""
        if held is None or held.epoch == mark.epoch:
            return None if held is None else mark
        in_hand = self._books.in_hand.get(mark.partition, {})
        handed = [offset for offset in mark.offsets if in_hand.get(offset) == mark.epoch] if in_hand else []
        return mark._replace(epoch=held.epoch, watermark=0, offsets=handed) if handed else None

    def _judge(
        self, mark: Mark, held: Held | None, position: Position | None, known: Mapping[int, Content]
    ) -> frozenset[int] | None:
        """The reply to a mark that has changed nothing; None = it is to be asked again. Args: held: the ownership for
        which it was made; None = this process has none. position: as it is now; None = it is not there. known: the rows
        before it was read."""
        if held is not None and self._books.refused(mark.partition, held, position, known):
            return None
        if position is None:
            return frozenset(mark.offsets)
        watermark, done = position.watermark, position.done
        return frozenset(offset for offset in mark.offsets if offset >= watermark and offset not in done)

    def drop(self, drops: Sequence[Drop]) -> list[bool]:
        """Forget what is done from the offset of the reset on. False = fenced."""
        names = sorted({drop.partition for drop in drops})
        # Under the lock: no transaction may end between the rows' change and what is known here.
        with self._asking() as books, books.lock:
            # A copy: the transaction may be undone, or done again.
            def work(tx: Transaction) -> tuple[list[bool], dict[str, Position]]:
                positions, replies = self._statements.read(tx, names, self._database.for_update), []
                for drop in drops:
                    position, held = positions.get(drop.partition), self._held(drop.partition, drop.epoch)
                    owned = position is not None and held is not None and position.first.owner == held.owner
                    if position is not None and owned:
                        self._statements.drop(tx, drop.partition, drop.offset, position.end)
                        positions |= self._statements.read(tx, [drop.partition])
                    replies.append(owned)
                return replies, positions

            replies, positions = self._database.run(work)
            for drop, dropped in zip(drops, replies, strict=True):
                held, position = self._held(drop.partition, drop.epoch), positions.get(drop.partition)
                if held is not None and position is not None and dropped:
                    held.reset(position)
                    books.in_hand.pop(drop.partition, None)
                elif held is not None and position is not None:
                    books.takers.note(drop.partition, held.epoch, position.head, books.runtime.now())
            return replies

    def exchange(self, done: Sequence[Claim], marks: Sequence[Mark], claims: Sequence[Claim]) -> Exchanged:
        """Mark; there are no keys."""
        return Exchanged(self.finish(done), self.mark(marks) if marks else [], self.claim(claims))

    # ---- inside
    @contextmanager
    def _asking(self) -> Iterator[Books]:
        if not self._books.own_process:
            raise StateError(f"session {self.id} belongs to the parent process: begin one in each process, after fork")
        with self._books.asking:
            try:
                self._books.hear()
                yield self._books
            except StoreRefused as error:  # it has let this process in before
                raise StoreLockedOut(str(error)) from error

    def _held(self, name: str, epoch: int) -> Held | None:
        held = self._books.held.get(name)
        return held if held is not None and held.epoch == epoch else None

    def _change_all(self, changes: Sequence[Statement]) -> list[int]:
        return self._database.change_all(changes) if changes else []

    def _rows(self, names: Sequence[str]) -> dict[str, Position]:
        return self._database.run(lambda tx: self._statements.read(tx, names))

    def _look_back(self, marks: Collection[Mark]) -> None:
        """See whether the database has lost changes of positions that no record comes to: a mark would find out."""
        books = self._books
        with books.lock:
            owned = [(mark.partition, self._held(mark.partition, mark.epoch)) for mark in marks]
            known = {name: (held, dict(held.rows)) for name, held in owned if held is not None and held.begun}
        if not known:
            return
        found = self._rows(list(known))
        with books.lock:
            for name, (held, rows) in known.items():
                position = found.get(name)
                ours = position is not None and position.first.owner == held.owner
                if position is None or (lost_by(rows, position) if ours else position.first.epoch < held.epoch):
                    books.went_back(name, held, position)
                    self._lost = True
