"""Stories of three Kafka brokers, of which one is away at a time: no member dies, so nothing may run twice."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tests.harness.group.story import story

if TYPE_CHECKING:
    from tests.harness.group.field import Field
    from tests.harness.group.outcome import Outcome

_HOLDFAST = ("holdfast",)
_THREE = 3


@story(brokers=_THREE, kinds=("holdfast", "loop", "careful"))
def coordinator_is_killed(field: Field) -> None:
    """Kill -9 of the broker that has the group: another takes the group over, a member joins, the broker comes back."""
    a, b = field.start("a"), field.start("b")
    field.flow()
    field.until_spread(a, b)
    field.until_handled(field.random.randrange(300, 1_200))
    dead = field.kafka.coordinator(field.group)
    field.kafka.kill_broker(dead)
    field.until_spread(a, b)
    c = field.start("c")
    field.until_spread(a, b, c)
    field.kafka.start_broker(dead)
    field.until_spread(a, b, c)


@story(brokers=_THREE, kinds=_HOLDFAST)
def coordinator_is_killed_as_a_member_leaves(field: Field) -> None:
    """The broker that has the group dies while a member hands its partitions over: what that could not commit the store
    knows."""
    a, b = field.start("a"), field.start("b")
    field.flow()
    field.until_spread(a, b)
    dead = field.kafka.coordinator(field.group)
    field.terminate(a)
    field.kafka.kill_broker(dead)
    field.until_ended(a)
    field.until_spread(b)
    field.kafka.start_broker(dead)
    c = field.start("c")
    field.until_spread(b, c)


@story(brokers=_THREE, kinds=("holdfast", "loop", "careful"))
def leader_is_killed(field: Field) -> None:
    """Kill -9 of the broker that leads most partitions, but for the group's: others lead them, then it again."""
    a, b = field.start("a"), field.start("b")
    field.flow()
    field.until_spread(a, b)
    leads, spared = Counter(field.kafka.leaders(field.topic).values()), field.kafka.coordinator(field.group)
    dead = max((each for each in leads if each != spared), key=lambda each: leads[each])
    field.kafka.kill_broker(dead)
    field.until_spread(a, b)
    field.kafka.start_broker(dead)
    field.kafka.elect_preferred(field.topic)
    field.until_spread(a, b)


@story(brokers=_THREE, kinds=("holdfast", "loop", "careful"))
def rolling_restart_of_brokers(field: Field) -> None:
    """All three are stopped and started, one after the other, as an operator does: the next one goes when no replica is
    behind. A member leaves and one comes meanwhile."""
    a, b = field.start("a"), field.start("b")
    field.flow()
    field.until_spread(a, b)
    for number in field.kafka.brokers:
        field.kafka.stop_broker(number)
        field.until_handled(100)
        field.kafka.start_broker(number)
        field.until_spread(a, b)
        if number == 1:
            field.stop(b)
            b = field.start("c")
            field.until_spread(a, b)


@story(brokers=_THREE, kinds=_HOLDFAST)
def partitions_are_reassigned(field: Field) -> None:
    """Replicas move from three brokers to two, then to others, each with other leaders, under load."""
    a, b = field.start("a"), field.start("b")
    field.flow()
    field.until_spread(a, b)
    for turn in range(2):
        brokers = [*field.kafka.brokers, *field.kafka.brokers]
        moved = {
            each: brokers[(each + turn) % _THREE : (each + turn) % _THREE + 2]
            for each in field.kafka.partitions(field.topic)
        }
        field.kafka.reassign(field.topic, moved)
        field.until_spread(a, b)


def _letters_for_all(outcome: Outcome) -> list[str]:
    letters, hopeless = sum(outcome.dead_letters.values()), len(outcome.given_up)
    return [] if letters == hopeless else [f"{letters} dead letters for {hopeless} orders that failed for good"]


@story(brokers=_THREE, kinds=_HOLDFAST, check=_letters_for_all, config={"attempts": 2})
def too_few_replicas_for_dead_letters(field: Field) -> None:
    """The dead letters' topic has two replicas, and takes nothing while one of them is away: what fails for good is
    neither committed nor forgotten, all else goes on, and then each letter is there once."""
    field.add_dead_letters()
    letters = field.dead_letters
    assert letters is not None
    a, b = field.start("a"), field.start("b")
    field.flow()
    field.until_spread(a, b)
    spared = field.kafka.coordinator(field.group)
    away = next(each for each in field.kafka.brokers if each != spared)
    field.kafka.reassign(letters, {0: [spared, away]})
    field.kafka.kill_broker(away)
    field.until(lambda: away not in field.kafka.in_sync(letters, 0), "a replica of the letters is away")
    hopeless = field.send_slow(1.0, fail_at=("*",), own_lane=True)
    field.until_started(hopeless)
    field.until_handled(1_000)
    if sum(field.ground.end_offsets(letters).values()):
        raise field.error("a dead letter was taken by one replica alone: nothing is shown")
    field.kafka.start_broker(away)
    field.until_dead_letters(len(hopeless))
    field.until_spread(a, b)
