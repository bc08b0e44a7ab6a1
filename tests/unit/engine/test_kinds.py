"""Kinds of handlers beside each other: none takes the other's room, and together they keep to what may be in hand."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import BatchOf, MemoryClaims, Settings
from holdfast.dedup.memory_session import MemorySession
from tests.harness.engine import Bench, numbered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.dedup.claims import Mark
    from holdfast.records import Record

#: More than all of them may have at once.
BACKLOG = 100


def test_a_full_batch_starts_beside_plain_handlers_that_never_end_and_whose_backlog_is_long() -> None:
    with Bench(slow=1, clicks=1) as bench:
        settings = Settings(workers=2, mark_batch=20)
        slow = numbered("slow", range(BACKLOG))
        bench.work.hold(slow[0])  # of one key: the other worker is for the batches
        got: list[int] = []
        member = bench.member(settings=settings, topics=("slow",), start=False)
        member.app.handler("clicks", batch=BatchOf(records=22, wait_s=0.0), name="clicks")(
            lambda records: got.append(len(records))
        )
        bench.broker.produce("slow", 0, *slow, key="k")
        bench.broker.produce("clicks", 0, *map(str, range(BACKLOG)))
        member.start()
        bench.wait_running(slow[0])
        bench.wait_committed(BACKLOG, 0, "clicks")
        assert max(got) <= 11  # its share
        assert bench.work.values() == []


@pytest.mark.parametrize("slow_is_async", [False, True])
def test_coroutines_and_plain_handlers_do_not_wait_for_each_other(slow_is_async: bool) -> None:
    with Bench(slow=1, orders=1) as bench:
        slow, quick = numbered("slow", range(BACKLOG)), numbered("quick", range(BACKLOG))
        bench.work.hold(*slow)

        async def coroutine(record: Record) -> None:
            await bench.work.do_async("a", record)

        def plain(record: Record) -> None:
            bench.work.do("a", record)

        handlers = [plain, coroutine]
        member = bench.member(
            settings=Settings(workers=2, ordering="none"),
            topics=("slow",),
            handler=handlers[slow_is_async],
            start=False,
        )
        member.app.handler("orders", name="quick")(handlers[not slow_is_async])
        bench.broker.produce("slow", 0, *slow)
        bench.broker.produce("orders", 0, *quick)
        member.start()
        bench.wait_running(*slow[:2])
        bench.wait_ended(*quick)
        assert not set(slow) & set(bench.work.values())


def test_a_kind_that_came_first_takes_no_more_than_its_share_of_what_may_be_in_hand() -> None:
    with Bench(slow=1, orders=1) as bench:
        slow, quick = numbered("slow", range(BACKLOG)), numbered("quick", range(BACKLOG))
        bench.work.hold(*slow)

        async def coroutine(record: Record) -> None:
            await bench.work.do_async("a", record)

        settings = Settings(workers=2, mark_batch=2, ordering="none")
        member = bench.member(settings=settings, topics=("slow",), start=False)
        member.app.handler("orders", name="quick")(coroutine)
        bench.broker.produce("slow", 0, *slow)
        member.start()
        bench.wait_running(*slow[:2])
        bench.broker.produce("orders", 0, *quick)
        bench.wait_ended(*quick)
        assert not set(slow) & set(bench.work.values())


class Unacked:
    """Records whose handlers have started, and whose marks the store has not acknowledged. Any thread."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._lock = threading.Lock()
        self._now = self.most = 0
        mark, turn = MemorySession.mark, MemorySession.exchange

        def counted_mark(session: MemorySession, marks: Sequence[Mark]) -> Any:
            replies = mark(session, marks)
            self._on_marked(marks)
            return replies

        def counted_turn(session: MemorySession, done: Any, marks: Sequence[Mark], claims: Any) -> Any:
            replies = turn(session, done, marks, claims)
            self._on_marked(marks)
            return replies

        monkeypatch.setattr(MemorySession, "mark", counted_mark)
        monkeypatch.setattr(MemorySession, "exchange", counted_turn)

    def _on_marked(self, marks: Sequence[Mark]) -> None:
        with self._lock:
            self._now -= sum(len(each.offsets) for each in marks)

    def handlers(self) -> dict[str, tuple[Any, BatchOf | None]]:
        """One of each kind, that only counts."""

        async def coroutine(_: Record) -> None:
            self.start(1)

        async def batch_coroutine(records: list[Record]) -> None:
            self.start(len(records))

        of = BatchOf(records=10, wait_s=0.0)
        return {
            "plain": (lambda _: self.start(1), None),
            "coroutine": (coroutine, None),
            "batch": (lambda records: self.start(len(records)), of),
            "batch-coroutine": (batch_coroutine, of),
        }

    def start(self, records: int) -> None:
        with self._lock:
            self._now += records
            self.most = max(self.most, self._now)


@pytest.mark.parametrize(
    "kinds", ["plain", "batch", "coroutine", "plain batch", "plain batch coroutine batch-coroutine"]
)
@pytest.mark.parametrize("keys", [1, 7, 1000])
def test_no_mixture_has_more_in_hand_than_workers_and_mark_batch(
    kinds: str, keys: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    records, workers, async_workers, mark_batch = 600, 2, 3, 21
    unacked = Unacked(monkeypatch)

    known = unacked.handlers()
    topics: dict[str, str] = {f"topic{number}": kind for number, kind in enumerate(kinds.split())}
    partitions: dict[str, Any] = dict.fromkeys(topics, 2)
    with Bench(claims=MemoryClaims(), **partitions) as bench:
        first, *others = topics
        member = bench.member(
            settings=Settings(workers=workers, async_workers=async_workers, mark_batch=mark_batch),
            topics=(first,),
            handler=known[topics[first]][0],
            batch=known[topics[first]][1],
            start=False,
        )
        for topic in others:
            handler, of = known[topics[topic]]
            member.app.handler(topic, batch=of, name=topic)(handler)
        for topic in topics:
            for number in range(2):
                for each in range(records):
                    bench.broker.produce(topic, number, "v", key=f"k{each % keys}")
        member.start()
        for topic in topics:
            for number in range(2):
                bench.wait_committed(records, number, topic)
    assert unacked.most <= workers + (async_workers if "coroutine" in kinds else 0) + mark_batch


def test_what_is_in_hand_is_nothing_when_all_is_done() -> None:
    with Bench(orders=2) as bench:
        values = numbered("v", range(200))
        bench.work.fail("v7", ValueError("once"))
        member = bench.member(settings=Settings(workers=2, mark_batch=5), key=lambda record: record.value or b"")
        for number in range(2):
            bench.broker.produce("orders", number, *values)
        for number in range(2):
            bench.wait_committed(200, number)
        engine = member.app._engine
        assert engine is not None
        bench.wait(lambda: engine.parts.unacked.records == 0 and engine.parts.settling.waiting == 0)
        assert all(engine.parts.unacked.room(kind) == 7 for kind in engine.parts.unacked._of)
