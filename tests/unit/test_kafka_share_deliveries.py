"""The records in a process that leases them from a share group, and what its clients are to tell the broker."""

from __future__ import annotations

from typing import Any, cast

import pytest
from confluent_kafka import AcknowledgeType

from holdfast.adapters.kafka.share.deliveries import Deliveries, Delivery, Said
from holdfast.adapters.kafka.share.limits import Limits
from holdfast.records import Partition, Record
from holdfast.runtime import Machine
from tests.harness.clocks import HandClock

LOCK_S, MOST = 30.0, 3
PARTITION = Partition("jobs", 0)
ACCEPT, RELEASE = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE
LIMITS = Limits(lock_s=LOCK_S, deliveries=MOST, begins="earliest", begins_by_choice=True)


class Desk:
    def __init__(self) -> None:
        self.clock = HandClock()
        self.deliveries = Deliveries(LIMITS, 2, Machine(self.clock))

    def come(self, *offsets: int, client: int = 0, number: int = 1, produced: int = 0) -> None:
        until = self.clock.now() + LOCK_S
        self.deliveries.arrived(
            [(record(offset, produced), Delivery(client, cast("Any", offset), number, until)) for offset in offsets]
        )

    def told(self, client: int = 0) -> list[tuple[int, AcknowledgeType]]:
        """What a client is to tell: offsets and how."""
        return [(answer.place[1], answer.kind) for answer in self.deliveries.answers(client, 0.0)]

    def take(self) -> list[int]:
        return [each.offset for each in self.deliveries.take(10)]

    def lapse(self, client: int = 0) -> list[int]:
        """What only the dead letters can save now."""
        return [held.record.offset for held in self.deliveries.lapse(client)]


def record(offset: int, produced: int = 0) -> Record:
    return Record(PARTITION, offset, None, b"x", (), produced, cast("Any", None))


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_what_is_done_is_accepted_and_what_is_not_is_released(desk: Desk) -> None:
    desk.come(1, 2, 3)
    assert desk.take() == [1, 2, 3]
    desk.deliveries.done([record(1)])
    desk.deliveries.back([record(2)])
    assert desk.told() == [(1, ACCEPT), (2, RELEASE)]
    assert desk.deliveries.load == 1


def test_each_client_is_told_of_its_own(desk: Desk) -> None:
    desk.come(1)
    desk.come(2, client=1)
    desk.take()
    desk.deliveries.done([record(1), record(2)])
    assert (desk.told(), desk.told(client=1)) == ([(1, ACCEPT)], [(2, ACCEPT)])


def test_one_that_comes_again_while_it_runs_stays_one_and_both_deliveries_are_accepted(desk: Desk) -> None:
    desk.come(1)
    desk.take()
    desk.come(1, client=1, number=2)
    assert desk.take() == []
    desk.deliveries.done([record(1)])
    assert (desk.told(), desk.told(client=1)) == ([(1, ACCEPT)], [(1, ACCEPT)])


def test_one_that_comes_again_after_its_end_is_accepted_without_the_engine_until_the_broker_knows(desk: Desk) -> None:
    desk.come(1)
    desk.take()
    desk.deliveries.done([record(1)])
    first = desk.deliveries.answers(0, 0.0)
    desk.deliveries.told(first, {PARTITION: Said.LATE})
    assert desk.deliveries.late(10) == 1
    desk.come(1, number=2)
    assert (desk.take(), desk.told()) == ([], [(1, ACCEPT)])
    desk.deliveries.told(first, {PARTITION: Said.TAKEN})
    desk.come(1, number=3)
    assert desk.take() == [1]


def test_in_a_topic_that_was_made_again_the_same_place_is_another_record(desk: Desk) -> None:
    desk.come(1, produced=7)
    desk.take()
    desk.deliveries.done([record(1, produced=7)])
    desk.told()
    desk.come(1, produced=8)
    assert desk.take() == [1]


def test_one_whose_lock_has_ended_on_its_way_is_released_and_not_begun(desk: Desk) -> None:
    delivery = Delivery(0, cast("Any", 1), 1, desk.clock.now())
    desk.deliveries.arrived([(record(1), delivery)])
    assert (desk.take(), desk.told()) == ([], [(1, RELEASE)])


def test_what_waits_until_little_of_its_lock_is_left_is_given_back(desk: Desk) -> None:
    desk.come(1)
    desk.clock.sleep(LOCK_S - LIMITS.spare_s - 0.1)
    assert (desk.lapse(), desk.told()) == ([], [])
    desk.clock.sleep(0.2)
    assert (desk.lapse(), desk.told()) == ([], [(1, RELEASE)])


def test_a_client_lets_go_of_what_runs_past_the_end_of_its_lock_and_polls_on(desk: Desk) -> None:
    desk.come(1)
    desk.take()
    desk.clock.sleep(LOCK_S)
    assert (desk.lapse(), desk.told()) == ([], [(1, RELEASE)])
    desk.deliveries.done([record(1)])  # its handler ends after all
    assert desk.told() == []
    desk.come(1, number=2)
    assert (desk.take(), desk.told()) == ([], [(1, ACCEPT)])


def test_at_its_last_delivery_a_record_is_not_released_but_waits_again_and_is_rescued(desk: Desk) -> None:
    desk.come(1, number=MOST)
    assert desk.deliveries.deliveries_left(record(1)) == 0
    desk.take()
    desk.deliveries.back([record(1)])
    assert (desk.told(), desk.lapse()) == ([], [])
    assert desk.take() == [1]
    desk.deliveries.back([record(1)])
    desk.clock.sleep(LOCK_S - LIMITS.spare_s)
    [held] = desk.deliveries.lapse(0)
    desk.deliveries.rescued(held)
    assert (desk.told(), desk.take()) == ([(1, ACCEPT)], [])


def test_what_nothing_has_saved_by_the_end_of_its_last_lock_is_named(desk: Desk) -> None:
    desk.come(1, number=MOST)
    desk.clock.sleep(LOCK_S)
    assert desk.lapse() == []
    assert [each.offset for each in desk.deliveries.lost] == [1]


def test_who_leaves_gives_back_what_waits_and_rescues_what_is_at_its_last_delivery(desk: Desk) -> None:
    desk.come(1)
    desk.come(2, number=MOST)
    desk.come(3)
    desk.deliveries.take(1)
    desk.deliveries.drain()
    assert desk.told() == [(3, RELEASE)]
    assert desk.lapse() == [2]
    desk.come(4)
    assert desk.told() == [(4, RELEASE)]


def test_what_a_client_had_that_has_ended_is_nobodys(desk: Desk) -> None:
    desk.come(1, 2)
    desk.deliveries.take(1)
    desk.deliveries.forget(0)
    assert desk.take() == []
    desk.deliveries.done([record(1)])
    assert desk.told() == []
    assert desk.deliveries.load == 0
