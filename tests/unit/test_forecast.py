"""What a rebalance would make of a group, and what such a forecast is worth."""

from __future__ import annotations

import pytest

from holdfast.errors import SettingError
from holdfast.plugin.assign.members import Subscriber
from holdfast.records import Partition
from holdfast.tools.advice.forecast import (
    ESTIMATE,
    EXACT,
    NUMBERS,
    Change,
    Group,
    assigned,
    forecast,
    next_names,
    usual_topics,
)
from holdfast.tools.advice.vote import vote

ORDERS = frozenset({"orders"})
BOTH = frozenset({"orders", "payments"})


def group(assignor: str = "range", *, members: int = 2, protocol: str = "classic", kind: str = "kafka") -> Group:
    made = Group(
        kind=kind,  # type: ignore[arg-type]
        protocol=protocol,  # type: ignore[arg-type]
        assignor=assignor,
        members=tuple(Subscriber(id=f"m{number}", topics=ORDERS) for number in range(members)),
        partitions=tuple(Partition("orders", number) for number in range(6)),
    )
    return made.with_owners(assigned(made))


def joins(name: str, topics: frozenset[str] = ORDERS) -> Change:
    return Change(join=(Subscriber(id=name, topics=topics),))


def test_without_a_change_nothing_moves_and_an_eager_group_stops_all_the_same() -> None:
    made = forecast(group(), Change())
    assert not made.movement.moves
    assert made.paused == 6


@pytest.mark.parametrize(
    ("assignor", "protocol", "kind", "worth", "paused"),
    [
        ("range", "classic", "kafka", EXACT, 6),
        ("sticky", "classic", "kafka", NUMBERS, 6),
        ("cooperative-sticky", "classic", "kafka", NUMBERS, 2),
        ("uniform", "consumer", "kafka", NUMBERS, 2),
        ("range", "consumer", "kafka", ESTIMATE, 3),
        ("AVG", "remoting", "rocketmq", EXACT, 0),
        ("sticky", "holdfast", "rocketmq", NUMBERS, 2),
    ],
)
def test_a_forecast_says_what_it_is_worth_and_what_stops(
    assignor: str, protocol: str, kind: str, worth: str, paused: int
) -> None:
    made = forecast(group(assignor, protocol=protocol, kind=kind), joins("m2"))
    assert made.worth == worth
    assert made.paused == paused
    assert [made.movement.after.sizes[name] for name in ("m0", "m1", "m2")] == [2, 2, 2]


def test_who_reads_other_topics_makes_of_a_sticky_forecast_an_estimate() -> None:
    assert forecast(group("sticky"), joins("m2", BOTH)).worth == ESTIMATE


def test_a_group_that_is_not_what_its_assignor_makes_says_so() -> None:
    odd = group().with_owners({Partition("orders", number): "m1" for number in range(6)})
    made = forecast(odd, Change())
    assert any("range would not assign the partitions as they are" in note for note in made.notes)
    assert len(made.movement.moved) == 3


def test_the_last_member_leaves_and_a_topic_grows() -> None:
    made = forecast(group(), Change(leave=frozenset({"m0", "m1"})))
    assert len(made.movement.ended) == 6
    made = forecast(group(), Change(grow={"orders": 8}))
    assert len(made.movement.begun) == 2


@pytest.mark.parametrize(
    "change",
    [
        Change(leave=frozenset({"m9"})),
        joins("m0"),
        Change(grow={"orders": 6}),
        Change(grow={"others": 6}),
        Change(assignor="best"),
    ],
)
def test_what_cannot_be_is_refused(change: Change) -> None:
    with pytest.raises(SettingError):
        forecast(group(), change)


def test_new_members_are_called_as_the_old_ones_go_on() -> None:
    assert next_names(["till-1", "till-9"], 2) == ["till-10", "till-11"]
    assert next_names(["till-1", "desk-2"], 1) == next_names(["till"], 1) == next_names([], 1) == ["joining-1"]


def test_who_joins_reads_what_most_read() -> None:
    members = [Subscriber(id=name, topics=topics) for name, topics in (("a", ORDERS), ("b", BOTH), ("c", BOTH))]
    assert usual_topics(members) == BOTH


def test_the_vote_counts_favourites_among_what_all_know() -> None:
    found = vote({"a": ["sticky", "range"], "b": ["range"], "c": ["cooperative-sticky", "range"]})
    assert found.winner == "range"
    assert found.lacking == {"cooperative-sticky": ["a", "b"], "sticky": ["b", "c"]}
    assert vote({"a": ["roundrobin", "range"], "b": ["range", "roundrobin"]}).winner == "range"
    assert vote({"a": ["range"], "b": ["sticky"]}).winner is None
    assert vote({}).winner is None
    assert "refuses the member that joins last" in vote({"a": ["range"], "b": ["sticky"]}).describe()
