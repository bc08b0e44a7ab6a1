"""Where a group begins of which the broker has no offset: by auto.offset.reset, and for how much of it that counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from confluent_kafka import TopicPartition

from holdfast.adapters.kafka.offsets import EARLIEST, LATEST
from holdfast.adapters.kafka.starting_offsets import APP_DEFAULT, LOOP_DEFAULT, StartingOffsets
from holdfast.errors import SourceError
from holdfast.records import Partition
from holdfast.timing import Deadline

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from holdfast.adapters.kafka._client import Consumer
    from holdfast.adapters.kafka.topic_ids import TopicIds


class Topic:
    error = None

    def __init__(self, partitions: int) -> None:
        self.partitions = dict.fromkeys(range(partitions))


class Known:
    """A broker's topics, and what the group has committed."""

    def __init__(self, committed: Mapping[tuple[str, int], str] | None = None, **topics: int) -> None:
        self.topics = {name: Topic(partitions) for name, partitions in topics.items()}
        self._committed = committed or {}

    def list_topics(self, timeout: float) -> Known:
        return self

    def committed(self, asked: Sequence[TopicPartition], timeout: float) -> list[TopicPartition]:
        found = [self._committed.get((each.topic, each.partition)) for each in asked]
        return [
            TopicPartition(each.topic, each.partition, -1001 if metadata is None else 5, metadata or "")
            for each, metadata in zip(asked, found, strict=True)
        ]


def starting_offsets(policy: str | None = "latest", default: Any = APP_DEFAULT) -> StartingOffsets:
    conf = {} if policy is None else {"auto.offset.reset": policy}
    return StartingOffsets("g", conf, default, cast("TopicIds", Ids()))


class Ids:
    """Of topics, as they are when the group begins."""

    def of(self, topics: Collection[str], deadline: Deadline) -> dict[str, str]:
        return dict.fromkeys(topics, "first")


#: As they are when it is asked.
IDS = dict.fromkeys(("orders", "orders-2", "bills", "again"), "first")


def look(made: StartingOffsets, known: Known, *topics: str) -> None:
    made.look(cast("Consumer", known), topics, Deadline(60.0))


def orders(*numbers: int) -> list[Partition]:
    return [Partition("orders", number) for number in numbers]


@pytest.mark.parametrize(
    ("policy", "default", "when"),
    [
        (None, APP_DEFAULT, EARLIEST),
        (None, LOOP_DEFAULT, LATEST),
        ("smallest", LOOP_DEFAULT, EARLIEST),
        ("largest", APP_DEFAULT, LATEST),
    ],
)
def test_a_new_group_begins_as_the_configuration_says_or_else_as_its_kind_does(
    policy: str | None, default: Any, when: int
) -> None:
    made = starting_offsets(policy, default)
    look(made, Known(orders=2), "orders")
    assert made.of(orders(0, 1), IDS) == {when: orders(0, 1)}


@pytest.mark.parametrize("topic", ["orders", "^ord.*", "^ord[[:alpha:]]+("])
def test_latest_is_meant_for_what_was_there_before_the_group_and_not_for_what_is_added(topic: str) -> None:
    made = starting_offsets()
    look(made, Known(orders=2), topic)
    assert made.of(orders(1, 2), IDS) == {EARLIEST: orders(2), LATEST: orders(1)}
    assert made.of([Partition("orders-2", 0)], IDS) == {EARLIEST: [Partition("orders-2", 0)]}


def test_partitions_that_were_added_while_nobody_was_there_are_read_from_their_first_record() -> None:
    made = starting_offsets()
    look(made, Known({("orders", 0): "holdfast:1:5:id"}, orders=2, bills=1), "orders", "bills")
    bills = Partition("bills", 0)
    assert made.of([*orders(1), bills], IDS) == {EARLIEST: orders(1), LATEST: [bills]}


def test_a_partition_in_which_a_plain_loop_has_met_nothing_is_not_new() -> None:
    made = starting_offsets()
    look(made, Known({("orders", 0): ""}, orders=2), "orders")
    assert made.of(orders(1), IDS) == {LATEST: orders(1)}


def test_a_topic_that_was_made_again_is_read_from_its_first_record() -> None:
    made = starting_offsets()
    look(made, Known(orders=1, bills=1), "orders", "bills")
    bills = Partition("bills", 0)
    assert made.of([*orders(0), bills], IDS | {"orders": "second"}) == {EARLIEST: orders(0), LATEST: [bills]}


def test_a_topic_that_is_subscribed_to_later_is_looked_at_then() -> None:
    made = starting_offsets()
    look(made, Known(orders=1), "orders")
    look(made, Known({("orders", 0): "holdfast:1:5:id"}, orders=2, bills=1), "orders", "bills")
    assert made.of([*orders(1), Partition("bills", 0)], IDS) == {EARLIEST: orders(1), LATEST: [Partition("bills", 0)]}


@pytest.mark.parametrize("topics", [["orders", "again"], ["^.*", "again"]])
def test_a_retry_topic_is_read_from_its_first_record_whatever_is_said_of_others(topics: list[str]) -> None:
    made, again = starting_offsets(), Partition("again", 0)
    made.read_from_first = frozenset({"again"})
    look(made, Known(orders=1, again=1), *topics)
    assert made.of([*orders(0), again], IDS) == {EARLIEST: [again], LATEST: orders(0)}
    nowhere = starting_offsets("error")
    nowhere.read_from_first = frozenset({"again"})
    assert nowhere.of([again], IDS) == {EARLIEST: [again]}


def test_where_it_may_not_choose_it_says_so() -> None:
    with pytest.raises(SourceError, match=r"auto\.offset\.reset=error forbids"):
        starting_offsets("error").of(orders(0), IDS)


@pytest.mark.parametrize(
    ("policy", "default", "said"),
    [
        (None, APP_DEFAULT, "at the first record (auto.offset.reset is not set, and this is holdfast's default"),
        (None, LOOP_DEFAULT, "at the end (auto.offset.reset is not set, and this is the client's default)"),
        ("earliest", LOOP_DEFAULT, "at the first record (auto.offset.reset=earliest)"),
    ],
)
def test_one_line_says_where_and_why_once_of_partitions_without_an_offset(
    policy: str | None, default: Any, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    group = starting_offsets(policy, default)
    look(group, Known(orders=2), "orders")
    for _ in range(2):  # asked again after an error
        group.of(orders(0, 1), IDS)
    [line] = caplog.messages
    assert "the group g has no offset in orders-[0-1]" in line
    assert said in line
