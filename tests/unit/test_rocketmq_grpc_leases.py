"""Leases of messages: what is asked of the broker about each, and what never is."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

import pytest

from holdfast.adapters.rocketmq.grpc.delivery import Delivery, Verdict
from holdfast.adapters.rocketmq.grpc.leases import Leases
from holdfast.runtime import Machine
from tests.harness.clocks import HandClock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

LEASE_S = 30


class Change(NamedTuple):
    receipt: str
    hidden_s: int
    answer: Callable[[Verdict, str], None]


class Acknowledgement(NamedTuple):
    receipts: list[str]
    answer: Callable[[Sequence[Verdict]], None]


class Broker:
    """Keeps what it is asked until the test answers."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.acknowledgements: list[Acknowledgement] = []

    def begin_acknowledge(self, deliveries: Sequence[Delivery], answer: Callable[[Sequence[Verdict]], None]) -> None:
        self.acknowledgements.append(Acknowledgement([each.receipt for each in deliveries], answer))

    def begin_change(self, delivery: Delivery, hidden_s: int, answer: Callable[[Verdict, str], None]) -> None:
        self.changes.append(Change(delivery.receipt, hidden_s, answer))

    def acknowledged(self) -> list[str]:
        """What was asked since the last call; the test answers by itself."""
        found = [receipt for each in self.acknowledgements for receipt in each.receipts]
        self.acknowledgements.clear()
        return found


class Overtaken(threading.Condition):
    """Whoever lets go of it may be overtaken there, by what the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.by: list[Callable[[], None]] = []

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, where)
        if self.by:
            self.by.pop()()


class Bench:
    def __init__(self) -> None:
        self.clock, self.broker, self.lock = HandClock(), Broker(), Overtaken()
        machine = Machine(self.clock)
        machine.condition = lambda: self.lock  # type: ignore[assignment,misc]
        self.leases = Leases(self.broker, LEASE_S, machine)

    def arrive(self, *receipts: str) -> None:
        """A receipt is the message's name and the number of its delivery: "a1", "a2"."""
        self.leases.arrived([delivery(each) for each in receipts], self.clock.now())

    def take(self, *receipts: str) -> list[int]:
        """These come and go to the engine. Replies with their numbers."""
        self.arrive(*receipts)
        taken = self.leases.take(100)
        assert [each.delivery.receipt for each in taken] == list(receipts)
        return [each.number for each in taken]

    def age(self, thirds: float) -> None:
        self.clock.sleep(LEASE_S * thirds / 3)

    def settled(self) -> bool:
        return self.leases.settled

    def renewed(self) -> list[str]:
        return [each.receipt for each in self.broker.changes if each.hidden_s]

    def returned(self) -> list[str]:
        return [each.receipt for each in self.broker.changes if not each.hidden_s]


def delivery(receipt: str, topic: str = "t") -> Delivery:
    return Delivery(
        topic=topic, message_id=receipt[:-1], receipt=receipt, endpoints="proxy", body=b"", key=None, headers=(),
        born_ms=0, attempt=int(receipt[-1]),
    )  # fmt: skip


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_two_of_one_name_whose_bodies_differ_are_two_messages(bench: Bench) -> None:
    bench.leases.arrived([delivery("a1"), delivery("a2")._replace(crc=7)], bench.clock.now())
    assert [taken.delivery.receipt for taken in bench.leases.take(10)] == ["a1", "a2"]


class TestRenewals:
    def test_a_lease_is_renewed_when_a_third_of_it_is_used_and_not_before(self, bench: Bench) -> None:
        numbers = bench.take("a1")
        bench.age(0.8)
        bench.leases.renew(numbers)
        assert bench.renewed() == []
        bench.age(0.2)
        bench.leases.renew(numbers)
        assert bench.renewed() == ["a1"]

    def test_one_renewal_at_a_time(self, bench: Bench) -> None:
        numbers = bench.take("a1")
        bench.age(1)
        bench.leases.renew(numbers)
        bench.age(1)
        bench.leases.renew(numbers)
        assert bench.renewed() == ["a1"]

    def test_the_next_one_goes_by_the_new_receipt(self, bench: Bench) -> None:
        numbers = bench.take("a1")
        bench.age(1)
        bench.leases.renew(numbers)
        bench.broker.changes.pop().answer(Verdict.DONE, "a7")
        bench.leases.renew(numbers)
        assert bench.renewed() == []
        bench.age(1)
        bench.leases.renew(numbers)
        assert bench.renewed() == ["a7"]
        bench.leases.done(numbers)
        bench.broker.changes.pop().answer(Verdict.DONE, "a8")
        assert bench.broker.acknowledged() == ["a8"]

    def test_after_one_without_an_answer_there_is_none_by_that_receipt(self, bench: Bench) -> None:
        numbers = bench.take("a1")
        bench.age(1)
        bench.leases.renew(numbers)
        bench.broker.changes.pop().answer(Verdict.UNKNOWN, "")
        bench.age(1)
        bench.leases.renew(numbers)
        bench.leases.back(numbers)
        assert bench.broker.changes == []

    def test_what_came_again_is_renewed_by_its_newest_receipt(self, bench: Bench) -> None:
        numbers = bench.take("a1")
        bench.age(1)
        bench.leases.renew(numbers)
        bench.broker.changes.pop().answer(Verdict.UNKNOWN, "")
        bench.age(2)
        bench.arrive("a2")
        assert bench.leases.take(100) == []
        bench.age(1)
        bench.leases.renew(numbers)
        assert bench.renewed() == ["a2"]

    def test_each_delivery_that_lives_is_renewed_by_its_own_receipt(self, bench: Bench) -> None:
        numbers = bench.take("a1")
        bench.arrive("a2")
        bench.age(1)
        bench.leases.renew(numbers)
        assert bench.renewed() == ["a1", "a2"]

    def test_what_waits_is_renewed_too(self, bench: Bench) -> None:
        bench.arrive("a1")
        bench.age(1)
        bench.leases.renew([])
        assert bench.renewed() == ["a1"]


class TestAcknowledgements:
    def test_several_go_together_by_topic(self, bench: Bench) -> None:
        bench.leases.arrived([delivery("a1"), delivery("b1", "u"), delivery("c1")], bench.clock.now())
        bench.leases.done([each.number for each in bench.leases.take(100)])
        assert [each.receipts for each in bench.broker.acknowledgements] == [["a1", "c1"], ["b1"]]

    def test_it_waits_for_a_renewal_that_is_under_way(self, bench: Bench) -> None:
        numbers = bench.take("a1")
        bench.age(1)
        bench.leases.renew(numbers)
        bench.leases.done(numbers)
        bench.leases.repeat()
        assert bench.broker.acknowledged() == []
        bench.broker.changes.pop().answer(Verdict.DONE, "a7")
        assert bench.broker.acknowledged() == ["a7"]
        assert not bench.settled()

    def test_one_that_is_answered_before_its_thread_gets_to_ask_is_not_asked_again(self, bench: Bench) -> None:
        """The answer to a renewal asks for it, in the client's thread; and the proxy is quicker than the loop's."""
        numbers = bench.take("a1")
        bench.age(1)
        bench.leases.renew(numbers)

        def overtakes() -> None:
            bench.broker.changes.pop().answer(Verdict.DONE, "a7")
            bench.broker.acknowledgements.pop().answer([Verdict.DONE])

        bench.lock.by.append(overtakes)
        bench.leases.done(numbers)
        assert bench.broker.acknowledged() == []
        assert bench.settled()

    def test_without_an_answer_it_is_repeated_until_there_is_one(self, bench: Bench) -> None:
        bench.leases.done(bench.take("a1"))
        for _ in range(3):
            [asked] = bench.broker.acknowledgements
            assert asked.receipts == ["a1"]
            bench.broker.acknowledgements.clear()
            asked.answer([Verdict.UNKNOWN])
            bench.leases.repeat()
            assert bench.broker.acknowledged() == []
            bench.age(0.6)
            bench.leases.repeat()
        bench.broker.acknowledgements[0].answer([Verdict.DONE])
        assert bench.settled()
        assert bench.leases.load == 0

    def test_what_comes_again_meanwhile_is_acknowledged_by_its_own_receipt(self, bench: Bench) -> None:
        bench.leases.done(bench.take("a1"))
        bench.broker.acknowledgements.pop().answer([Verdict.UNKNOWN])
        bench.age(3)
        bench.arrive("a2")
        assert bench.broker.acknowledged() == ["a2"]
        assert bench.leases.take(100) == []
        assert bench.leases.repeated == 1

    def test_what_comes_again_while_its_handler_runs_is_acknowledged_by_all_receipts(self, bench: Bench) -> None:
        numbers = bench.take("a1")
        bench.arrive("a2")
        assert bench.leases.take(100) == []
        bench.leases.done(numbers)
        assert bench.broker.acknowledged() == ["a1", "a2"]

    def test_one_that_came_too_late_is_told_once(self, bench: Bench) -> None:
        bench.leases.done(bench.take("a1", "b1"))
        bench.broker.acknowledgements.pop().answer([Verdict.OVER, Verdict.DONE])
        assert bench.leases.late(10) == 1
        assert bench.leases.late(10) == 0
        assert bench.settled()

    @pytest.mark.parametrize("doubt", ["late", "a renewal without an answer"])
    def test_where_another_delivery_may_be_under_way_the_message_is_remembered(self, bench: Bench, doubt: str) -> None:
        numbers = bench.take("a1")
        if doubt == "late":
            bench.leases.done(numbers)
            bench.broker.acknowledgements.pop().answer([Verdict.OVER])
        else:
            bench.age(1)
            bench.leases.renew(numbers)
            bench.broker.changes.pop().answer(Verdict.UNKNOWN, "")
            bench.leases.done(numbers)
            bench.broker.acknowledgements.pop().answer([Verdict.DONE])
        bench.age(6)
        bench.arrive("a2")
        assert bench.leases.take(100) == []
        bench.broker.acknowledgements.pop().answer([Verdict.DONE])
        bench.take("a3")

    def test_one_that_is_done_for_good_is_forgotten(self, bench: Bench) -> None:
        bench.leases.done(bench.take("a1"))
        bench.broker.acknowledgements.pop().answer([Verdict.DONE])
        bench.take("a2")


class TestReturns:
    def test_it_is_shown_to_others_at_once(self, bench: Bench) -> None:
        bench.leases.back(bench.take("a1"))
        [asked] = bench.broker.changes
        assert (asked.receipt, asked.hidden_s) == ("a1", 0)
        assert not bench.settled()
        asked.answer(Verdict.UNKNOWN, "")
        assert bench.settled()
        bench.leases.repeat()
        assert bench.returned() == ["a1"]

    def test_it_waits_for_a_renewal_that_is_under_way(self, bench: Bench) -> None:
        numbers = bench.take("a1")
        bench.age(1)
        bench.leases.renew(numbers)
        bench.leases.back(numbers)
        assert bench.returned() == []
        bench.broker.changes.pop().answer(Verdict.DONE, "a7")
        assert bench.returned() == ["a7"]

    def test_a_drain_gives_back_what_waits_and_what_still_comes_but_not_what_is_out(self, bench: Bench) -> None:
        bench.take("a1")
        bench.arrive("b1")
        bench.leases.drain()
        bench.arrive("c1")
        assert bench.returned() == ["b1", "c1"]
        assert bench.leases.take(100) == []

    def test_what_comes_again_during_a_drain_and_is_out_is_kept(self, bench: Bench) -> None:
        numbers = bench.take("a1")
        bench.leases.drain()
        bench.arrive("a2")
        bench.leases.done(numbers)
        assert bench.broker.acknowledged() == ["a1", "a2"]


class TestWaiting:
    def test_one_whose_lease_may_be_over_never_goes_to_the_engine(self, bench: Bench) -> None:
        bench.arrive("a1", "b1")
        bench.age(3)
        assert bench.leases.take(100) == []
        assert bench.broker.changes == []
        assert bench.leases.lapsed == 2
        bench.take("a2")

    def test_one_whose_lease_is_nearly_over_is_given_back(self, bench: Bench) -> None:
        bench.arrive("a1")
        bench.age(2.5)
        assert bench.leases.take(100) == []
        assert bench.returned() == ["a1"]

    def test_a_lease_counts_from_when_it_was_asked_for(self, bench: Bench) -> None:
        asked_at = bench.clock.now()
        bench.age(3)
        bench.leases.arrived([delivery("a1")], asked_at)
        assert bench.leases.take(100) == []

    def test_the_oldest_goes_first_and_no_more_than_asked_for(self, bench: Bench) -> None:
        bench.arrive("a1", "b1", "c1")
        assert [each.delivery.receipt for each in bench.leases.take(2)] == ["a1", "b1"]
        assert bench.leases.load == 3
