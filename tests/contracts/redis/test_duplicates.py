"""One business key runs once, wherever its records are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast import MemoryClaims, RedisClaims, Settings
from tests.harness.engine import Bench, numbered, partition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.dedup.claims import ClaimStore

SETTINGS = Settings(workers=4, commit_interval_s=0.01)
P0, P1 = partition(0), partition(1)
KEYED: dict[str, Any] = {"key": lambda record: record.value or b""}


@pytest.fixture(params=["memory", "redis"])
def claims(request: pytest.FixtureRequest) -> Iterator[ClaimStore]:
    store = MemoryClaims() if request.param == "memory" else RedisClaims.from_url(request.getfixturevalue("redis_url"))
    yield store
    store.close()


def test_of_several_records_in_one_poll_one_runs(claims: ClaimStore) -> None:
    with Bench(claims=claims) as bench:
        bench.broker.produce("orders", 0, *["a", "b"] * 20)
        bench.member(settings=SETTINGS, **KEYED)
        bench.wait_committed(40)
    assert bench.work.starts() == {"a": 1, "b": 1}


def test_across_partitions_of_one_member(claims: ClaimStore) -> None:
    with Bench(orders=3, claims=claims) as bench:
        for number in range(3):
            bench.broker.produce("orders", number, *numbered("x", range(20)))
        bench.member(settings=SETTINGS, **KEYED)
        for number in range(3):
            bench.wait_committed(20, number)
    assert bench.work.starts() == dict.fromkeys(numbered("x", range(20)), 1)


def test_across_members_the_second_waits_for_the_first_and_then_skips(claims: ClaimStore) -> None:
    with Bench(orders=2, claims=claims) as bench:
        bench.work.hold("x")
        first = bench.member("a", settings=SETTINGS, **KEYED)
        second = bench.member("b", settings=SETTINGS, **KEYED)
        bench.group.aim({first.source: [P0], second.source: [P1]})
        bench.wait(lambda: first.owns == {P0} and second.owns == {P1})
        bench.broker.produce("orders", 0, "x")
        bench.wait_running("x")
        bench.broker.produce("orders", 1, "x", "y", "z", key="k")
        polls = second.source.polls
        bench.wait(lambda: second.source.polls > polls + 10)
        assert bench.work.starts() == {"x": 1}
        bench.work.let_go()
        bench.wait_committed(1, 0)
        bench.wait_committed(3, 1)
    assert bench.work.starts() == {"x": 1, "y": 1, "z": 1}


def test_if_the_first_fails_for_good_the_key_is_free_for_the_second(claims: ClaimStore) -> None:
    from tests.harness.engine import Letters  # noqa: PLC0415

    with Bench(orders=2, claims=claims) as bench:
        letters = Letters(bench.changed)
        bench.work.hold("x")
        bench.work.fail("x", *[ValueError("no good")] * 2)
        first = bench.member("a", settings=SETTINGS, **KEYED)
        second = bench.member("b", settings=SETTINGS, dead_letter="dlq", dead_letters=letters, **KEYED)
        bench.group.aim({first.source: [P0], second.source: [P1]})
        bench.wait(lambda: first.owns == {P0} and second.owns == {P1})
        bench.broker.produce("orders", 0, "x")
        bench.wait_running("x")
        bench.broker.produce("orders", 1, "x")
        bench.work.fail("x", ValueError("the third attempt, and the last of the first member"))
        bench.work.let_go()
        bench.wait(first.over.is_set)
        bench.wait_committed(1, 1)
        assert [seen.member for seen in bench.work.started] == ["a"] * 3 + ["b"]
        assert letters.sent == []
        first.error = None  # HandlerFailed: it has no dead letter


def test_two_members_whose_lanes_ask_for_each_others_keys_both_come_to_an_end(claims: ClaimStore) -> None:
    """Crossing keys: whoever waits holds nothing that the other waits for."""
    settings = Settings(workers=4, ordering="partition", commit_interval_s=0.01)
    with Bench(orders=2, claims=claims) as bench:
        first = bench.member("a", settings=settings, **KEYED)
        second = bench.member("b", settings=settings, **KEYED)
        bench.group.aim({first.source: [P0], second.source: [P1]})
        bench.wait(lambda: first.owns == {P0} and second.owns == {P1})
        rounds = 30
        for number in range(rounds):
            keys = numbered(f"{number}-", range(4))
            with bench.changed:
                bench.broker.produce("orders", 0, *keys)
                bench.broker.produce("orders", 1, *reversed(keys))
        bench.wait_committed(4 * rounds, 0)
        bench.wait_committed(4 * rounds, 1)
    assert set(bench.work.starts().values()) == {1}
    assert len(bench.work.ended) == 4 * rounds


def test_a_topic_for_replays_shares_the_keys_of_another_where_its_handler_names_that_scope() -> None:
    with Bench(orders=1, replay=1) as bench:
        bench.broker.produce("orders", 0, "x")
        member = bench.member(settings=SETTINGS, start=False, **KEYED)
        member.app.handler("replay", name="replay", scope="g/orders", **KEYED)(
            lambda record: bench.work.do("a", record)
        )
        member.start()
        bench.wait_committed(1)
        bench.broker.produce("replay", 0, "x", "y")
        bench.wait_committed(2, topic="replay")
    assert [(seen.partition.topic, seen.value) for seen in bench.work.ended] == [("orders", "x"), ("replay", "y")]


def test_two_groups_on_one_store_do_not_hide_each_others_records() -> None:
    store = MemoryClaims()
    for group in ("g", "h"):
        from holdfast import Holdfast  # noqa: PLC0415
        from holdfast.testing.brokers.kafka import MemoryBroker  # noqa: PLC0415
        from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource  # noqa: PLC0415

        broker = MemoryBroker(orders=1)
        broker.produce("orders", 0, "x")
        app = Holdfast(MemoryPartitionedSource(broker, group), claims=store)
        seen: list[bytes | None] = []

        @app.handler("orders", key=lambda record: record.value or b"")
        def handle(record: Any, app: Holdfast = app, seen: list[bytes | None] = seen) -> None:
            seen.append(record.value)
            app.stop()

        app.run()
        assert seen == [b"x"]
