"""Work: the handlers of one process. They follow each record's plan, and report to the judges."""

from __future__ import annotations

import asyncio
import math
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from holdfast.errors import BatchFailed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence

    from holdfast.plugin.handling.handler_call import HandlerCall
    from holdfast.plugin.retrying.dead_letter import Letter
    from holdfast.records import Record
    from holdfast.testing.process import Process
    from tests.simulation.playing.book import Placed, Run, Tx
    from tests.simulation.playing.stage import Stage

#: A function that heeds looks at `record.cancelled` at this interval.
_LOOKS_S = 0.05
#: A batch takes as long as its records together, at most this long, and at most half of its timeout, or it could never
#: end.
LONGEST_S = 3.0
#: The longest time of middlewares and of functions of `on_dead_letter`; and the odds that the latter fail.
_AROUND_S, _FAILS = 0.005, 0.3
#: The time of the handler inside a middleware.
_TAKES_S: ContextVar[float] = ContextVar("_TAKES_S")


class Planned(Exception):
    """A call failed because its record's plan says so."""


class Hopeless(Planned):
    """A failure that no further call cures."""


class Curable(Planned):
    """A failure that another call may cure."""


class Work:
    """The handlers of each kind."""

    def __init__(self, stage: Stage, name: str, process: Process) -> None:
        self.stage, self.name, self.process = stage, name, process
        self._calls: dict[int, list[Run]] = {}
        #: Called at each call of a handler.
        self.begins: Callable[[Sequence[Record]], None] = lambda _: None
        self._timeout_s = stage.world.settings.handler_timeout_s

    def gone(self) -> None:
        """The process has ended: its runs never end."""
        for runs in self._calls.values():
            self.stage.judges.crashed(runs)
        self._calls.clear()

    # ---- the same with middlewares, where the world has some
    @property
    def middlewares(self) -> Sequence[Callable[[HandlerCall], Any]]:
        """An app's middlewares. The first carries out the plan of the handler, so that the outcome of the whole call
        counts; the second is slow."""
        if not self.stage.world.around:
            return ()
        in_loop = {"async" in handling.kind for handling in self.stage.world.handlers}
        if in_loop == {False, True}:  # a middleware that is slow for plain handlers would hold up all coroutines
            return (self._around,)
        return (self._around, self._slow_async if in_loop == {True} else self._slow)

    def _around(self, call: HandlerCall) -> Iterator[None]:
        with self._call(call.records) as takes_s:
            token = _TAKES_S.set(takes_s)
            try:
                yield
            finally:
                with suppress(ValueError):  # its process has ended, and the collector runs this in another context
                    _TAKES_S.reset(token)

    def _slow(self, call: HandlerCall) -> Iterator[None]:
        self.process.runtime.sleep(self.stage.chance.random() * _AROUND_S)
        yield
        self.process.runtime.sleep(self.stage.chance.random() * _AROUND_S)

    async def _slow_async(self, call: HandlerCall) -> AsyncIterator[None]:
        await asyncio.sleep(self.stage.chance.random() * _AROUND_S)
        yield
        await asyncio.sleep(self.stage.chance.random() * _AROUND_S)

    def letter(self, letter: Letter) -> None:
        """A function of `on_dead_letter`."""
        self.process.runtime.sleep(self.stage.chance.random() * _AROUND_S)
        if self.stage.chance.random() < _FAILS:
            raise Curable("nobody is to mind")

    @contextmanager
    def _within(self, records: Sequence[Record]) -> Iterator[float]:
        if self.stage.world.around:
            yield _TAKES_S.get()
        else:
            with self._call(records) as takes_s:
                yield takes_s

    # ---- handlers
    def plain(self, record: Record) -> None:
        """A function of one record."""
        self.batch([record])

    def batch(self, records: Sequence[Record]) -> None:
        """A function of several."""
        with self._within(records) as takes_s:
            self._take(records, takes_s)

    def plain_in_transaction(self, record: Record, *, tx: Tx) -> None:
        """A function of one record, with its effect in the store's database."""
        self.batch_in_transaction([record], tx=tx)

    def batch_in_transaction(self, records: Sequence[Record], *, tx: Tx) -> None:
        """A function of several, with their effects in the store's database: before, or after, what takes its time."""
        placed = [self.stage.placed(record) for record in records]
        at_once = bool(placed[0].number % 2)
        with self._call(records, tx) as takes_s:
            if at_once:
                tx.add([each.number for each in placed])
            self._take(records, takes_s)
            if not at_once:
                tx.add([each.number for each in placed])

    def _take(self, records: Sequence[Record], takes_s: float) -> None:
        if not all(self.stage.placed(record).plan.heeds for record in records):
            self.process.runtime.sleep(takes_s)
            return
        left_s = takes_s
        while left_s > 0:
            self.process.runtime.sleep(min(left_s, _LOOKS_S))
            left_s -= _LOOKS_S
            if left_s > 0 and any(record.cancelled for record in records):
                raise Curable("it was told to stop")

    async def coroutine(self, record: Record) -> None:
        """A coroutine of one record."""
        await self.batch_coroutine([record])

    async def batch_coroutine(self, records: Sequence[Record]) -> None:
        """A coroutine of several."""
        with self._within(records) as takes_s:
            until = asyncio.get_running_loop().time() + takes_s
            while (left_s := until - asyncio.get_running_loop().time()) > 0:
                try:
                    await asyncio.sleep(left_s)
                except asyncio.CancelledError:
                    if all(self.stage.placed(record).plan.heeds for record in records):
                        raise

    @contextmanager
    def _call(self, records: Sequence[Record], tx: Tx | None = None) -> Iterator[float]:
        """One call of a handler, with its reports to the judges. Yields how long it takes."""
        stage, fence = self.stage, records[0].fence
        placed = [stage.placed(record) for record in records]
        timeout_s = placed[0].handling.timeout_s or self._timeout_s or math.inf
        blind = any(stage.ground.is_blind(fence, each) for each in placed)
        runs = stage.judges.started(self.name, fence.session, fence.epoch, placed, blind=blind, tx=tx)
        self._calls[id(runs)] = runs
        self.begins(records)
        try:
            takes_s = min(LONGEST_S, timeout_s / 2, sum(each.plan.takes_s for each in placed))
            yield takes_s + self._hangs_s(placed)
            stage.judges.told_to_stop(runs[0], records[0])
            self._fail_as_planned(placed)
        except KeyboardInterrupt:
            if self._calls.pop(id(runs), None) is not None:
                stage.judges.broken_off(runs)
            raise
        except BatchFailed as error:
            self._ended(runs, {runs[at]: failure for at, failure in error.failures.items()})
            raise
        except (Exception, asyncio.CancelledError) as error:
            self._ended(runs, dict.fromkeys(runs, error))
            raise
        self._ended(runs, {})

    def _ended(self, runs: list[Run], failed: Mapping[Run, BaseException]) -> None:
        handling = runs[0].record.handling
        knows = handling.retry_on or handling.give_up_on
        for_good = [run for run, error in failed.items() if knows and isinstance(error, Hopeless)]
        if self._calls.pop(id(runs), None) is not None:
            self.stage.judges.ended(runs, failed, for_good)

    def _hangs_s(self, records: Sequence[Placed]) -> float:
        hangs, hang_s = self.stage.hangs, 0.0
        for record in records:
            if hangs.get(record.number, 0) > 0:
                hangs[record.number] -= 1
                hang_s += record.plan.hang_s
        return hang_s

    def _fail_as_planned(self, records: Sequence[Placed]) -> None:
        fails, failed = self.stage.fails, dict[int, Exception]()
        for at, record in enumerate(records):
            if fails.get(record.number, 0) > 0:
                fails[record.number] -= 1
                failed[at] = (Hopeless if record.plan.hopeless else Curable)(f"{record} is to fail")
                if not record.handling.by_record:
                    raise failed[at]
        if failed:
            raise BatchFailed(failed)
