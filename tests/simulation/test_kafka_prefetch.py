"""The played queue of Kafka's client is as librdkafka 2.15 keeps it: rd_kafka_toppar_fetch_decide (rdkafka_fetcher.c),
rd_kafka_q_purge_toppar_version (rdkafka_queue.c) and rd_kafka_toppar_pause_resume (rdkafka_partition.c)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.records import Partition
from holdfast.testing.brokers.agenda import Line
from holdfast.testing.brokers.kafka import MemoryBroker
from holdfast.testing.brokers.kafka_reader import Reader
from tests.simulation.brokers.kafka_prefetch import Prefetch
from tests.simulation.drawing.world import Fetches

if TYPE_CHECKING:
    from collections.abc import Sequence

A, B = Partition("t", 0), Partition("t", 1)
_LONG_S = 10.0


class Fence:
    """The fence of all records."""

    session, epoch, cancelled = "s", 1, False

    def overdue(self, record: object) -> bool:
        return False


class Client:
    """A client that reads two partitions; time goes on when it is told to."""

    def __init__(self, fetches: Fetches) -> None:
        self.broker, self.now, self.line = MemoryBroker(t=2), 0.0, Line()
        self.readers = {each: Reader(0, paused=False) for each in (A, B)}
        self.queue = Prefetch(self.broker, fetches, self.line, lambda: None)

    def produce(self, partition: Partition, count: int) -> None:
        self.broker.produce("t", partition.number, *["v"] * count)

    def poll(self, at_most: int, *, after_s: float = 0.0) -> Sequence[tuple[str, int]]:
        """The records of one poll."""
        self.now += after_s
        came = self.queue.take(self.now, self.readers, dict.fromkeys((A, B), Fence()), at_most, None)
        self.ends = came.batch.ends
        return [("AB"[each.partition.number], each.offset) for each in came.batch.records]

    def pause(self, partition: Partition, *, paused: bool = True) -> None:
        self.readers[partition].paused = paused
        self.queue.moved(partition)


@pytest.fixture
def backlog() -> Client:
    """A has seven records and B two; a response has four of each, and nothing is fetched while six wait."""
    client = Client(Fetches(records=4, queued=6, backoff_s=1.0))
    client.produce(A, 7)
    client.produce(B, 2)
    return client


def test_records_come_in_the_order_of_responses_which_have_some_of_each_partition_in_turn(backlog: Client) -> None:
    assert backlog.poll(9) == [("A", 0), ("A", 1), ("A", 2), ("A", 3), ("B", 0), ("B", 1)]
    assert backlog.poll(9, after_s=1.0) == [("A", 4), ("A", 5), ("A", 6)]


def test_what_comes_later_stands_behind_the_whole_response(backlog: Client) -> None:
    assert backlog.poll(1) == [("A", 0)]
    backlog.produce(B, 1)
    first, second = [("A", 1), ("A", 2), ("A", 3), ("B", 0), ("B", 1)], [("A", 4), ("A", 5), ("A", 6), ("B", 2)]
    assert backlog.poll(9, after_s=1.0) == first + second


def test_a_full_queue_keeps_its_partitions_from_being_fetched_for_a_while(backlog: Client) -> None:
    assert len(backlog.poll(9)) == 6
    assert not backlog.poll(9, after_s=0.9)
    assert len(backlog.poll(9, after_s=0.2)) == 3


def test_a_pause_drops_what_waits_of_its_partition_and_a_resume_fetches_it_anew(backlog: Client) -> None:
    assert backlog.poll(1) == [("A", 0)]
    backlog.pause(A)
    assert backlog.poll(9) == [("B", 0), ("B", 1)]
    backlog.pause(A, paused=False)
    assert backlog.poll(9, after_s=_LONG_S) == [("A", offset) for offset in range(1, 7)]


def test_what_was_dropped_counts_until_its_turn_but_for_the_first_ones(backlog: Client) -> None:
    backlog.poll(0)
    backlog.pause(B)
    backlog.poll(0)
    assert len(backlog.queue) == 6
    backlog.pause(A)
    backlog.poll(0)
    assert len(backlog.queue) == 0


def test_after_a_seek_the_partition_comes_from_there(backlog: Client) -> None:
    assert backlog.poll(1) == [("A", 0)]
    backlog.readers[A].position = 6
    backlog.queue.moved(A)
    assert backlog.poll(9) == [("B", 0), ("B", 1)]
    assert backlog.poll(9, after_s=_LONG_S) == [("A", 6)]


def test_an_end_comes_once_behind_its_records_and_anew_after_a_pause() -> None:
    client = Client(Fetches(records=4, queued=100))
    client.produce(A, 5)
    assert len(client.poll(9)) == 5
    assert {(each.partition, each.offset) for each in client.ends} == {(A, 5), (B, 0)}
    client.poll(9, after_s=_LONG_S)
    assert not client.ends
    client.pause(A)
    client.pause(A, paused=False)
    for _ in range(2):
        client.poll(9, after_s=_LONG_S)
        if client.ends:
            break
    assert [(each.partition, each.offset) for each in client.ends] == [(A, 5)]


def test_a_partition_that_is_resumed_waits_for_the_fetch_that_the_broker_holds() -> None:
    client = Client(Fetches())
    client.pause(A)
    assert not client.poll(9)  # a fetch of B alone is under way
    client.produce(A, 1)
    client.pause(A, paused=False)
    assert not client.poll(9, after_s=0.4)
    client.poll(9, after_s=0.2)
    assert client.poll(9) == [("A", 0)]


def test_a_response_takes_its_way_and_none_comes_over_a_line_that_is_cut() -> None:
    client = Client(Fetches(way_s=0.2))
    client.produce(A, 1)
    assert not client.poll(9)
    client.line.hears = False
    assert not client.poll(9, after_s=0.3)
    client.line.mend()
    assert client.poll(9) == [("A", 0)]
