"""Retry topics with delays, in virtual time: what fails is tried again later, and nothing waits for it."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import BatchOf, Holdfast, Retry, Settings
from holdfast.errors import Unretriable
from holdfast.plugin.events import DeadLettered, SentBack
from holdfast.plugin.retrying.dead_letter import headers_of
from holdfast.testing import ScriptedWorld, make_record
from holdfast.testing.brokers.logs import Stored
from holdfast.testing.scripted.simulate import simulate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.plugin.events import Event
    from holdfast.records import Record

RETRY = Retry(attempts=1, topics=["10s", "1min", "10min"])
AFTER_10S, AFTER_1MIN, AFTER_10MIN = (f"orders.group.retry.{delay}" for delay in ("10s", "1min", "10min"))


@pytest.fixture
def world() -> Iterator[ScriptedWorld]:
    with ScriptedWorld(1, partitions=1, jitter=False) as made:
        yield made


class Shop:
    """A handler that fails as often as it is told, and what it was called with."""

    def __init__(self, world: ScriptedWorld, **handling: Any) -> None:
        self.world, self.handling = world, {"retry": RETRY, "dead_letter": "orders.dlq", **handling}
        self.fails: Counter[str] = Counter()
        self.errors: dict[str, Exception] = {}
        #: When, in whole seconds, what, and by which topic.
        self.calls: list[tuple[int, str, str]] = []
        self.done: list[str] = []
        self.events: list[Event] = []
        self.settings = Settings(commit_interval_s=0.01)

    def on_event(self, event: Event) -> None:
        self.events.append(event)

    def told(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def make(self, source: Any, claims: Any) -> Holdfast:
        app = Holdfast(source, claims=claims, settings=self.settings, observers=[self])
        app.handler("orders", name="bill", **self.handling)(self.bill)
        return app

    def bill(self, record: Record) -> None:
        value = record.text()
        self.calls.append((int(self.world.now), value, record.topic))
        if self.fails[value] > 0:
            self.fails[value] -= 1
            raise self.errors.get(value, ValueError("not now"))
        self.done.append(value)

    def times(self, value: str) -> list[int]:
        return [at for at, which, _ in self.calls if which == value]


class TestItsWay:
    def test_each_topic_adds_its_delay_and_the_last_one_is_followed_by_the_dead_letter(
        self, world: ScriptedWorld
    ) -> None:
        shop = Shop(world)
        shop.fails["never"] = 99
        world.member(shop.make)
        world.produce("orders", "never")
        world.settle(within_s=2000)
        assert [topic for _, _, topic in shop.calls] == ["orders", AFTER_10S, AFTER_1MIN, AFTER_10MIN]
        began, *later = shop.times("never")
        assert [at - began for at in later] == [10, 70, 670]
        [letter] = world.dead_letters
        said = dict(headers_of(letter))
        assert (letter.topic, said["holdfast-attempts"]) == ("orders.dlq", b"4")
        assert said["holdfast-origin-topic"] == b"orders"
        assert (said["holdfast-origin-partition"], said["holdfast-origin-offset"]) == (b"0", b"0")
        assert [event.attempts for event in shop.told(SentBack)] == [1, 2, 3]
        assert [event.attempts for event in shop.told(DeadLettered)] == [4]
        world.assert_nothing_lost()
        world.assert_committed()

    def test_attempts_in_place_come_first_at_each_of_them(self, world: ScriptedWorld) -> None:
        shop = Shop(world, retry=Retry(attempts=3, wait_initial_s=0.1, topics=["10s"]))
        shop.fails["x"] = 5
        world.member(shop.make)
        world.produce("orders", "x")
        world.settle()
        assert [topic for _, _, topic in shop.calls] == ["orders"] * 3 + [AFTER_10S] * 3
        assert shop.done == ["x"]
        assert [event.attempts for event in shop.told(SentBack)] == [3]

    def test_who_comes_behind_it_with_the_same_key_does_not_wait(self, world: ScriptedWorld) -> None:
        shop = Shop(world)
        shop.fails["first"] = 1
        world.member(shop.make)
        world.produce("orders", "first", "second", key="customer-1")
        world.settle()
        assert shop.done == ["second", "first"]
        assert shop.times("second")[0] - shop.times("first")[0] < 1

    def test_what_no_attempt_can_cure_is_a_dead_letter_at_once(self, world: ScriptedWorld) -> None:
        shop = Shop(world)
        shop.fails["x"], shop.errors["x"] = 1, Unretriable("cannot be read")
        world.member(shop.make)
        world.produce("orders", "x")
        world.settle()
        assert [letter.topic for letter in world.dead_letters] == ["orders.dlq"]
        assert len(shop.calls) == 1

    def test_the_records_of_a_batch_go_on_their_own(self, world: ScriptedWorld) -> None:
        sizes: list[int] = []
        shop = Shop(world, batch=BatchOf(records=10))

        def bill_all(records: list[Record]) -> None:
            sizes.append(len(records))
            if records[0].topic == "orders":
                raise ValueError("not now")
            shop.done.extend(record.text() for record in records)

        shop.bill = bill_all  # type: ignore[assignment,method-assign]
        world.produce("orders", "a", "b", "c")
        world.member(shop.make)
        world.settle()
        assert sorted(shop.done) == ["a", "b", "c"]
        world.assert_nothing_lost()

    def test_without_dead_letters_the_app_stops_at_the_end_of_the_way_and_the_record_stays(
        self, world: ScriptedWorld
    ) -> None:
        shop = Shop(world, retry=Retry(attempts=1, topics=["10s"]), dead_letter=None)
        shop.fails["x"] = 99
        member = world.member(shop.make)
        world.produce("orders", "x")
        world.run(until=lambda: member.error)
        assert "after 2 attempts" in str(member.error)
        assert world.committed(AFTER_10S, 0) in (None, 0)


class TestItsTime:
    def test_nothing_is_handed_out_before_it_is_due_and_others_go_on_meanwhile(self, world: ScriptedWorld) -> None:
        shop = Shop(world)
        world.member(shop.make)
        for number in range(20):
            shop.fails[f"late{number}"] = 1
            world.after(number * 0.7, partial(world.produce, "orders", f"late{number}", f"ok{number}"))
        world.settle()
        for number in range(20):
            first, again = shop.times(f"late{number}")
            assert 10 <= again - first <= 12
            assert shop.times(f"ok{number}")[0] - first <= 1
        world.assert_committed()

    def test_what_came_due_while_nobody_was_there_is_handed_out_at_once(self, world: ScriptedWorld) -> None:
        shop = Shop(world)
        shop.fails["x"] = 1
        member = world.member(shop.make)
        world.produce("orders", "x")
        world.run(for_s=5)
        member.stop()
        world.run(until=lambda: not member.alive)
        world.after(60, member.restart)
        world.run(until=lambda: member.alive)
        began = int(world.now)
        assert began > 60
        world.settle()
        assert shop.times("x")[1] - began <= 1

    def test_a_timestamp_of_the_far_future_holds_nobody_up_for_longer_than_two_delays(
        self, world: ScriptedWorld
    ) -> None:
        """Its writer's clock is wrong, or it is forged."""
        shop = Shop(world)
        shop.fails["x"] = 1
        member = world.member(shop.make)
        world.run(until=lambda: member.partitions)
        broker = world.cluster.broker
        [partition] = broker.of(AFTER_10S)
        for number in range(50):
            broker.store(partition, Stored(None, f"forged{number}".encode(), (), 10**15))
        world.produce("orders", "x")
        began = int(world.now)
        world.settle()
        assert shop.times("x")[1] - began <= 21
        assert all(at - began <= 21 for at, _, _ in shop.calls)
        world.assert_nothing_lost()

    def test_one_without_a_timestamp_waits_for_the_whole_delay(self, world: ScriptedWorld) -> None:
        shop = Shop(world)
        member = world.member(shop.make)
        world.run(until=lambda: member.partitions)
        [partition] = world.cluster.broker.of(AFTER_10S)
        world.cluster.broker.store(partition, Stored(None, b"x", ()))
        began = int(world.now)
        world.settle()
        assert 10 <= shop.times("x")[0] - began <= 12


class TestWhoseItIs:
    def test_a_business_key_has_the_scope_of_the_topic_where_it_was_born(self, world: ScriptedWorld) -> None:
        """A copy that was handled meanwhile makes the retry a duplicate."""
        shop = Shop(world, key=lambda record: "order-17")
        shop.fails["first"] = 1
        world.member(shop.make)
        world.produce("orders", "first")
        world.run(for_s=3)
        world.produce("orders", "copy")
        world.settle()
        assert shop.done == ["copy"]
        world.assert_committed()

    def test_its_key_is_given_back_while_it_waits(self, world: ScriptedWorld) -> None:
        shop = Shop(world, key=lambda record: "order-17")
        shop.fails["first"] = 1
        world.member(shop.make)
        world.produce("orders", "first")
        world.settle()
        assert shop.done == ["first"]

    def test_no_header_decides_anything(self, world: ScriptedWorld) -> None:
        shop, names = Shop(world), ["origin-topic", "attempts", "retry-of", "handler"]
        world.member(shop.make)
        for name in names:
            shop.fails[name] = 99
            world.produce("orders", name, headers={f"holdfast-{name}": "99"})
        world.settle(within_s=2000)
        for name in names:
            topics = [topic for _, value, topic in shop.calls if value == name]
            assert topics == ["orders", AFTER_10S, AFTER_1MIN, AFTER_10MIN], name
        assert [letter.attempts for letter in world.dead_letters] == [4] * len(names)

    def test_each_topic_of_a_handler_has_retry_topics_of_its_own(self, world: ScriptedWorld) -> None:
        seen: list[tuple[str, str]] = []

        def make(source: Any, claims: Any) -> Holdfast:
            app = Holdfast(source, claims=claims)

            @app.handler(["orders", "refunds"], name="bill", retry=Retry(attempts=1, topics=[10]), dead_letter="dlq")
            def bill(record: Record) -> None:
                seen.append((record.topic, record.text()))
                if "retry" not in record.topic:
                    raise ValueError("not now")

            @app.handler("^.*", name="all others")
            def others(record: Record) -> None:
                raise AssertionError(record)

            return app

        world.member(make)
        world.produce("orders", "o")
        world.produce("refunds", "r")
        world.settle()
        assert sorted(seen) == [
            ("orders", "o"),
            ("orders.group.retry.10s", "o"),
            ("refunds", "r"),
            ("refunds.group.retry.10s", "r"),
        ]

    def test_a_change_of_the_subscription_goes_on_with_what_waits(self, world: ScriptedWorld) -> None:
        shop = Shop(world, retry=Retry(attempts=1, topics=["10s"]))
        shop.fails["x"] = 1
        member = world.member(shop.make)
        world.produce("orders", "x")
        world.run(for_s=3)
        member.app.subscribe(["orders"])
        world.settle()
        assert shop.done == ["x"]


class TestWhatGoesWrong:
    def test_the_record_is_not_settled_before_the_broker_has_it_in_the_retry_topic(self, world: ScriptedWorld) -> None:
        shop = Shop(world)
        shop.fails["x"] = 1
        world.member(shop.make)
        world.refuse_dead_letters()
        world.produce("orders", "x")
        world.run(for_s=30)
        assert world.committed("orders", 0) in (None, 0)
        world.refuse_dead_letters(refuse=False)
        world.settle()
        assert shop.done == ["x"]
        world.assert_nothing_lost()

    @pytest.mark.parametrize("befalls", ["stop", "crash", "revoke", "lose", "zombie"])
    def test_what_waits_is_handled_by_the_next_owner(self, world: ScriptedWorld, befalls: str) -> None:
        shop = Shop(world)
        for number in range(10):
            shop.fails[f"x{number}"] = 2
        first = world.member(shop.make)
        world.produce("orders", *(f"x{number}" for number in range(10)))
        world.run(for_s=15)
        world.member(shop.make)
        world.run(for_s=5)
        if befalls in ("revoke", "lose"):
            for topic in {partition.topic for partition in first.partitions}:
                getattr(first, befalls)(topic)
        else:
            getattr(first, befalls)()
        world.settle()
        assert sorted(set(shop.done)) == sorted(f"x{number}" for number in range(10))
        world.assert_nothing_lost()
        world.assert_committed()

    def test_a_drain_does_not_wait_for_what_is_not_due(self, world: ScriptedWorld) -> None:
        shop = Shop(world)
        shop.fails["x"] = 1
        member = world.member(shop.make)
        world.produce("orders", "x")
        world.run(for_s=3)
        began = world.now
        member.stop()
        world.run(until=lambda: not member.alive)
        assert world.now - began < 2

    def test_health_does_not_take_a_partition_that_waits_for_one_that_stands_still(self, world: ScriptedWorld) -> None:
        shop = Shop(world, retry=Retry(attempts=1, topics=["10min"]))
        shop.fails["x"] = 1
        member = world.member(shop.make)
        world.produce("orders", "x")
        world.run(for_s=3)
        found: list[Any] = []

        def look() -> None:
            found.append((member.app.health(stall_s=60), member.app.snapshot()))

        for at_s in (1, 200, 400):
            world.after(at_s, lambda: member.process.spawn(look, "probe"))
        world.run(for_s=500)
        assert [health.stalled for health, _ in found] == [(), (), ()]
        [waiting] = [each for each in found[-1][1].partitions if each.partition.topic == AFTER_10MIN]
        assert waiting.lag == 1
        assert found[-1][1].load.partitions_paused == 1
        assert waiting.next_retry_ms is not None
        assert waiting.paused == "its next record is not due yet"
        assert 190_000 < waiting.next_retry_ms - found[-1][1].at_ms < 200_000
        world.settle(within_s=2000)
        assert shop.done == ["x"]


def test_in_worlds_that_are_drawn_nothing_is_lost_and_no_key_runs_twice() -> None:
    """Crashes, zombies, lost partitions, an unreachable store, at any moment."""
    failed: Counter[str] = Counter()

    def make(source: Any, claims: Any) -> Holdfast:
        app = Holdfast(source, claims=claims, settings=Settings(commit_interval_s=0.05))

        @app.handler("orders", key="id", name="bill", dead_letter="dlq", retry=Retry(attempts=1, topics=[2, 5]))
        def bill(record: Record) -> None:
            number = str(record.json()["id"])
            failed[number] += 1
            if failed[number] <= int(number) % 4:
                raise ValueError("not now")

        return app

    records = [make_record({"id": number}, topic="orders", key=f"c{number % 3}") for number in range(24)]
    begin: Callable[[Any], object] = lambda _: failed.clear()  # noqa: E731
    assert simulate(make, records, 6, begin=begin).worlds == 6
