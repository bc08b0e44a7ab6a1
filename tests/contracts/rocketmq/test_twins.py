"""RocketMQ in memory is like RocketMQ: one script on the model and on a real broker, and both see the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contracts.rocketmq.twins import RocketStage, on_model, on_server

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.harness.servers.rocketmq import RocketMQServer
    from tests.harness.witness import Seen


def members_come_and_go(stage: RocketStage) -> Seen:
    one = stage.member("one")
    stage.clock.until_shared(2, one)
    two = stage.member("two")
    stage.clock.until_shared(2, one, two)
    stage.close(two)
    stage.clock.until_shared(2, one)
    return [one.story, two.story]


def a_hand_over_is_committed(stage: RocketStage) -> Seen:
    for number in range(2):
        stage.produce(number, 5)
    one = stage.member("one")
    stage.clock.until(lambda: one.at == {0: 5, 1: 5})
    one.on_revoked = lambda gone: one.commit({each.number: 3 for each in gone})
    two = stage.member("two")
    two.polls = False  # who has a queue is the store's to say, not the plan's: there is no store here
    stage.clock.until(lambda: one.fates)
    two.polls = True
    stage.clock.until_shared(2, one, two)
    [theirs] = two.has
    stage.clock.until(lambda: two.at.get(theirs) == 5)
    return [list(two.began.values()), list(two.read.values()), sorted(fate[1:] for fate in one.fates)]


def commits_of_anybody(stage: RocketStage) -> Seen:
    stage.produce(0, 5)
    seen: Seen = [stage.committed(0)]
    one = stage.member("one")
    stage.clock.until(lambda: one.at.get(0) == 5)
    seen += [one.known(0), one.began[0], stage.committed(0)]
    one.commit({0: 4})
    stage.clock.until(lambda: one.fates)
    seen += [one.fates[:], stage.committed(0), stage.commit(0, 1), stage.committed(0)]
    stage.clock.until(lambda: len(one.story) == 2)
    return [*seen, one.story, one.known(0), stage.commit(0, 90), stage.committed(0)]


def a_reset_while_nobody_runs(stage: RocketStage) -> Seen:
    stage.produce(0, 5)
    assert stage.commit(0, 5)
    stage.reset(0, 1)
    seen: Seen = [stage.committed(0), stage.commit(0, 4), stage.committed(0)]
    one = stage.member("one")
    stage.clock.until(lambda: one.at.get(0) == 5)
    one.commit({0: 3})
    stage.clock.until(lambda: one.fates)
    return [*seen, one.began[0], one.story, one.read[0], one.fates, stage.committed(0)]


def a_reset_while_it_reads(stage: RocketStage) -> Seen:
    stage.produce(0, 5)
    one = stage.member("one")
    stage.clock.until(lambda: one.at.get(0) == 5)
    stage.reset(0, 2)
    stage.produce(0, 1)  # a pull that waits at the broker hears of it now
    stage.clock.until(lambda: len(one.story) == 2)
    one.source.seek(one.partition(0), 2)
    stage.clock.until(lambda: one.at.get(0) == 6 and one.read[0].count(4) == 2)
    return [one.story, one.read[0][-4:], stage.committed(0)]


def a_position_beyond_the_log(stage: RocketStage) -> Seen:
    stage.produce(0, 5)
    stage.commit(0, 90)
    one = stage.member("one")
    stage.clock.until(lambda: len(one.story) == 2)
    return [one.began[0], one.story]


def a_topic_is_made_again(stage: RocketStage) -> Seen:
    stage.produce(0, 5)
    one = stage.member("one")
    stage.clock.until(lambda: one.at.get(0) == 5)
    one.commit({0: 5})
    stage.clock.until(lambda: one.fates)
    name = one.source.position_names([one.partition(0)], one.deadline())
    stage.make_again()
    stage.produce(0, 2)
    # That the group's offset has gone is seen by another look, sooner or later.
    stage.clock.until(lambda: "cut 0@0" in one.story)
    anew = one.source.position_names([one.partition(0)], one.deadline())
    return [name == anew, stage.committed(0)]


SCRIPTS = (
    members_come_and_go,
    a_hand_over_is_committed,
    commits_of_anybody,
    a_reset_while_nobody_runs,
    a_reset_while_it_reads,
    a_position_beyond_the_log,
    pytest.param(a_topic_is_made_again, marks=pytest.mark.full),  # a pull that waits for 20 s hears nothing of it
)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_the_model_is_like_the_server(rocketmq: RocketMQServer, script: Callable[[RocketStage], Seen]) -> None:
    queues = 2 if script in (members_come_and_go, a_hand_over_is_committed) else 1
    assert on_model(script, queues) == on_server(rocketmq, script, queues)
