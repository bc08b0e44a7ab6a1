"""Member: one process of a world, with a real app in it, whose handlers do what each record's plan says."""

from __future__ import annotations

import asyncio
import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from holdfast.errors import (
    AccessRefused,
    DeadLetterError,
    HandlerFailed,
    HandlerHung,
    RecordUnreadable,
    StoreUnavailable,
)
from holdfast.plugin.app import Holdfast
from holdfast.plugin.events import HandlerGivenUp, HandlerOverdue, Overrun, SessionLost
from holdfast.plugin.retry import Retry
from holdfast.testing.brokers.member import MemoryPartitionedSource

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from holdfast.plugin.dead_letter import Letter
    from holdfast.plugin.engine.loop import Engine
    from holdfast.plugin.events import Event
    from holdfast.plugin.ports import Batch
    from holdfast.records import Record
    from holdfast.testing.book import Placed, Run
    from holdfast.testing.play import Stage
    from holdfast.testing.process import Process
    from holdfast.testing.world import Handling, Kind
    from holdfast.timing import Deadline

#: How often a function that heeds looks at `record.cancelled`.
_LOOKS_S = 0.05
#: A batch takes as long as its records together, and not longer than that; nor than half of its timeout, or it could
#: never end.
_LONGEST_S = 3.0
_LETTER_S = 0.01
#: A member has learnt within that time that it lost what it had.
_THROWN_OUT_S = 1.0
#: Ends of an app that a world may bring about by itself.
_EXPECTED = (HandlerHung, HandlerFailed)
#: The same while it starts.
_AT_START = (AccessRefused, StoreUnavailable)


class Source(MemoryPartitionedSource):
    """A member's client, which cannot read what its world says."""

    def __init__(self, stage: Stage, group: str, process: Process, static_id: str | None) -> None:
        session_s = stage.world.session_timeout_s
        super().__init__(
            stage.broker,
            group,
            name=process.name,
            runtime=process.runtime,
            session_timeout_s=session_s,
            heartbeat_s=min(3.0, session_s / 6),
            static_id=static_id,
        )
        self._stage = stage
        self._some = any(each.unreadable for each in stage.world.records)

    def poll(self, max_records: int, timeout_s: float) -> Batch:
        """As `PartitionedSource.poll`."""
        batch = super().poll(max_records, timeout_s)
        if not self._some:
            return batch
        faulty = [record for record in batch.records if self._stage.placed(record).plan.unreadable]
        unreadable = {
            (each.partition, each.offset): RecordUnreadable(f"{each.partition}@{each.offset}: the world says so")
            for each in faulty
        }
        return batch._replace(unreadable=unreadable)


class Planned(Exception):
    """A call failed because its record's plan says so."""


class Member:
    """One start of one process."""

    def __init__(self, stage: Stage, name: str, process: Process, source: Source) -> None:
        self.stage, self.name, self.process, self.source = stage, name, process, source
        #: What its app has raised.
        self.error: Exception | None = None
        #: How often it was asked to stop.
        self.stops = 0
        #: Until then nothing is waited for: it has lost its partitions, or its session.
        self.thrown_out_until = 0.0
        self._calls: dict[int, list[Run]] = {}
        world = stage.world
        self._longest_s = min(_LONGEST_S, (world.settings.handler_timeout_s or 2 * _LONGEST_S) / 2)
        self.app = Holdfast(
            source,
            claims=stage.store.claims(process),
            settings=world.settings,
            dead_letters=_Letters(self),
            observers=[self],
            runtime=process.runtime,
        )
        for handling in world.handlers:
            self._register(handling)
        process.spawn(self._run, f"{name} loop")

    def stop(self) -> None:
        """Ask it to leave, as a signal does. In the hub."""
        self.stops += 1
        self.app.stop()

    def thrown_out(self) -> None:
        """What it has was taken away."""
        self.thrown_out_until = self.stage.now + _THROWN_OUT_S

    def gone(self) -> None:
        """Its process is over: nothing that it ran will ever end."""
        for runs in self._calls.values():
            self.stage.judges.crashed(runs)
        self._calls.clear()

    @property
    def engine(self) -> Engine | None:
        """What the judges may look into."""
        return self.app._engine  # noqa: SLF001 - the judges look at what waits where

    def on_event(self, event: Event) -> None:
        """The engine tells something."""
        stage, judges = self.stage, self.stage.judges
        stage.say(self.name, event)
        if isinstance(event, SessionLost):
            self.thrown_out()
        if isinstance(event, Overrun | HandlerOverdue | HandlerGivenUp):
            record = stage.placed_at(event.partition, event.offset)
            if isinstance(event, Overrun):
                judges.overran(self.name, record, hurried=self.stops > 1 or stage.now < self.thrown_out_until)
            elif isinstance(event, HandlerOverdue):
                judges.overdue(self.name, record)
            else:
                judges.gave_up(self.name, record)

    # ---- inside
    def _run(self) -> None:
        try:
            self.app.run(install_signal_handlers=False)
        except Exception as error:  # noqa: BLE001 - for the judges
            self.error = error
        ran = self.engine is not None and self.engine.meter.ran
        expected = self.error is None or isinstance(self.error, _EXPECTED)
        self.stage.left(self, expected=expected or (not ran and isinstance(self.error, _AT_START)))

    def _register(self, handling: Handling) -> None:
        calls: dict[Kind, Callable[[Any], Any]] = {
            "plain": self._plain,
            "batch": self._batch,
            "async": self._coroutine,
            "async batch": self._batch_coroutine,
        }
        self.app.handler(
            handling.topics,
            name=handling.name,
            key="unit" if handling.keyed else None,
            scope="shared" if handling.shared_scope else None,
            batch=handling.batch,
            dead_letter=f"{handling.name}.letters" if handling.dead_letter else None,
            dead_letter_limit=handling.limit,
            timeout_s=handling.timeout_s,
            retry=Retry(
                attempts=handling.attempts,
                wait_initial_s=handling.wait_initial_s,
                wait_max_s=handling.wait_max_s,
                multiplier=handling.multiplier,
                jitter_s=handling.jitter_s,
            ),
        )(calls[handling.kind])

    def _plain(self, record: Record) -> None:
        self._batch([record])

    def _batch(self, records: Sequence[Record]) -> None:
        with self._call(records) as takes_s:
            if not all(self.stage.placed(record).plan.heeds for record in records):
                self.process.runtime.sleep(takes_s)
                return
            left_s = takes_s
            while left_s > 0:
                self.process.runtime.sleep(min(left_s, _LOOKS_S))
                left_s -= _LOOKS_S
                if left_s > 0 and any(record.cancelled for record in records):
                    raise Planned("it was told to stop")

    async def _coroutine(self, record: Record) -> None:
        await self._batch_coroutine([record])

    async def _batch_coroutine(self, records: Sequence[Record]) -> None:
        with self._call(records) as takes_s:
            until = asyncio.get_running_loop().time() + takes_s
            while (left_s := until - asyncio.get_running_loop().time()) > 0:
                try:
                    await asyncio.sleep(left_s)
                except asyncio.CancelledError:
                    if all(self.stage.placed(record).plan.heeds for record in records):
                        raise

    @contextmanager
    def _call(self, records: Sequence[Record]) -> Iterator[float]:
        """One call of a handler, as the judges see it. Gives how long it takes."""
        stage, fence = self.stage, records[0].fence
        placed = [stage.placed(record) for record in records]
        runs = stage.judges.started(self.name, fence.session, fence.epoch, placed)
        self._calls[id(runs)] = runs
        try:
            yield min(self._longest_s, sum(each.plan.takes_s for each in placed)) + self._hangs_s(placed)
            self._fail_as_planned(placed)
        except (Exception, asyncio.CancelledError):
            self._ended(runs, well=False)
            raise
        self._ended(runs, well=True)

    def _ended(self, runs: list[Run], *, well: bool) -> None:
        if self._calls.pop(id(runs), None) is not None:
            self.stage.judges.ended(runs, well=well)

    def _hangs_s(self, records: Sequence[Placed]) -> float:
        hangs, hang_s = self.stage.hangs, 0.0
        for record in records:
            if hangs.get(record.number, 0) > 0:
                hangs[record.number] -= 1
                hang_s += record.plan.hang_s
        return hang_s

    def _fail_as_planned(self, records: Sequence[Placed]) -> None:
        fails = self.stage.fails
        for record in records:
            if fails.get(record.number, 0) > 0:
                fails[record.number] -= 1
                raise Planned(f"{record} is to fail")


class _Letters:
    """Where a member's dead letters go. Any thread."""

    def __init__(self, member: Member) -> None:
        self._member = member

    def check(self, topics: Collection[str], deadline: Deadline) -> None:
        """There is nothing to check."""

    def send(self, letter: Letter, deadline: Deadline) -> None:  # noqa: ARG002 - as of DeadLetters
        """As `DeadLetters.send`."""
        stage, record = self._member.stage, letter.record
        self._member.process.runtime.sleep(stage.chance.random() * _LETTER_S)
        if stage.letters_down:
            raise DeadLetterError("no broker takes dead letters: the world says so")
        stage.judges.lettered(self._member.name, record.fence.session, stage.placed(record), letter.attempts)
        self._member.process.runtime.sleep(stage.chance.random() * _LETTER_S)

    def close(self, deadline: Deadline) -> None:
        """There is nothing to give back."""


def value_of(number: int, unit: str | None) -> str:
    """What a record's value says of it."""
    return json.dumps({"n": number} if unit is None else {"n": number, "unit": unit})
