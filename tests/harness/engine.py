"""What the engine's tests work with: members in threads, handlers that can be held, stores that can fail."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

from holdfast import Holdfast, MemoryClaims, Ramp, Retry, Settings
from holdfast.dedup.claims import Exchanged
from holdfast.errors import DeadLetterError, StoreUnavailable
from holdfast.records import Partition
from holdfast.testing.brokers.kafka import MemoryBroker
from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource
from tests.harness.running import Running
from tests.harness.waiting import PATIENCE_S, until

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from holdfast.dedup.claims import Claim, ClaimSession, ClaimStore, Mark
    from holdfast.dedup.memory_session import MemorySession
    from holdfast.plugin.audit.settings import Audit
    from holdfast.plugin.events import Event
    from holdfast.plugin.ports import DeadLetters
    from holdfast.plugin.retrying.dead_letter import Letter
    from holdfast.records import Record
    from holdfast.runtime import Condition
    from holdfast.timing import Deadline

E = TypeVar("E")

#: Retries at once: what is tested is that they happen, and in which order.
QUICK = Retry(attempts=3, wait_initial_s=0.001, wait_max_s=0.002, jitter_s=0.0)


class Seen(NamedTuple):
    """A record in a handler."""

    member: str
    partition: Partition
    offset: int
    value: str
    session: str


def _seen(member: str, record: Record) -> Seen:
    return Seen(member, record.partition, record.offset, (record.value or b"").decode(), record.fence.session)


class Work:
    """What handlers did. A record whose value is held waits in its handler until it is let go. Any thread."""

    def __init__(self, changed: Condition) -> None:
        self.changed = changed
        self.started: list[Seen] = []
        self.ended: list[Seen] = []
        #: The same in one list: ("start" | "end" | "fail", what).
        self.story: list[tuple[str, Seen]] = []
        self.running: set[Seen] = set()
        self.most_running = 0
        self.cancelled: list[Seen] = []
        #: In a handler now, or once.
        self.records: dict[Seen, Record] = {}
        #: Called at each start.
        self.look: Callable[[Seen], None] = lambda _: None
        self._held: set[str] = set()
        self._failures: dict[str, list[BaseException]] = {}

    def hold(self, *values: str) -> None:
        with self.changed:
            self._held.update(values)

    def let_go(self, *values: str) -> None:
        """All, if none is named."""
        with self.changed:
            self._held -= set(values) or set(self._held)
            self.changed.notify_all()

    def fail(self, value: str, *errors: BaseException) -> None:
        """The next attempts at the record of that value end so, one each."""
        with self.changed:
            self._failures.setdefault(value, []).extend(errors)

    def do(self, member: str, record: Record) -> None:
        """The handler."""
        seen = _seen(member, record)
        with self.changed:
            self.records[seen] = record
            self.begin(seen)
            if not self.changed.wait_for(lambda: seen.value not in self._held, PATIENCE_S):
                raise AssertionError(f"{seen} was held and never let go")
        time.sleep(0)  # others may begin meanwhile
        with self.changed:
            if record.cancelled:
                self.cancelled.append(seen)
            self.end(seen)

    async def do_async(self, member: str, record: Record) -> None:
        import asyncio  # noqa: PLC0415 - few tests need it

        seen = _seen(member, record)
        with self.changed:
            self.begin(seen)
        while seen.value in self._held:  # noqa: ASYNC110 - it is let go by another thread
            await asyncio.sleep(0.002)
        with self.changed:
            self.end(seen)

    def begin(self, seen: Seen) -> None:
        self.look(seen)
        self.started.append(seen)
        self.running.add(seen)
        self.most_running = max(self.most_running, len(self.running))
        self.story.append(("start", seen))
        self.changed.notify_all()

    def end(self, seen: Seen) -> None:
        self.running.discard(seen)
        self.changed.notify_all()
        if self._failures.get(seen.value):
            self.story.append(("fail", seen))
            raise self._failures[seen.value].pop(0)
        self.story.append(("end", seen))
        self.ended.append(seen)

    def values(self) -> list[str]:
        """Of all that ended, in that order."""
        with self.changed:
            return [seen.value for seen in self.ended]

    def starts(self) -> Counter[str]:
        with self.changed:
            return Counter(seen.value for seen in self.started)

    def times(self) -> Counter[str]:
        """How often each ended well."""
        return Counter(self.values())

    def is_running(self, value: str) -> bool:
        with self.changed:
            return any(seen.value == value for seen in self.running)


class Member(Running):
    """One app of a bench."""

    def __init__(self, bench: Bench, name: str, source: MemoryPartitionedSource, app: Holdfast) -> None:
        super().__init__(bench.changed, name)
        self.bench, self.source, self.app = bench, source, app

    @property
    def session(self) -> str:
        """The id of the session that it has now."""
        engine = self.app._engine
        assert engine is not None
        assert engine.parts.sessions.session is not None
        return engine.parts.sessions.session.id


class Bench:
    """One broker, one store, and the members of a test. Leaving it stops what still runs."""

    def __init__(self, *, claims: ClaimStore | None = None, eager: bool = False, **topics: int) -> None:
        self.broker = MemoryBroker(**topics or {"orders": 1})
        self.group = self.broker.group("g", protocol="eager" if eager else "consumer")
        self.changed = self.broker.changed
        self.claims = MemoryClaims() if claims is None else claims
        self.work = Work(self.changed)
        self.members: list[Member] = []
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.work.let_go()
        for member in self.members:
            member.app.stop()
            if kind is not None:
                member.app.stop()  # a failing test need not drain
        for member in self.members:
            member.over.wait(PATIENCE_S)
        self.claims.close()
        if kind is None:
            for member in self.members:
                member.join()

    def member(
        self,
        name: str = "a",
        *,
        settings: Settings | None = None,
        ramp: Ramp | None = None,
        start: bool = True,
        claims: ClaimStore | str | None = "the bench's",
        dead_letters: DeadLetters | None = None,
        observers: Sequence[Any] = (),
        audit: Audit | None = None,
        topics: Sequence[str] = ("orders",),
        handler: Callable[..., Any] | None = None,
        source: type[MemoryPartitionedSource] = MemoryPartitionedSource,
        **handling: Any,
    ) -> Member:
        """An app with one handler, `work.do` unless another is given; `handling` as for `Holdfast.handler`.

        Without a ramp, unless one is given: what is tested elsewhere is not to wait for it.
        """
        client = source(self.broker)
        seen: list[Member] = []

        class Tell:
            def on_event(self, event: Event) -> None:
                seen[0].on_event(event)

        store = self.claims if isinstance(claims, str) else claims
        app = Holdfast(
            client,
            claims=store,
            settings=replace(settings or Settings(workers=4), ramp=ramp),
            observers=[*observers, Tell()],
            dead_letters=dead_letters,
            audit=audit,
        )
        if client.retries is None:
            handling.setdefault("retry", QUICK)
        handling.setdefault("name", "handle")
        app.handler(topics, **handling)(handler or (lambda record: self.work.do(name, record)))
        member = Member(self, name, client, app)
        seen.append(member)
        self.members.append(member)
        return member.start() if start else member

    # ---- waiting
    def wait(
        self, over: Callable[[], object], what: str | Callable[[], str] = "", *, patience_s: float = PATIENCE_S
    ) -> None:
        """Until it holds. Looked at after each change, and now and then for what nobody notifies of."""
        said = what or (lambda: f"it has not come true; {self.work.story[-10:]}, {self.state()}")
        until(over, said, patience_s=patience_s, changed=self.changed)

    def wait_ended(self, *values: str) -> None:
        self.wait(lambda: set(values) <= set(self.work.values()), f"{values} did not all end: {self.work.story[-10:]}")

    def wait_running(self, *values: str) -> None:
        self.wait(lambda: all(self.work.is_running(value) for value in values), f"{values} are not all running")

    def wait_cancelled(self, member: str) -> None:
        """The records in that member's handlers are told to stop: a moment after it has stopped to start others."""
        self.wait(
            lambda: all(each.cancelled for seen, each in self.work.records.items() if seen.member == member),
            f"what {member} has in hand is not cancelled",
        )

    def wait_committed(self, offset: int, number: int = 0, topic: str = "orders") -> None:
        partition = Partition(topic, number)
        self.wait(
            lambda: self.group.offset(partition) == offset,
            lambda: f"{partition} is committed at {self.group.offset(partition)}, not {offset}; {self.state()}",
        )

    def state(self) -> str:
        return f"committed {self.group.committed}, owners {[(m.name, sorted(m.owns)) for m in self.members]}"

    def expire(self, member: Member) -> None:
        """Its lease has passed at the store, and its next renewal tells it so."""
        assert isinstance(self.claims, MemoryClaims)
        engine = member.app._engine
        session: Any = engine and engine.parts.sessions.session
        self.claims.expire(session.id)
        assert session.renew() is False

    # ---- looking
    def ids(self) -> list[str]:
        """Sessions that live at the store."""
        assert isinstance(self.claims, MemoryClaims)
        return [session for session in list(self.claims.state.sessions) if self.claims.state.alive(session)]

    def position(self, number: int = 0, topic: str = "orders") -> tuple[int, set[int]]:
        """Watermark and what is done above it, at the store."""
        assert isinstance(self.claims, MemoryClaims)
        name = f"g/{topic}/{self.broker.id_of(topic)}/{number}"
        found = self.claims.state.position(name)
        return found.watermark, set(found.above)


def partition(number: int = 0, topic: str = "orders") -> Partition:
    return Partition(topic, number)


class FlakyClaims:
    """A store whose answers stay away at will, by the name of the call, before or after it was applied.

    `begin` and `connect` count as calls. Renewals are not touched: the session lives on.
    """

    def __init__(self, inner: MemoryClaims | None = None) -> None:
        self.inner = inner or MemoryClaims()
        self._lock = threading.Lock()
        self._broken: dict[str, list[str]] = {}
        self._down: Collection[str] = ()
        #: Calls that were asked, answered or not.
        self.calls: Counter[str] = Counter()

    @property
    def store_id(self) -> str:
        return self.inner.store_id

    def lose_request(self, call: str, times: int = 1) -> None:
        """The next such calls do not arrive."""
        with self._lock:
            self._broken.setdefault(call, []).extend(["before"] * times)

    def lose_answer(self, call: str, times: int = 1) -> None:
        """The next such calls are applied and not answered."""
        with self._lock:
            self._broken.setdefault(call, []).extend(["after"] * times)

    def go_down(self, calls: Collection[str] = ("all",)) -> None:
        self._down = calls

    def come_back(self) -> None:
        self._down = ()

    @property
    def spent(self) -> bool:
        """Whether all that was to be lost is lost."""
        with self._lock:
            return not any(self._broken.values())

    def ask(self, call: str, apply: Callable[[], E], session: MemorySession | None = None) -> E:
        with self._lock:
            self.calls[call] += 1
            down = "all" in self._down or call in self._down
            fate = "before" if down else (self._broken.get(call) or [""]).pop(0)
        reply = apply() if fate != "before" else None
        if fate:
            if session is not None:
                session.raise_generation()
            raise StoreUnavailable(f"{call}: a test lost it {fate} it was applied")
        return reply  # type: ignore[return-value]

    def connect(self) -> None:
        self.ask("connect", self.inner.connect)

    def begin(self, lease_s: float) -> ClaimSession:
        inner = self.ask("begin", lambda: self.inner.begin(lease_s))
        return FlakySession(self, inner)

    def close(self) -> None:
        self.inner.close()


class FlakySession:
    """Hands every call on, if `FlakyClaims.ask` lets it."""

    def __init__(self, store: FlakyClaims, inner: MemorySession) -> None:
        self._store, self._inner = store, inner

    def exchange(self, done: Sequence[Claim], marks: Sequence[Mark], claims: Sequence[Claim]) -> Exchanged:
        """Lost as a whole, or from one of its parts on."""

        def parts() -> Exchanged:
            finished = self.finish(done) if done else []
            fenced = self.mark(marks) if marks else []
            return Exchanged(finished, fenced, self.claim(claims) if claims else [])

        return self._store.ask("exchange", parts, self._inner)

    def __getattr__(self, call: str) -> Any:
        found = getattr(self._inner, call)
        if call in {"id", "live", "end", "vouch", "abandon"}:
            return found
        return lambda *args: self._store.ask(call, lambda: found(*args), self._inner)


class Letters:
    """Dead letters in memory; sending fails as often as it was told to."""

    def __init__(self, changed: Condition) -> None:
        self.changed = changed
        self.sent: list[Letter] = []
        self.tries = 0
        self.checked: list[str] = []
        self.closed = False
        self._errors: list[BaseException] = []
        self._held = False

    def fail(self, *errors: BaseException) -> None:
        self._errors.extend(errors)

    def hold(self) -> None:
        with self.changed:
            self._held = True

    def let_go(self) -> None:
        with self.changed:
            self._held = False
            self.changed.notify_all()

    def check(self, topics: Collection[str], deadline: Deadline) -> None:
        self.checked += topics

    def send(self, letter: Letter, deadline: Deadline) -> None:
        with self.changed:
            self.tries += 1
            self.changed.notify_all()
            if not self.changed.wait_for(lambda: not self._held, PATIENCE_S):
                raise DeadLetterError("held and never let go")
            if self._errors:
                raise self._errors.pop(0)
            self.sent.append(letter)
            self.changed.notify_all()

    def close(self, deadline: Deadline) -> None:
        self.closed = True

    def values(self) -> list[str]:
        with self.changed:
            return [(letter.record.value or b"").decode() for letter in self.sent]


def numbered(prefix: str, numbers: Iterable[int]) -> list[str]:
    return [f"{prefix}{number}" for number in numbers]
