"""Kafka in memory is like Kafka: one script on the model and on a real broker, and both see the same.

What is compared is what an engine is told: what comes and goes, in which order; where a partition begins; what becomes
of a commit; what was read, and up to where. Not compared: times, and which member gets which of the partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.contracts.kafka.twins import KafkaStage, on_model, on_server

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.harness.servers.kafka import KafkaServer
    from tests.harness.witness import Seen


def members_come_and_go(stage: KafkaStage) -> Seen:
    one = stage.member("one")
    stage.clock.until_shared(4, one)
    two = stage.member("two")
    stage.clock.until_shared(4, one, two)
    stage.clock.go_on()
    stage.close(two)
    stage.clock.until_shared(4, one)
    return [one.story, two.story]


def a_hand_over_is_committed(stage: KafkaStage) -> Seen:
    for number in range(2):
        stage.produce(number, 5)
    one = stage.member("one")
    stage.clock.until(lambda: one.at == {0: 5, 1: 5})
    one.on_revoked = lambda gone: one.commit({each.number: 3 for each in gone})
    two = stage.member("two")
    stage.clock.until_shared(2, one, two)
    stage.clock.go_on(0.5)
    [theirs] = two.has
    return [two.began == {theirs: 3}, two.read == {theirs: [3, 4]}, sorted(fate[1:] for fate in one.fates)[-1:]]


def one_that_was_put_out(stage: KafkaStage) -> Seen:
    stage.produce(0, 5)
    one = stage.member("one")
    stage.clock.until(lambda: one.at.get(0) == 5)
    stage.put_out(one)
    one.commit({0: 4})
    stage.clock.until(lambda: one.fates)
    refused: Seen = [list(one.fates), stage.committed(0)]
    stage.clock.until(lambda: len(one.story) == 3)
    one.commit({0: 5})
    stage.clock.until(lambda: len(one.fates) == 2)
    return [*refused, one.story, one.fates, stage.committed(0)]


def commits_of_all_kinds(stage: KafkaStage) -> Seen:
    one = stage.member("one")
    stage.clock.until_shared(2, one)
    two = stage.member("two")
    stage.clock.until_shared(2, one, two)
    stage.clock.go_on(0.5)
    [mine], [theirs] = one.has, two.has
    return [
        stage.commit_as(one, mine, 7),
        stage.commit_as(one, theirs, 5),
        stage.commit_as(one, mine, 6),
        [stage.committed(mine), stage.committed(theirs)],
        stage.commit_as(one, mine, 1, epoch=-1),
        stage.commit_as(one, theirs, 1, epoch=-1),
        stage.commit_as(two, theirs, 1, epoch=-1),
        stage.commit_as(one, mine, 2, epoch=1),
        stage.commit_as(one, mine, 3, known=False),
        [stage.committed(mine), stage.committed(theirs)],
    ]


def commits_while_the_group_moves(stage: KafkaStage) -> Seen:
    """Of a member that does not poll, and hence has not given up yet what it should."""
    one = stage.member("one")
    stage.clock.until_shared(2, one)
    one.polls = False
    stage.member("two")
    stage.clock.go_on(1.5)
    seen: Seen = [stage.commit_as(one, 0, 7)]
    one.commit({1: 7})
    one.polls = True
    stage.clock.until(lambda: one.fates)
    return [*seen, one.fates, stage.committed(0), stage.committed(1)]


def what_is_committed_is_read_back(stage: KafkaStage) -> Seen:
    stage.produce(0, 5)
    one = stage.member("one")
    stage.clock.until(lambda: one.at.get(0) == 5)
    seen: Seen = [one.known(0), one.began[0]]
    one.commit({0: 2})
    stage.clock.until(lambda: one.fates)
    seen += [one.known(0), stage.reset(0, 1), stage.committed(0)]
    stage.close(one)
    seen += [stage.reset(0, 1)]
    again = stage.member("two")
    stage.clock.until(lambda: again.at.get(0) == 5)
    return [*seen, again.began[0], again.known(0), again.read[0]]


def offsets_without_a_record(stage: KafkaStage) -> Seen:
    stage.produce(0, 3)
    stage.abort(0, 2)
    one = stage.member("one")
    stage.clock.until(lambda: one.at.get(0) == 6)
    seen: Seen = [one.read[0][:], one.source.last_offsets([one.partition(0)], one.deadline())[one.partition(0)]]
    stage.produce(0, 2)
    stage.abort(0, 1)
    stage.clock.until(lambda: one.at.get(0) == 10)
    return [*seen, one.read]


def positions_outside_the_log(stage: KafkaStage) -> Seen:
    stage.produce(0, 6)
    stage.expire(0, 4)
    seen: Seen = []
    for outside in (2, 90):
        assert stage.reset(0, outside)
        one = stage.member("one")
        stage.clock.until(lambda: one.at.get(0) == 6)  # noqa: B023 - asked at once
        seen += [one.began, one.read, one.source.first_offsets([one.partition(0)], one.deadline())[one.partition(0)]]
        stage.close(one)
    return seen


def partitions_are_added(stage: KafkaStage) -> Seen:
    one = stage.member("one")
    stage.clock.until_shared(2, one)
    stage.grow(4)
    stage.clock.until_shared(4, one)
    stage.produce(3, 2)
    stage.clock.until(lambda: one.at.get(3) == 2)
    return [one.story, one.began]


def a_topic_is_made_again(stage: KafkaStage) -> Seen:
    stage.produce(0, 3)
    one = stage.member("one")
    stage.clock.until(lambda: one.at.get(0) == 3)
    one.commit({0: 3})
    stage.clock.until(lambda: one.fates)
    name = one.source.position_names([one.partition(0)], one.deadline())
    stage.delete()
    stage.clock.until(lambda: not one.has)
    stage.clock.go_on(0.5)
    story = list(one.story)
    stage.make_again(2)
    stage.produce(0, 2)
    stage.clock.until_shared(2, one)
    stage.clock.until(lambda: one.at.get(0) == 2)
    anew = one.source.position_names([one.partition(0)], one.deadline())
    return [story, one.story, name != anew, one.known(0), one.began, one.read[0][3:]]


def a_static_member_restarts(stage: KafkaStage) -> Seen:
    one, two = stage.member("one", static_id="a"), stage.member("two", static_id="b")
    stage.clock.until_shared(2, one, two)
    stage.clock.go_on(0.5)
    had, told = set(two.has), list(one.story)
    stage.close(two)
    stage.clock.go_on(1.0)
    again = stage.member("two", static_id="b")
    stage.clock.until(lambda: again.has)
    stage.clock.go_on(1.0)
    seen: Seen = [again.has == had, one.story == told, again.story]
    stage.close(again, leave=True)
    stage.clock.until_shared(2, one)
    return [*seen, one.story[len(told) :]]


def two_with_one_name(stage: KafkaStage) -> Seen:
    one = stage.member("one", static_id="a")
    stage.clock.until_shared(2, one)
    newer = stage.member("newer", static_id="a")
    stage.clock.until(lambda: one.errors or newer.errors)
    stage.clock.go_on(0.5)
    return [one.errors[:1], newer.errors[:1], len(one.has), len(newer.has)]


SCRIPTS = (
    members_come_and_go,
    a_hand_over_is_committed,
    one_that_was_put_out,
    commits_of_all_kinds,
    commits_while_the_group_moves,
    what_is_committed_is_read_back,
    offsets_without_a_record,
    positions_outside_the_log,
    partitions_are_added,
    a_topic_is_made_again,
    a_static_member_restarts,
    two_with_one_name,
)


@pytest.fixture(params=["eager", "cooperative", "consumer"])
def protocol(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_the_model_is_like_the_server(kafka: KafkaServer, protocol: Any, script: Callable[[KafkaStage], Seen]) -> None:
    partitions = 4 if script is members_come_and_go else 2
    assert on_model(protocol, script, partitions) == on_server(kafka, protocol, script, partitions)
