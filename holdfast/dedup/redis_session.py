"""A session at Redis: each method is one script, one round trip for all its items."""

from __future__ import annotations

import logging
from itertools import chain
from typing import TYPE_CHECKING, Any

from holdfast.dedup.claims import Acquired, Exchanged, InHand, Verdict, Wait
from holdfast.dedup.redis_asking import Asker, Question, in_order
from holdfast.dedup.redis_failover_replay import FailoverReplay
from holdfast.dedup.redis_keys import batch
from holdfast.dedup.redis_layout import decode, encode
from holdfast.dedup.redis_positions import (
    Ended,
    Long,
    acquired_or_long,
    check_offsets,
    fenced_offsets,
    in_parts,
    is_long,
    pieces,
    polled,
    read,
    run_args,
)
from holdfast.dedup.redis_servers import Servers
from holdfast.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast.dedup.claims import AskInHand, Claim, ClaimKey, Drop, LetGo, Mark, Standing, Token
    from holdfast.dedup.lease import Lease
    from holdfast.dedup.redis_asking import Asking, Replies
    from holdfast.dedup.redis_failover_replay import RecentHandOvers
    from holdfast.dedup.redis_keys import Args, Batch, Group, ShardKey, Times
    from holdfast.dedup.redis_layout import Layout
    from holdfast.dedup.redis_positions import Dropping
    from holdfast.dedup.redis_scripts import Scripts
    from holdfast.runtime import Runtime

log = logging.getLogger("holdfast.dedup")

#: The kind of a mark that holds all that its owner knows (scripts/mark.lua).
_ALL = 2
_VERDICTS = {ord(verdict.value): verdict for verdict in Verdict}


class RedisSession:
    """One start of one process at one Redis. Any thread may call; made by `RedisClaims.begin`."""

    def __init__(self, scripts: Scripts, layout: Layout, lease: Lease, runtime: Runtime, times: Times) -> None:
        self._scripts = scripts
        self._layout = layout
        self._lease = lease
        #: As in `ClaimSession`. The lease's own method, without a function around it: each start of a handler calls it.
        self.live = lease.live
        self._runtime = runtime
        self._times = times
        self._replay = FailoverReplay(runtime, times.window / 1000, lease.lease_s)
        self._servers = Servers()
        self._asker = Asker(scripts, layout, lease, runtime)

    @property
    def id(self) -> str:
        """Unique, never used again."""
        return self._lease.session_id

    def begin(self) -> None:
        """Make the session known in every shard. Once, before anything else."""
        sent_at = self._runtime.now()
        self._servers.begun(self._everywhere("begin"), sent_at)
        self._asker.let_in = True

    def renew(self) -> bool:
        """Keep the session alive, in every shard. False = the session is lost for good: it is dead in one of them, or
        one of them may still hold what this session has ended and cannot send again."""
        # Ask the sentinels first: a replaced master that is cut off would confirm the renewal, and the new master would
        # not have it.
        self._scripts.follow()
        if not self._renewed():
            return False
        if self._servers.new:  # in a Redis Cluster perhaps for one shard only
            log.warning(
                "another server answers session %s than before (a failover, a restart, a slot that moved): the Redis "
                "at %s. It may lack what was acknowledged last, so this session sends again what it ended lately",
                self.id,
                self._scripts.where,
            )
        if not (self._servers.new or self._replay.replay_due):
            return True
        forgotten = self._replay.forgotten_since(self._servers.lack_since)
        if not self._replay_calls():
            return True
        self._servers.replayed()
        if forgotten:
            log.error(
                "session %s ends: the Redis at %s may still hold what this session has ended, and that is too much to "
                "send again. Another session begins; claims of this one are free when its lease is over",
                self.id,
                self._scripts.where,
            )
            self._lease.lose()
        return not forgotten

    def _renewed(self) -> bool:
        """Returns: whether the session lives."""
        sent_at = self._runtime.now()
        replies = self._everywhere("renew")
        if b"LOST" in replies:
            self._lease.lose()
            return False
        self._lease.renewed(sent_at)
        self._servers.renewed(replies, sent_at)
        return True

    def _replay_calls(self) -> bool:
        """Send recent calls again, to a server that may lack them. Nothing changes at a server that has them, or where
        another session has taken the key or the partition since. Returns: whether all were sent."""
        with self._replay.lock:
            let_gos, unclaims, releases = self._replay.recent_calls()
            try:
                self._end(let_gos)
                self.unclaim(unclaims)
                self.release(releases)
                owned = [self._shortened(mark, keep_alive=True) for mark in self._replay.owned()]
                self._asker.alone(self._restating(owned))
            except StoreError as error:
                return self._not_replayed(error)
        marks, finishes = self._replay.recent_ends()
        try:
            for mark in marks:
                self.mark([mark])
            for each in finishes:
                if self._lease.renewal_due and not self._renewed():  # the renewing thread is busy here
                    return False
                self._asker.alone(self._finishing(each.claims, each.results))
        except StoreError as error:
            return self._not_replayed(error)
        return True

    def _not_replayed(self, error: StoreError) -> bool:
        log.warning("session %s sends again what it ended lately, at its next renewal: %s", self.id, error)
        return False

    def acquire(self, partitions: Sequence[str]) -> list[Acquired | Wait | Verdict]:
        """Take partitions over. Their recent hand-overs, and the ends of records that were in hand then, are sent again
        before: a failover may have lost them."""

        def again(recent: RecentHandOvers) -> None:
            self._let_all_go(recent.ends)
            if recent.releases:
                self._asker.alone(self._releasing(recent.releases))
            if recent.marks:
                self._asker.alone(self._marking(recent.marks))

        # Not in one round trip: a script that the server does not have loaded yet would run after all others.
        replies = self._replay.acquire(partitions, again, lambda: self._acquired_in_full(partitions))
        if Verdict.FENCED in replies:
            self._lease.lose()
        return replies

    def _acquired_in_full(self, partitions: Sequence[str]) -> list[Acquired | Wait | Verdict]:
        replies = self._asker.alone(self._acquiring(partitions))
        return [
            self._read(partition, reply) if isinstance(reply, Long) else reply
            for partition, reply in zip(partitions, replies, strict=True)
        ]

    def _read(self, partition: str, long: Long) -> Acquired | Wait:
        shard, key = self._layout.position(partition)

        def ask(chunks: Iterable[tuple[int, int]]) -> bytes:
            args: Args = [long.known.epoch, *(number for run in chunks for number in run)]
            reply: bytes = self._ask("chunks", {shard: ([key], args)})[shard]
            return reply

        done = read(long, ask)
        return Wait.WAIT if done is None else long.known._replace(done=done)

    def _acquiring(self, partitions: Sequence[str]) -> Asking[list[Acquired | Long | Wait | Verdict]]:
        where = [self._layout.position(partition) for partition in partitions]
        groups = _by_shard(where, [[]] * len(where), self._times.position)
        replies = yield Question("acquire", groups, durable=True)
        refusals: dict[bytes, Verdict | Wait] = {b"F": Verdict.FENCED, b"W": Wait.WAIT}
        return [
            refusals[reply] if isinstance(reply, bytes) else acquired_or_long(reply)
            for reply in in_order(replies, _shards(where))
        ]

    def mark(self, marks: Sequence[Mark]) -> list[frozenset[int]]:
        """Note offsets as done. Replies with those that are fenced."""
        leaps = self._replay.mark(marks)
        parts = [in_parts(mark) for mark in marks]
        if len(parts) == sum(map(len, parts)):
            fenced = self._asker.alone(self._marking(marks))
        else:
            fenced = [
                frozenset(chain.from_iterable(self._asker.alone(self._marking([part]))[0] for part in each))
                for each in parts
            ]
        self._leap(leaps)
        return fenced

    def _leap(self, leaps: Sequence[Mark]) -> None:
        """Send watermarks again: one call of the script moves a watermark over a bounded number of chunks."""
        for mark in leaps:
            self._asker.alone(self._marking([mark]))

    def _marking(self, marks: Sequence[Mark]) -> Asking[list[frozenset[int]]]:
        args: list[Args] = []
        for mark in marks:
            check_offsets(mark.offsets)
            check_offsets((mark.watermark,))
            args.append([mark.epoch, mark.watermark, int(mark.former), *run_args(mark)])
        return (yield from self._to_mark(marks, args))

    def _restating(self, standings: Sequence[Standing]) -> Asking[object]:
        """Mark all that their owner knows to be done in these positions."""
        marks = [known.mark for known in standings]
        args: list[Args] = [
            [known.mark.epoch, known.mark.watermark, _ALL, *known.since, known.again, *run_args(known.mark)]
            for known in standings
        ]
        return (yield from self._to_mark(marks, args))

    def _to_mark(self, marks: Sequence[Mark], args: Sequence[Args]) -> Asking[list[frozenset[int]]]:
        where = [self._layout.position(mark.partition) for mark in marks]
        replies = yield Question("mark", _by_shard(where, args, self._times.position), durable=True)
        return [fenced_offsets(fenced) for fenced in in_order(replies, _shards(where))]

    def let_go(self, partitions: Sequence[LetGo]) -> None:
        """End ownerships, handing over what is in hand. Sends all of their marks again: a failover may have lost them,
        and the next owner starts from what the store has."""
        self._end(self._replay.ends(partitions))

    def _end(self, ended: Sequence[Ended]) -> None:
        self._replay.call_and_remember(lambda: self._let_all_go(ended), lambda _: self._replay.let_go(ended))

    def _let_all_go(self, ended: Sequence[Ended]) -> None:
        shorter = [Ended(let, known and self._shortened(known)) for let, known in ended]
        self._asker.alone(self._ending(shorter))

    def _shortened(self, known: Standing, *, keep_alive: bool = False) -> Standing:
        """Send the offsets of a mark that is too long for one call. Returns: the rest, for that call.

        Args:
            known: the mark.
            keep_alive: renew the session in between, since the caller is the renewing thread.
        """
        mark = known.mark
        if not is_long(mark):
            return known
        shard, key = self._layout.position(mark.partition)
        for piece in pieces(mark):
            if keep_alive and self._lease.renewal_due:
                self._renewed()
            args: Args = [self._times.position, mark.epoch, *known.since, known.again, *piece]
            self._ask("restate", {shard: ([key], args)}, durable=True)
        return known._replace(mark=mark._replace(offsets=()))

    def _ending(self, ended: Sequence[Ended]) -> Asking[None]:
        args: list[Args] = []
        for let, known in ended:
            check_offsets(let.unacked)
            marked: Args = [-1, 0, 0, 0, 0]
            if known is not None:
                marked = [known.mark.watermark, *run_args(known.mark), *known.since, known.again]
            args.append([let.epoch, let.known_as, *marked, len(let.unacked), *let.unacked])
        where = [self._layout.position(let.partition) for let, _ in ended]
        yield Question("let_go", _by_shard(where, args, self._times.position), durable=True)

    def poll(self, polls: Sequence[AskInHand]) -> list[InHand | Verdict]:
        """Ask for what was handed over."""
        args: list[Args] = []
        for poll in polls:
            check_offsets(poll.offsets)
            args.append([poll.epoch, len(poll.offsets), *poll.offsets])
        where = [self._layout.position(poll.partition) for poll in polls]
        replies: Sequence[bytes] = in_order(self._ask("poll", _by_shard(where, args), durable=True), _shards(where))
        return [polled(poll, reply) for poll, reply in zip(polls, replies, strict=True)]

    def release(self, records: Sequence[Token]) -> None:
        """Report that handed-over records are no longer running."""
        self._replay.call_and_remember(
            lambda: self._asker.alone(self._releasing(records)), lambda _: self._replay.release(records)
        )

    def _releasing(self, records: Sequence[Token]) -> Asking[None]:
        check_offsets([record.offset for record in records])
        args: list[Args] = [[record.offset, record.epoch] for record in records]
        where = [self._layout.position(record.partition) for record in records]
        yield Question("release", _by_shard(where, args), durable=True)

    def drop(self, drops: Sequence[Drop]) -> list[bool]:
        """Forget what is done from the offset of the reset on. False = fenced."""
        check_offsets([drop.offset for drop in drops])
        asked = self._replay.dropping(drops)
        again = self._replay.call_and_remember(
            lambda: self._asker.alone(self._dropping(asked)), lambda again: self._replay.dropped(asked, again)
        )
        return [each is not None for each in again]

    def _dropping(self, asked: Sequence[Dropping]) -> Asking[list[int | None]]:
        args: list[Args] = [[drop.epoch, since.number, drop.offset, seen] for drop, since, seen in asked]
        where = [self._layout.position(each.drop.partition) for each in asked]
        replies = yield Question("drop", _by_shard(where, args, self._times.position), durable=True)
        return [None if reply == b"F" else int(reply) for reply in in_order(replies, _shards(where))]

    def claim(self, claims: Sequence[Claim]) -> list[Verdict]:
        """Ask for keys."""
        return self._asker.alone(self._claiming(claims))

    def _claiming(self, claims: Sequence[Claim]) -> Asking[list[Verdict]]:
        reclaimed = self._replay.asked_for(claims)
        asked = self._batch(claims)
        replies = yield Question("claim", asked.groups, durable=True)
        verdicts = _verdicts(in_order(replies, asked.shards))
        self._replay.answered(reclaimed, claims, verdicts)
        if Verdict.FENCED in verdicts:
            self._lease.lose()
        return verdicts

    def claim_fenced(self, claims: Sequence[Claim]) -> list[tuple[Verdict, int]]:
        """Ask for keys, with fences."""
        reclaimed = self._replay.asked_for(claims)
        asked = self._batch(claims)
        for shard, (keys, _) in asked.groups.items():
            keys.append(self._layout.fence(shard))
        replies = self._ask("claim", asked.groups, durable=True)
        verdicts = {shard: iter(found) for shard, (found, _) in replies.items()}
        fenced: list[tuple[Verdict, int]] = []
        for shard in asked.shards:
            verdict = _VERDICTS[next(verdicts[shard])]
            fenced.append((verdict, int(replies[shard][1]) if verdict is Verdict.NEW else 0))
        self._replay.answered(reclaimed, claims, (verdict for verdict, _ in fenced))
        if any(verdict is Verdict.FENCED for verdict, _ in fenced):
            self._lease.lose()
        return fenced

    def finish(self, claims: Sequence[Claim], results: Sequence[str] | None = None) -> list[Verdict]:
        """Note keys as done for the store's window, with their results."""
        return self._replay.call_and_remember(
            lambda: self._asker.alone(self._finishing(claims, results)),
            lambda verdicts: self._replay.finish(claims, results, verdicts),
        )

    def _finishing(self, claims: Sequence[Claim], results: Sequence[str] | None) -> Asking[list[Verdict]]:
        asked = self._batch(claims, results)
        replies = yield Question("finish" if results is None else "finish_with", asked.groups, durable=True)
        return _verdicts(in_order(replies, asked.shards))

    def exchange(self, done: Sequence[Claim], marks: Sequence[Mark], claims: Sequence[Claim]) -> Exchanged:
        """Finish, mark and claim, in one round trip."""
        leaps = self._replay.mark(marks)

        def note(exchanged: Exchanged) -> None:
            if not isinstance(exchanged.finished, StoreError):
                self._replay.finish(done, None, exchanged.finished)

        exchanged = self._replay.call_and_remember(
            lambda: Exchanged(
                *self._asker.together(self._finishing(done, None), self._marking(marks), self._claiming(claims))
            ),
            note,
            # The claims are answered: the verdicts of a second call would not reach the caller.
            again=lambda: Exchanged(self._asker.alone(self._finishing(done, None)), (), ()),
        )
        self._leap(leaps)
        return exchanged

    def results(self, keys: Sequence[ClaimKey]) -> list[str | None]:
        """The results kept with these keys."""
        asked = batch(self._layout, self._times, keys, results=True)
        replies: Sequence[bytes | None] = in_order(self._ask("results", asked.groups), asked.shards)
        return [None if reply is None else decode(reply) for reply in replies]

    def unclaim(self, claims: Sequence[Claim]) -> None:
        """Give keys back, as far as they are still held."""
        groups = self._batch(claims).groups
        self._replay.call_and_remember(
            lambda: self._ask("unclaim", groups, durable=True), lambda _: self._replay.unclaim(claims)
        )

    def vouch(self, seconds: float) -> None:
        """Renew for `seconds` from now on, unless this is called again."""
        self._lease.vouch(seconds)

    def abandon(self) -> None:
        """Renew no more: others take over when the lease ends."""
        self._lease.stop()

    def end(self) -> None:
        """End the session. Does not raise; without an answer the lease runs out by itself."""
        self._lease.stop()
        if not self._lease.own_process:
            return  # in a forked child: the session is the parent's
        self._lease.lose()
        try:
            self._everywhere("end")
        except StoreError as error:
            log.warning("session %s was not ended and runs out with its lease: %s", self.id, error)

    def raise_generation(self, above: int | None = None) -> None:
        """See `Asker`."""
        self._asker.raise_generation(above)

    def _everywhere(self, name: str) -> list[Any]:
        """Run a script about the session itself in every shard. Returns: the replies, by shard."""
        args: Args = [int(self._lease.lease_s * 1000)]
        replies = self._ask(name, {shard: ([], args) for shard in range(self._layout.shards)})
        return [replies[shard] for shard in range(self._layout.shards)]

    def _batch(self, claims: Sequence[Claim], results: Sequence[str] | None = None) -> Batch:
        return batch(
            self._layout,
            self._times,
            [claim.key for claim in claims],
            held=[claim.token for claim in claims],
            results=results is not None,
            each=[] if results is None else [encode(result) for _, result in zip(claims, results, strict=True)],
        )

    def _ask(self, name: str, groups: dict[int, Group], *, durable: bool = False) -> Replies:
        return self._asker.ask(Question(name, groups, durable))


def _by_shard(where: Sequence[ShardKey], args: Sequence[Args], *first: int) -> dict[int, Group]:
    """The keys of each shard, and the arguments for it: `first`, then those of its items."""
    groups: dict[int, Group] = {}
    for (shard, key), own in zip(where, args, strict=True):
        keys, all_args = groups.setdefault(shard, ([], [*first]))
        keys.append(key)
        all_args.extend(own)
    return groups


def _shards(where: Sequence[ShardKey]) -> Iterable[int]:
    return (shard for shard, _ in where)


def _verdicts(reply: Sequence[int]) -> list[Verdict]:
    """Read a reply of one character a key. Nearly always all are the same."""
    first = bytes(reply[:1])
    if first * len(reply) == reply:
        return [_VERDICTS[each] for each in first] * len(reply)
    return [_VERDICTS[each] for each in reply]
