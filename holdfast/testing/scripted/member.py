"""Member: one process of the user's program in a scripted world, and its faults."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from greenlet import GreenletExit

from holdfast.dedup.none import NoClaims
from holdfast.plugin.app import Holdfast
from holdfast.plugin.retrying.failures import words_of
from holdfast.records import Partition
from holdfast.testing.scripted.book import place
from holdfast.testing.scripted.cluster import ScriptedSource
from holdfast.testing.scripted.effects import CALL
from holdfast.testing.tasks import WaitInHub

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from holdfast.plugin.handlers import Handler
    from holdfast.records import Record
    from holdfast.testing.scheduler import Scheduler
    from holdfast.testing.scripted.book import Book, Call
    from holdfast.testing.scripted.cluster import Cluster
    from holdfast.testing.scripted.store import Store

#: Makes an app from a source and a store of claims. In production these are a KafkaSource and RedisClaims.
MakeApp: TypeAlias = "Callable[[Any, Any], Holdfast]"

#: The longest value that a story shows.
_SHOWN = 60
#: A supervisor restarts a process so many seconds after its end.
_RESTART_S = 1.0


class World(Protocol):
    """The world (`ScriptedWorld`), as a member sees it."""

    cluster: Cluster
    book: Book
    store: Store
    scheduler: Scheduler

    @property
    def now(self) -> float:
        """Virtual seconds since the world began."""
        ...

    def sleep(self, seconds: float) -> None:
        """Sleep in a task."""
        ...

    def say(self, who: str, what: str, *, daily: bool = False) -> None:
        """Add a line to the story."""
        ...

    def topics_of(self, handler: Handler) -> None:
        """Make the handler's topics that do not exist."""
        ...

    def takes(self) -> tuple[float, float]:
        """Seconds that the next call of a handler takes before it runs, and after."""
        ...


class Member:
    """One process of your program. Made by `ScriptedWorld.member`. No method waits; `world.run` lets time pass."""

    def __init__(self, world: World, make_app: MakeApp, name: str, *, restart: bool) -> None:
        self.name = name
        #: The error that its app ended with; None = it runs, or has ended well.
        self.error: Exception | None = None
        self._world, self._make_app, self._supervised = world, make_app, restart
        self._slow_s = 0.0
        #: Whether the test has stopped it: then the supervisor does not restart it.
        self._stopped = False
        self._start()

    # ---- what it is
    @property
    def alive(self) -> bool:
        """Whether its process runs, or is frozen."""
        return self.process.alive

    @property
    def partitions(self) -> list[Partition]:
        """The partitions that it owns, as the broker sees it."""
        return self._world.cluster.of(self.source) if self.alive else []

    @property
    def handling(self) -> list[Record]:
        """The records in calls of its handlers that run now."""
        return [record for call in self._world.book.running(self.name) for record in call.records]

    # ---- processes
    def stop(self) -> None:
        """SIGTERM: it drains, commits and leaves. The second call does not wait for handlers."""
        self._say("is asked to stop" if not self._stopped else "is asked to stop at once")
        self._stopped = True
        self.app.stop()

    def crash(self) -> None:
        """SIGKILL. The broker notices when the member's session ends."""
        self._say("crashes")
        self._gone()
        self._world.cluster.silent(self.source)

    def restart(self) -> None:
        """Start a new process in its place, after it has ended.

        Raises:
            RuntimeError: it runs.
        """
        if self.alive:
            raise RuntimeError(
                f"{self.name} runs: stop() it and run the world until it has left, or crash() it, before"
            )
        self._stopped, self.error = False, None
        self._start()

    def stall(self, seconds: float) -> None:
        """SIGSTOP: freeze the process for so many virtual seconds, unnoticed by itself. Beyond its session it is a
        zombie."""
        self._say(f"stands still for {seconds:g} s")
        self.process.stall(seconds)
        self._world.cluster.silent(self.source)

    def zombie(self) -> None:
        """Freeze the process until its sessions at the broker and at the store have ended and others have its
        partitions. Then it goes on without noticing."""
        self.stall(2 * self._world.cluster.session_timeout_s + 10)

    def slow(self, seconds: float) -> None:
        """From now on each call of its handlers takes so many seconds longer; 0 = as before."""
        self._say(f"its handlers take {seconds:g} s longer")
        self._slow_s = seconds

    # ---- partitions
    def revoke(self, topic: str | None = None, number: int | None = None, *, to: Member | None = None) -> None:
        """Have the broker revoke partitions and assign them to `to`, or to the other member with the fewest. Without
        another member no member gets them. The assignment lasts until members join or leave.

        Args:
            topic: None = all partitions that it owns.
            number: of the partition; None = all of the topic that it owns.
            to: the new owner.

        Raises:
            ValueError: it does not own that partition.
        """
        for partition in self._own(topic, number):
            target = to.source if to is not None else self._world.cluster.another(self.source)
            self._say(f"{partition} is revoked, and goes to {target.process.name if target else 'no member'}")
            self._world.cluster.move([partition], target)

    def assign(self, topic: str, number: int) -> None:
        """Have the broker assign that partition to this member; its owner gives it up first."""
        self._say(f"is to get {Partition(topic, number)}")
        self._world.cluster.move([Partition(topic, number)], self.source)

    def lose(self, topic: str | None = None, number: int | None = None) -> None:
        """Have the broker give partitions to another member without a revocation; this member learns of it in its next
        poll.

        Args:
            topic: None = all partitions that it owns.
            number: of the partition; None = all of the topic that it owns.

        Raises:
            ValueError: it does not own that partition.
        """
        partitions = self._own(topic, number)
        self._say(f"loses {', '.join(map(str, partitions))}")
        self._world.cluster.lose(self.source, partitions, self._world.cluster.another(self.source))

    # ---- inside
    def _start(self) -> None:
        self.process = self._world.scheduler.process(self.name)
        self.source = ScriptedSource(self._world.cluster, self.process)
        self._say("starts")
        claims = self._world.store.server.claims(self.process)
        try:
            app = self._make_app(self.source, claims)
        except WaitInHub as error:
            raise TypeError("make_app is to return the Holdfast that it made; the world runs it") from error
        if not isinstance(app, Holdfast):
            raise TypeError(f"make_app is to return the Holdfast that it made, and not {app!r}")
        if app._runtime is not self.process.runtime:  # noqa: SLF001 - the app has no public attribute for it
            raise TypeError("make_app has to give its first argument to Holdfast as the source, and no runtime")
        if app._store is not claims and not isinstance(app._store, NoClaims):  # noqa: SLF001 - as above
            raise TypeError(
                f"make_app has to give its second argument to Holdfast as claims, and not {app._store!r}: "  # noqa: SLF001
                "in the world's time no other store's leases would end"
            )
        self.app = app
        for handler in app._routes.handlers:  # noqa: SLF001 - the world wraps each handler here
            self._world.topics_of(handler)
        app._routes.change(self._watched)  # noqa: SLF001 - as above
        process = self.process
        process.spawn(lambda: self._run(app), "main")

    def _run(self, app: Holdfast) -> None:
        try:
            app.run(install_signal_handlers=False)
        except Exception as error:  # noqa: BLE001 - kept in `error`
            self.error = error
        if app is self.app:
            self._say("has left" if self.error is None else f"has ended with {words_of(self.error, repr)}")
            self._world.scheduler.at(self._world.scheduler.now, lambda: self._ended(app))

    def _ended(self, app: Holdfast) -> None:
        if app is not self.app:
            return
        self._gone()
        self._world.cluster.silent(self.source)  # the app may have ended without leaving the group
        if self._supervised and not self._stopped:
            self._world.scheduler.at(self._world.scheduler.now + _RESTART_S, self._supervise)

    def _supervise(self) -> None:
        if not self.alive and not self._stopped and not self._world.scheduler.over:
            self.error = None
            self._start()

    def _gone(self) -> None:
        self.process.crash()
        self._world.book.crashed(self.name)

    def _own(self, topic: str | None, number: int | None) -> list[Partition]:
        own = self.partitions
        found = [each for each in own if topic in (None, each.topic) and number in (None, each.number)]
        if not found:
            wanted = "a partition" if topic is None else topic if number is None else f"{topic}-{number}"
            has = ", ".join(map(str, own)) or "nothing (let it join first: world.run(until=lambda: member.partitions))"
            raise ValueError(f"{self.name} does not have {wanted}: it has {has}")
        return found

    def _say(self, what: str) -> None:
        self._world.say(self.name, what)

    # ---- its handlers
    def _watched(self, handler: Handler) -> Handler:
        inner = handler.call

        @wraps(inner)
        def call(given: Any) -> Any:  # noqa: ANN401 - as handlers are called
            before_s, after_s = self._world.takes()
            with self._seen(handler, given):
                if before_s + self._slow_s:
                    self._world.sleep(before_s + self._slow_s)
                found = inner(given)
                if after_s:
                    self._world.sleep(after_s)
                return found

        @wraps(inner)
        async def call_async(given: Any) -> Any:  # noqa: ANN401 - as above
            before_s, after_s = self._world.takes()
            with self._seen(handler, given):
                if before_s + self._slow_s:
                    await asyncio.sleep(before_s + self._slow_s)
                found = await inner(given)
                if after_s:
                    await asyncio.sleep(after_s)
                return found

        return replace(handler, call=call_async if handler.is_async else call)

    @contextmanager
    def _seen(self, handler: Handler, given: Record | Sequence[Record]) -> Iterator[None]:
        world = self._world
        records: Sequence[Record] = [given] if handler.batch is None else given  # type: ignore[list-item,assignment]
        call = world.book.began(self.name, handler, records, world.now)
        world.say(self.name, f"handles {_shown(records)}", daily=True)
        token = CALL.set(call)
        try:
            yield
        except asyncio.CancelledError:
            self._end(call, "was cancelled")
            raise
        except GreenletExit:  # its process has ended
            raise
        except BaseException as error:
            self._end(call, f"raised {words_of(error, repr)}")
            raise
        else:
            self._end(call, "done")
        finally:
            CALL.reset(token)

    def _end(self, call: Call, outcome: str) -> None:
        if not self._world.scheduler.over:
            self._world.book.ended(call, self._world.now, outcome)
            self._world.say(
                self.name, f"{'is done with' if outcome == 'done' else outcome + ':'} {call.where}", daily=True
            )


def _shown(records: Sequence[Record]) -> str:
    first = records[0]
    if len(records) > 1:
        return f"{len(records)} records from {place(first)} to {place(records[-1])}"
    value = (first.value or b"").decode("utf-8", "replace")
    return f"{place(first)} {value if len(value) <= _SHOWN else value[:_SHOWN] + '…'}"
