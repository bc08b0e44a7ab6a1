"""Lag as rows: rates over a window, and words instead of a wrong 0."""

from __future__ import annotations

import math

import pytest

from holdfast.adapters.cli.lag_rates import Rate, Rates, Total, lines_of, names
from holdfast.records import Partition
from holdfast.tools.advice.group_view import GroupView, MemberView, Node, PartitionView

HERE = Partition("orders", 0)
NODE = Node("1", "localhost:9092")


def look(*partitions: PartitionView, members: tuple[MemberView, ...] = ()) -> GroupView:
    return GroupView(
        kind="kafka",
        group="billing",
        state="stable",
        protocol="classic",
        members=members,
        partitions={each.partition: each for each in partitions},
    )


def at(committed: int | None, end: int | None, first: int | None = 0, **more: object) -> PartitionView:
    return PartitionView(partition=HERE, committed=committed, first=first, end=end, **{"leader": NODE, **more})  # type: ignore[arg-type]


def member(name: str, client: str, host: str = "h", instance_id: str | None = None) -> MemberView:
    return MemberView(id=name, client_id=client, host=host, instance_id=instance_id, protocol="classic")


@pytest.mark.parametrize(
    ("view", "lag", "state", "said"),
    [
        (at(4, 10), 6, "known", ""),
        (at(10, 10), 0, "known", ""),
        (at(None, 10), None, "never_committed", "never committed; 10 in the log"),
        (at(None, 10, 10), 0, "never_committed", "never committed; the log is empty"),
        (at(2, 10, 5), 5, "known", "3 lost: the log begins at 5"),
        (at(11, 10), None, "beyond_end", "the offset is beyond the log's end"),
        (at(4, None, None, leader=None, fault="it has no leader now"), None, "no_leader", "it has no leader now"),
        (at(4, None, None, leader=None, exists=False, fault="no such topic"), None, "gone", "no such topic"),
        (at(10, 10, given_out=True), None, "given_out", "0 not delivered yet; messages in flight are not counted"),
        (at(4, None, None, fault="its leader does not answer"), None, "not_told", "its leader does not answer"),
    ],
)
def test_a_partitions_lag_is_right_or_not_there(view: PartitionView, lag: int | None, state: str, said: str) -> None:
    [line] = lines_of(look(view))
    assert (line.view.lag, line.state) == (lag, state)
    assert line.remark.startswith(said)
    assert line.as_json()["lag"] == lag
    assert line.wrong == (state not in ("known", "never_committed", "given_out") or view.lost > 0)
    assert Total.of([line]).text == ("unknown" if lag is None else str(lag))


def test_rates_are_over_the_window_and_begin_anew_where_an_offset_fell() -> None:
    rates = Rates()
    for second in range(0, 101, 10):
        rates.add(float(second), look(at(second * 5, second * 4 + 1000)))
    assert rates.of(HERE) == Rate(5.0, 4.0)
    assert rates.of(HERE).catch_up_s(50) == 50.0
    rates.add(110.0, look(at(7, 1440)))
    assert rates.of(HERE) == Rate(None, None)
    rates.add(120.0, look(at(107, 1440)))
    assert rates.of(HERE) == Rate(10.0, 0.0)
    rates.add(130.0, look(at(None, None)))
    assert rates.of(HERE) == Rate(None, None)


@pytest.mark.parametrize(
    ("rate", "lag", "left_s"),
    [
        (Rate(5.0, 5.0), 10, math.inf),
        (Rate(0.0, 0.0), 10, math.inf),
        (Rate(0.0, 9.0), 0, 0.0),
        (Rate(None, 1.0), 10, None),
        (Rate(2.0, 1.0), None, None),
    ],
)
def test_what_never_catches_up_is_told_from_what_is_not_known(
    rate: Rate, lag: int | None, left_s: float | None
) -> None:
    assert rate.catch_up_s(lag) == left_s


def test_members_are_called_by_the_shortest_name_that_is_theirs_alone() -> None:
    view = look(
        members=(
            member("a-1", "till", "h1"),
            member("a-2", "till", "h2"),
            member("a-3", "desk", "h1"),
            member("a-4", "rdkafka"),
            member("a-5", "rdkafka"),
            member("a-6", "rdkafka", instance_id="pod-0"),
        )
    )
    assert list(names(view).values()) == ["till at h1", "till at h2", "desk", "a-4", "a-5", "pod-0"]


def test_what_has_no_numbers_adds_no_0_to_a_sum() -> None:
    other = Partition("orders", 1)
    view = look(at(4, 10), PartitionView(partition=other, committed=None, first=0, end=5, leader=NODE))
    assert Total.of(lines_of(view)).text == "6, unknown in 1"
