"""Queue: one assigned queue, from its assignment until it is let go.

1. `seek`: it is known where to begin. A `Log` begins: is it the log that was read before?
2. `prove` sends a probe, and its answer decides. Until then nothing is read. After trouble with the broker it is
   decided again.
3. `pull` sends long polls, some ahead of their answers, as far as `Room` has room. Each answer begins the next pulls.
4. An answer with messages becomes a `Chunk`, and the queue one of those that are ready. `Queues.take` takes records.
5. `commit`, one at a time; the answer is posted.
6. `stop` drops pulls and chunks; `let_go` ends the rest.

The source's thread calls the methods, connections' threads bring answers; the inbox' lock guards all fields that
change. An answer that the source must act on is posted to the inbox.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.inbox import AnotherLog, Moved, Proved, Trouble
from holdfast.adapters.rocketmq.log import Found, Log, Stage, judge
from holdfast.adapters.rocketmq.pull_window import MIB, PullWindow, Room
from holdfast.adapters.rocketmq.reading import Chunk
from holdfast.adapters.rocketmq.remoting import PullRequest, PullStatus, Subscription
from holdfast.adapters.rocketmq.trouble_lines import TroubleLines
from holdfast.errors import SourceError
from holdfast.plugin.retrying.retry import BACKOFF
from holdfast.timing import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.adapters.rocketmq.commits import QueueCommits
    from holdfast.adapters.rocketmq.inbox import Inbox
    from holdfast.adapters.rocketmq.log import Probe
    from holdfast.adapters.rocketmq.reading import Reader
    from holdfast.adapters.rocketmq.remoting import PullAnswer, RemotingClient
    from holdfast.adapters.rocketmq.settings import PullSettings
    from holdfast.records import Partition
    from holdfast.timing import Deadline

_log = logging.getLogger("holdfast.rocketmq")

#: The wait after a pull to a slave that is behind: it does not hold the pull, but answers at once that nothing matched.
_BEHIND_S = 0.5
#: How long a slave must be behind before it is logged.
_BEHIND_FOR_S = 10.0
#: The wait between two empty pulls if brokers do not hold pulls (broker_suspend_max_time_s=0).
_NOT_HELD_S = 0.1
#: The most bytes of an answer, by default (maxTransferBytesOnMessageInMemory); one larger message comes alone.
_ANSWER_BYTES = 256 * 1024
#: A GetMessageStatus of brokers, in an empty answer whose next offset is further on: the file of the log was removed.
_REMOVED = "MESSAGE_WAS_REMOVING"


class Shared:
    """The parts that all queues of a source share, and the order in which they get their turn."""

    def __init__(self, client: RemotingClient, inbox: Inbox, settings: PullSettings) -> None:
        self.client, self.inbox, self.settings = client, inbox, settings
        self.changed = inbox.changed
        self.room = Room(settings)
        self.most_size_of_queue = int(settings.pull_threshold_size_for_queue * MIB)
        #: Queues with messages to take, in turn.
        self.ready: deque[Queue] = deque()
        #: Queues without a pull under way, after trouble or for lack of room, in the order in which they are pulled.
        self.idle: dict[Queue, None] = {}
        #: Queues that are not read until their log is proved.
        self.unproved: set[Queue] = set()
        #: A broker has answered a pull: this user had the permissions then.
        self.let_in = False
        self.behind: TroubleLines[Partition] = TroubleLines(_BEHIND_FOR_S)


class Queue:
    """See above.

    Args:
        partition: the queue's name.
        subscription: sent with each pull.
        reader: decodes its messages.
        commits: outlives this object while a commit is under way.
        shared: see `Shared`.
    """

    __slots__ = (
        "_expected",
        "_is_ready",
        "_reserved",
        "_shared",
        "_size",
        "_stopped",
        "_subscription",
        "_troubles",
        "_wait_until",
        "_window",
        "chunks",
        "commits",
        "count",
        "log",
        "orphan",
        "partition",
        "paused",
        "reader",
        "start",
    )

    def __init__(
        self, partition: Partition, subscription: Subscription, reader: Reader, commits: QueueCommits, shared: Shared
    ) -> None:
        self.partition, self.commits = partition, commits
        self._subscription, self.reader, self._shared = subscription, reader, shared
        #: The broker had no offset of the group at the takeover.
        self.orphan = False
        #: None: it is not known yet where to begin.
        self.log: Log | None = None
        #: The first offset of a log that begins above the offset that was to be read. A seek removes it.
        self.start: int | None = None
        self._window = PullWindow(None)
        self.paused = self._stopped = False
        #: Answers that are not taken yet, the number of their messages, and their bytes.
        self.chunks: deque[Chunk] = deque()
        self.count = self._size = 0
        #: (messages, bytes) that each pull under way may bring, as the last answer: (0, 0) at the log's end. None: no
        #: answer yet.
        self._expected: tuple[int, int] | None = None
        #: (messages, bytes) reserved for the pulls under way.
        self._reserved = (0, 0)
        #: Whether it is in `Shared.ready`.
        self._is_ready = False
        #: Pulls that failed, one after the other, and when to pull again.
        self._troubles, self._wait_until = 0, 0.0

    @property
    def end(self) -> int | None:
        """The end of the log in the last answer; None: not known, or not read any more."""
        return None if self._stopped else self._window.end

    # ---- from where, and until when
    def taken_over(self, committed: int | None) -> None:
        """Note the group's offset at the broker when this member takes the queue over; None: there is none."""
        self.orphan = committed is None
        self.commits.found(committed)

    def seek(self, offset: int) -> bool:
        """Read from this offset on, once the log is proved. Returns False if the queue is not read any more."""
        with self._shared.changed:
            if self._stopped:
                return False
            self.start = None
            self.log = Log(offset, orphan=self.orphan, before=self.log)
            self._note_proof()
            self._drop(offset)
            self._troubles, self._wait_until = 0, 0.0
        self.pull()
        return True

    def go_on_at(self, moved: Moved, offset: int, *, wait_s: float = 0.0) -> bool:
        """Read on from this offset, after a wait. Messages that have arrived before stay: no pull would bring them
        again. Returns False if there was a seek since, or the queue is not read any more."""
        with self._shared.changed:
            if self._stopped or self._window.next is not None:
                return False
            self._restart(offset)
            self._troubles, self._wait_until = 0, SYSTEM_CLOCK.now() + wait_s if wait_s else 0.0
            self.chunks.append(Chunk(moved.answer._replace(body=b"", next_offset=offset), moved.asked))
            self._note_ready()
        self.pull()
        return True

    def pause(self) -> None:
        """Stop pulling; messages that have arrived are kept, and not delivered."""
        with self._shared.changed:
            self._set_paused(paused=True)
            self._shared.idle.pop(self, None)

    def resume(self) -> None:
        """Pull and deliver again."""
        with self._shared.changed:
            self._set_paused(paused=False)
            self._note_ready()
        self.pull()

    def stop(self) -> None:
        """Stop reading: messages are dropped, and answers to pulls ignored. Commits go on."""
        with self._shared.changed:
            self._stopped = True
            self.start = None
            self._drop(None)
            self._shared.idle.pop(self, None)
            self._shared.behind.forget([self.partition])

    def let_go(self) -> None:
        """End: the log is of no interest any more."""
        with self._shared.changed:
            self.log = None
            self._shared.unproved.discard(self)

    # ---- is it the log that was read before?
    def prove(self) -> None:
        """Send the probe that decides whether the queue may be read, if it is due."""
        self._probe(Log.proof)

    def renew_mark(self) -> None:
        """Let the candidate become the mark, if it is due: at once, or after a probe."""
        self._probe(Log.renewal)

    def doubt(self) -> None:
        """Doubt the log, after trouble with the broker. Under the lock."""
        if self.log is not None:
            self.log.doubt()
            self._note_proof()

    def prove_again(self, log: Log) -> None:
        """Probe the log later once more, unless it is not the current one: the source could not decide."""
        with self._shared.changed:
            if self.log is log:
                log.look_again()
                self._note_proof()

    def same_up_to(self, deadline: Deadline) -> int:
        """The offset behind the mark, if the mark's message is still there: all below belongs to the log that was read,
        and is done. Else 0. Waits. Raises SourceError."""
        mark = None if self.log is None else self.log.mark
        if mark is None:
            return 0
        answer = self._shared.client.pull(self._one_message(mark.offset), deadline)
        found = judge(mark.offset, mark, answer)
        if found is Found.RESET:
            self._shared.inbox.post(Moved(self.partition, mark.offset, answer))
        return mark.offset + 1 if found is Found.SAME else 0

    def _probe(self, wanted: Callable[[Log], Probe | None]) -> None:
        """Send the probe that the log wants, if it wants one."""
        with self._shared.changed:
            log = self.log
            probe = None if log is None else wanted(log)
        if log is None or probe is None:
            return
        answered = partial(self._probed, log, probe)
        try:
            self._shared.client.begin_pull(self._one_message(probe.offset), answered)
        except SourceError as error:
            answered(error)

    def _one_message(self, offset: int) -> PullRequest:
        return PullRequest(
            queue=self.partition,
            group=self._shared.settings.group,
            offset=offset,
            subscription=Subscription(topic=self.partition.topic),
            max_messages=1,
            suspend_s=0,
        )

    def _probed(self, log: Log, probe: Probe, answer: PullAnswer | SourceError) -> None:
        """Take the answer to a probe. On a connection's thread."""
        post = self._shared.inbox.post
        with self._shared.changed:
            if self.log is not log:
                return
            found = log.answered(probe, answer)
            if isinstance(answer, SourceError):
                if probe.decides:  # else the pulls report it
                    post(Trouble(self.partition, answer))
            elif found is Found.RESET:
                post(Moved(self.partition, probe.offset, answer))
            if log.stage is Stage.OTHER:
                post(AnotherLog(self.partition, log))
            self._note_proof()
            proved = probe.decides and log.proved
            if proved:
                post(Proved(self.partition))
        if proved:
            self.pull()

    def _note_proof(self) -> None:
        if self.log is not None and self.log.open:
            self._shared.unproved.add(self)
        else:
            self._shared.unproved.discard(self)

    # ---- pulls
    def pull(self) -> None:
        """Begin pulls, as far as the queue may be read and there is room. Any thread, without the lock."""
        shared = self._shared
        while (wanted := self._next_pull()) is not None:
            turn, request = wanted
            try:
                shared.client.begin_pull(request, partial(self._answered, turn, request.offset))
            except SourceError as error:
                self._answered(turn, request.offset, error)
        with shared.changed:
            self._note_idle()

    def _next_pull(self) -> tuple[int, PullRequest] | None:
        """The next pull and its turn; None: do not pull now."""
        shared = self._shared
        with shared.changed:
            if (
                self.paused
                or self.log is None
                or not self.log.proved
                or self._size >= shared.most_size_of_queue
                or (self._wait_until and SYSTEM_CLOCK.now() < self._wait_until)
                or (offset := self._window.begin(self._room())) is None
            ):
                return None
            self._reserve()
            return self._window.turn, PullRequest(
                queue=self.partition,
                group=shared.settings.group,
                offset=offset,
                subscription=self._subscription,
                max_messages=shared.settings.pull_batch_size,
                suspend_s=0 if self._expected is None else shared.settings.broker_suspend_max_time_s,
            )

    def _room(self) -> int:
        shared = self._shared
        of_all = shared.room.left(self._reserved[0])
        if shared.room.kept and not self.chunks:
            of_all = max(of_all, 1)  # messages of paused queues must not keep other queues from being read
        return min(of_all, shared.settings.pull_threshold_for_queue - self.count)

    def _answered(self, turn: int, asked: int, answer: PullAnswer | SourceError) -> None:
        """Take the answer to a pull. On a connection's thread."""
        shared = self._shared
        with shared.changed:
            if self._is_reset(asked, answer) or self._window.turn != turn:
                return
            if isinstance(answer, SourceError):
                self._restart(self._window.next)
                self._troubles += 1
                self._wait_until = SYSTEM_CLOCK.now() + (BACKOFF.wait_s(self._troubles, answer) or 0.0)
                self._note_idle()
                self.doubt()
                shared.inbox.post(Trouble(self.partition, answer))
                return
            self._troubles, self._wait_until, shared.let_in = 0, 0.0, True
            if self.log is None or not self.log.proved:  # the connection broke: another server may have answered
                self._restart(self._window.next)
                self._note_idle()
                return
            if answer.status is not PullStatus.MOVED:
                got = max(0, answer.next_offset - asked)
                self._expected = (got, len(answer.body)) if answer.next_offset < answer.max_offset else (0, 0)
            for at, due in self._window.answered(asked, answer):
                self._take_answer(self.log, at, due)
            self._reserve()
        self.pull()

    def _is_reset(self, asked: int, answer: PullAnswer | SourceError) -> bool:
        """Whether the answer is a reset, which is posted then. A broker sends it once, as the answer to the group's
        next pull. So it counts also if the pull is of an earlier turn, or ahead of its order."""
        if isinstance(answer, SourceError) or self._stopped or not answer.is_reset(asked):
            return False
        self._move(asked, answer)
        return True

    def _move(self, asked: int, answer: PullAnswer) -> None:
        self._restart(None)  # until the source decides where to read on
        self._shared.inbox.post(Moved(self.partition, asked, answer))

    def _take_answer(self, log: Log, asked: int, answer: PullAnswer) -> None:
        """Take the answer that is the next in the log's order. Under the lock."""
        if answer.status is PullStatus.MOVED:
            self._move(asked, answer)
        elif answer.body or answer.next_offset > asked:
            log.came(answer.body)
            chunk = Chunk(answer, asked)
            self.chunks.append(chunk)
            self._add_to_counts(chunk.count, len(chunk.body))
            self._note_ready()
            self._shared.inbox.wake()
            if answer.status is PullStatus.NONE_MATCHED and answer.remark == _REMOVED:
                _log.warning(
                    "%s: messages %d to %d were removed by their broker before they were read: their log has expired",
                    self.partition,
                    asked,
                    answer.next_offset - 1,
                )
        elif answer.status is PullStatus.NONE_MATCHED:
            self._wait_until = SYSTEM_CLOCK.now() + _BEHIND_S
            if self._shared.behind.due(self.partition):
                _log.warning(
                    "%s is not read on from %d: %s does not have that yet, as a slave that is behind. It is asked for "
                    "again; does replication go on there?",
                    self.partition,
                    asked,
                    answer.address,
                )
        elif not self._shared.settings.broker_suspend_max_time_s:
            self._wait_until = SYSTEM_CLOCK.now() + _NOT_HELD_S

    # ---- commits
    def commit(self, offset: int) -> bool:
        """Begin to commit: all records below the offset are done. Never waits. Returns whether the log has got its
        first mark, which should be stored soon."""
        self.commits.begin(offset)
        with self._shared.changed:
            return self.log is not None and self.log.done_below(offset)

    # ---- messages
    def first_chunk(self) -> Chunk | None:
        """The chunk to take from; None: there is none now."""
        with self._shared.changed:
            return self.chunks[0] if self.chunks and not self.paused else None

    def taken(self, chunk: Chunk) -> None:
        """Drop a chunk that is read to its end. There is room again: the first idle queue gets it first, else this
        queue would use it up while it has lag."""
        with self._shared.changed:
            if self.chunks and self.chunks[0] is chunk:  # it was not dropped meanwhile
                self.chunks.popleft()
                self._add_to_counts(-chunk.count, -len(chunk.body))
            first = next(iter(self._shared.idle), None)
        if first is not None:
            first.pull()
        self.pull()

    def back_in_turn(self) -> None:
        """Become ready again after a turn, if there is more to take."""
        with self._shared.changed:
            self._is_ready = False
            self._note_ready()

    # ---- under the lock
    def _drop(self, offset: int | None) -> None:
        """Drop messages that have arrived and pulls under way; go on at this offset."""
        self._restart(offset)
        self._add_to_counts(-self.count, -self._size)
        self.chunks.clear()

    def _restart(self, offset: int | None) -> None:
        self._window.restart(offset)
        self._reserve()

    def _reserve(self) -> None:
        """Reserve room for the messages that the pulls under way may bring."""
        times, settings = self._window.under_way, self._shared.settings
        count, size = (settings.pull_batch_size, _ANSWER_BYTES) if self._expected is None else self._expected
        before, self._reserved = self._reserved, (times * count, times * size)
        self._shared.room.reserve(self._reserved[0] - before[0], self._reserved[1] - before[1])

    def _add_to_counts(self, count: int, size: int) -> None:
        room = self._shared.room
        room.kept += count * self.paused
        room.count += count
        room.size += size
        self.count += count
        self._size += size

    def _set_paused(self, *, paused: bool) -> None:
        self._shared.room.kept += self.count * (paused - self.paused)
        self.paused = paused

    def _note_ready(self) -> None:
        if self.chunks and not self._is_ready and not self.paused:
            self._is_ready = True
            self._shared.ready.append(self)

    def _note_idle(self) -> None:
        """Become the last of the idle queues if no pull is under way, so that `Queues` will pull it."""
        idle = self._shared.idle
        idle.pop(self, None)
        if not self._window.under_way and self._window.next is not None and not self.paused:
            idle[self] = None
