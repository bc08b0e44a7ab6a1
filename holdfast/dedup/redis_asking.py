"""How a session asks its Redis: several scripts in one round trip, each call with the session's call generation."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from holdfast.dedup.redis_errors import once_let_in
from holdfast.dedup.redis_layout import encode
from holdfast.dedup.redis_scripts import ScriptCall
from holdfast.errors import AccessRefused, StateError, StoreError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast.dedup.lease import Lease
    from holdfast.dedup.redis_keys import Group
    from holdfast.dedup.redis_layout import Layout
    from holdfast.dedup.redis_scripts import Scripts
    from holdfast.runtime import Runtime

_T = TypeVar("_T")


class Question(NamedTuple):
    """One script, at the shards that it concerns."""

    name: str
    groups: dict[int, Group]
    durable: bool = False


#: Shard -> its reply.
Replies = dict[int, Any]
#: A call in two halves: it yields its question, gets the replies, and returns its result.
Asking = Generator[Question, Replies, _T]


class Asker:
    """Sends the calls of one session, and keeps its call generation. Any thread."""

    def __init__(self, scripts: Scripts, layout: Layout, lease: Lease, runtime: Runtime) -> None:
        self._scripts, self._layout, self._lease = scripts, layout, lease
        self._id = encode(lease.session_id)
        #: The store has accepted this process' credentials before.
        self.let_in = False
        #: The last call had no answer, at a store whose shards are on several servers.
        self._doubtful = False
        self._generation = 0
        self._generation_lock = runtime.lock()

    def raise_generation(self, above: int | None = None) -> None:
        """After a call without an answer: what was sent with this generation, or below, is refused from now on.

        Args:
            above: the generation of the lost call; another thread may have raised it since. Default: the current one.
        """
        with self._generation_lock:
            self._generation = max(self._generation, (self._generation if above is None else above) + 1)

    def ask(self, question: Question) -> Replies:
        """Ask one question alone. Raises as `ask_all`, and also raises the error that `ask_all` gives in place of a
        reply."""
        [reply] = self.ask_all([question])
        if isinstance(reply, StoreError):
            raise reply
        return reply

    def alone(self, asking: Asking[_T]) -> _T:
        """Make one call. Raises as `ask`."""
        [answer] = self.together(asking)
        if isinstance(answer, StoreError):
            raise answer
        return cast("_T", answer)

    def together(self, *askings: Asking[Any]) -> list[Any]:
        """Make several calls in one round trip. The answer of a call that the store refuses is its error. Raises as
        `ask_all`."""
        replies = self.ask_all([next(asking) for asking in askings])
        return [
            reply if isinstance(reply, StoreError) else _ended(asking, reply)
            for asking, reply in zip(askings, replies, strict=True)
        ]

    def ask_all(self, questions: Sequence[Question]) -> list[Replies | StoreError]:
        """One round trip, and a second for the shards where another thread had raised the generation meanwhile. A
        question that the store refuses has the error in place of its replies.

        Raises:
            StoreUnavailable: no answer, or the store refuses credentials that it accepted before. The generation has
                been raised: ask again.
            AccessRefused: the server does not let this process in.
            StateError: called in a forked child.
        """
        if not self._lease.own_process:
            raise StateError(
                f"session {self._lease.session_id} belongs to the parent process: begin one in each process, after fork"
            )
        answers: list[Replies | StoreError] = [{} for _ in questions]
        waiting = [(number, shard) for number, question in enumerate(questions) for shard in question.groups]
        for _ in range(2):
            if not waiting:
                return answers
            stale = []
            for (number, shard), reply in zip(waiting, self._send(questions, waiting), strict=True):
                answer = answers[number]
                if isinstance(answer, StoreError):
                    continue
                if isinstance(reply, StoreError):
                    answers[number] = reply
                elif reply == b"STALE":
                    stale.append((number, shard))
                else:
                    answer[shard] = reply
            waiting = [each for each in stale if not isinstance(answers[each[0]], StoreError)]
        if not waiting:
            return answers
        names = " and ".join(dict.fromkeys(questions[number].name for number, _ in waiting))
        raise StoreUnavailable(
            f"{names} of session {self._lease.session_id} was overtaken twice by its own later calls: ask again"
        )

    def _send(self, questions: Sequence[Question], waiting: Sequence[tuple[int, int]]) -> list[Any]:
        """Send the questions at these shards. If one shard is down, the whole store counts as down: after a call
        without an answer, the next one is made only when all shards answer. Otherwise some records would go on for the
        rest of the lease, and the store would be reported as down and up again all the time."""
        generation = self._generation
        calls = []
        for number, shard in waiting:
            keys, args = questions[number].groups[shard]
            call = ScriptCall([self._layout.sessions(shard), *keys], [self._id, generation, *args])
            calls.append((questions[number].name, call))
        answered = False
        try:
            with once_let_in(before=self.let_in):
                if self._doubtful:
                    self._scripts.reach([self._layout.sessions(shard) for shard in range(self._layout.shards)])
                found = self._scripts.run_all(calls, durable=any(question.durable for question in questions))
                refused = [reply for reply in found if isinstance(reply, StoreError)]
                for error in refused:
                    if isinstance(error, AccessRefused):
                        raise error
            answered = not refused
        finally:
            self._doubtful = not answered and self._scripts.fail_apart
            if not answered:  # also by KeyboardInterrupt: the request may be on its way
                self.raise_generation(generation)
        return found


def _ended(asking: Asking[_T], replies: Replies) -> _T:
    """Give a call its replies. Returns its result."""
    try:
        asking.send(replies)
    except StopIteration as over:
        return cast("_T", over.value)
    raise AssertionError("a call asks once")


def in_order(replies: Replies, shards: Iterable[int]) -> Sequence[Any]:
    """Return the replies of a script that replies for each item, in the order of the items. Args: shards: of each
    item."""
    if len(replies) == 1:
        return cast("Sequence[Any]", next(iter(replies.values())))
    following = {shard: iter(reply) for shard, reply in replies.items()}
    return [next(following[shard]) for shard in shards]
