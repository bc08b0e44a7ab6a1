"""The campaigns again, with every ordering and kind of handler, keys that come again, and runs whose sizes are forced:
what quick handlers and full polls make of records, whatever the machine's speed. Members of one group may differ."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import BatchOf, Settings
from holdfast.errors import BatchFailed
from holdfast.plugin.engine.record.workers import Workers
from tests.harness.engine import QUICK, Bench, FlakyClaims
from tests.unit.engine.test_campaigns import PARTITIONS, Campaign, check_audit, check_order, ends

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.plugin.settings import Ordering
    from holdfast.records import Record

ORDERINGS: tuple[Ordering, ...] = ("key", "partition", "none")
KINDS = ("plain", "coroutine", "batch", "any")


class OfKinds(Campaign):
    def __init__(
        self, bench: Bench, store: FlakyClaims, seed: int, *, rough: bool, ordering: Ordering, kind: str
    ) -> None:
        super().__init__(bench, store, seed, rough=rough)
        self.ordering, self.kind = ordering, kind

    def join(self) -> None:
        if len(self.members) >= 4:
            return
        self._joined += 1
        name = f"m{self._joined}"
        kind = self.random.choice(KINDS[:3]) if self.kind == "any" else self.kind
        more: dict[str, Any] = {"key": lambda record: record.value or b""} if self.keyed else {}
        more["retry"] = replace(QUICK, attempts=100)  # a value that is produced again may fail again
        if kind == "batch":
            more["batch"] = BatchOf(records=self.random.choice([2, 7]), wait_s=0.002)
        settings = Settings(
            ordering=self.ordering,
            workers=self.random.choice([1, 4]),
            commit_interval_s=0.005,
            drain_timeout_s=self.random.choice([0.01, 0.5]),
            mark_batch=self.random.choice([3, 500]),
        )
        self.members.append(
            self.bench.member(
                name, settings=settings, handler=self.handler(name, kind), audit=self.told.audit(name), **more
            )
        )

    def handler(self, name: str, kind: str) -> Callable[..., Any]:
        work = self.bench.work

        async def coroutine(record: Record) -> None:
            await work.do_async(name, record)

        def batch(records: list[Record]) -> None:
            failures: dict[int, Exception] = {}
            for number, record in enumerate(records):
                try:
                    work.do(name, record)
                except ValueError as error:
                    failures[number] = error
            if failures:
                raise BatchFailed(failures)

        def plain(record: Record) -> None:
            work.do(name, record)

        handlers: dict[str, Callable[..., Any]] = {"plain": plain, "coroutine": coroutine, "batch": batch}
        return handlers[kind]


@pytest.fixture(autouse=True)
def forced_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks are cut and runs are long, however slow the handlers are found to be."""
    monkeypatch.setattr(Workers, "chunk", property(lambda workers: 1 + len(workers._threads) * 3))
    monkeypatch.setattr(Workers, "share", lambda _, records: 2 + records % 7)


@pytest.mark.parametrize(("seed", "ordering", "kind"), [(n, *each) for n, each in enumerate(product(ORDERINGS, KINDS))])
def test_graceful_nothing_is_lost_nothing_is_repeated_and_all_of_it_comes_to_an_end(
    seed: int, ordering: Ordering, kind: str
) -> None:
    store = FlakyClaims()
    with Bench(orders=PARTITIONS, claims=store) as bench:
        # Three of four with keys: there more can go wrong.
        campaign = OfKinds(bench, store, seed * 2 + (seed % 4 != 3), rough=False, ordering=ordering, kind=kind)
        campaign.run(15)
        assert campaign.too_late == []
        assert set(bench.work.values()) == campaign.values
        if campaign.keyed:
            assert set(bench.work.times().values()) == {1}
        else:
            assert set(ends(bench)) == campaign.produced
            assert [runs for runs in ends(bench).values() if len(runs) > 1] == []
        if ordering == "key" and kind in ("plain", "coroutine"):
            check_order(bench)
        check_audit(campaign)


@pytest.mark.parametrize(("seed", "ordering"), list(enumerate(ORDERINGS)))
def test_rough_nothing_is_lost_and_all_of_it_comes_to_an_end(seed: int, ordering: Ordering) -> None:
    store = FlakyClaims()
    with Bench(orders=PARTITIONS, claims=store) as bench:
        campaign = OfKinds(bench, store, seed * 2 + 1, rough=True, ordering=ordering, kind="any")
        campaign.run(15)
        assert campaign.too_late == []
        assert set(bench.work.values()) == campaign.values
        for runs in ends(bench).values():
            assert len([seen for seen in runs if seen.session not in campaign.expired]) <= 1, runs
