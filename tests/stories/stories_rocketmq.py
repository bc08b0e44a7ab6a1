"""Stories that RocketMQ alone can tell: its servers go and come back, queues of several topics are shared as one."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tests.harness.group.story import story

if TYPE_CHECKING:
    from tests.harness.group.field import Field

_HOLDFAST = ("holdfast",)
_ROCKETMQ = ("rocketmq",)


@story(protocols=_ROCKETMQ)
def broker_restarts(field: Field) -> None:
    """The broker is stopped and started while the group is at work; afterwards one more member joins."""
    a, b = field.start("a"), field.start("b")
    field.flow(150)
    field.until_spread(a, b)
    field.rocketmq.stop_broker()
    field.rocketmq.start_broker()
    field.until_spread(a, b)
    c = field.start("c")
    field.until_spread(a, b, c)


@story(protocols=_ROCKETMQ)
def broker_is_killed(field: Field) -> None:
    """Kill -9 of the broker: what it says of offsets afterwards is some seconds old. Then a member leaves."""
    a, b = field.start("a"), field.start("b")
    field.flow(150)
    field.until_spread(a, b)
    field.until_handled(field.random.randrange(150, 600))
    field.rocketmq.kill_broker()
    field.rocketmq.start_broker()
    field.until_spread(a, b)
    field.stop(a)
    field.until_spread(b)


@story(protocols=_ROCKETMQ)
def name_server_restarts(field: Field) -> None:
    """The name server is away for a while: work goes on; it comes back knowing nothing, and a member joins."""
    a, b = field.start("a"), field.start("b")
    field.flow(150)
    field.until_spread(a, b)
    field.rocketmq.stop_name_server()
    field.until_handled(300)
    field.stop(b)
    field.until_spread(a)
    field.rocketmq.start_name_server()
    field.rocketmq.await_brokers()
    c = field.start("c")
    field.until_spread(a, c)


@story(config={"topics": ("{topic}", "{topic}-b", "{topic}-c")}, protocols=_ROCKETMQ, kinds=_HOLDFAST, partitions=7)
def several_topics(field: Field) -> None:
    """Topics of 7, 3 and 1 queues are shared as one: whoever comes or goes, members differ by one queue at most, and no
    more of them move than have to."""
    field.add_topic(f"{field.topic}-b", 3)
    field.add_topic(f"{field.topic}-c", 1)
    members = [field.start("a"), field.start("b")]
    field.flow()
    until_even(field)
    members.append(field.start("c"))
    until_even(field)
    members.append(field.start("d"))
    before, after = field.owners(), until_even(field)
    moved = [each for each in before if before[each] != after[each]]
    if len(moved) > len(before) // 4 + 1:
        raise field.error(f"{len(moved)} of {len(before)} queues moved for one member that joined")
    field.stop(members[0])
    until_even(field)


@story(protocols=_ROCKETMQ, kinds=_HOLDFAST, partitions=4, brokers=2)
def one_of_two_brokers_restarts(field: Field) -> None:
    """One of two brokers is stopped: the queues of the other go on, and are handed over; it comes back, and so do its
    queues, on which a member joins."""
    a, b = field.start("a"), field.start("b")
    field.flow(150)
    field.until_spread(a, b)
    field.rocketmq.stop_broker("broker-b")
    field.until_handled(300)
    field.stop(b)
    field.until_handled(150)
    field.rocketmq.start_broker("broker-b")
    field.until_spread(a)
    c = field.start("c")
    field.until_spread(a, c)


@story(protocols=_ROCKETMQ, kinds=_HOLDFAST, partitions=4, brokers=2)
def one_of_two_brokers_is_killed(field: Field) -> None:
    """Kill -9 of one of two brokers, and of a member while it is away: its offsets are some seconds old when it comes
    back, and the next owner of its queues was not the last."""
    a, b = field.start("a"), field.start("b")
    field.flow(150)
    field.until_spread(a, b)
    field.until_handled(field.random.randrange(150, 600))
    field.rocketmq.kill_broker("broker-b")
    field.until_handled(300)
    field.kill(b)
    field.until_handled(150)
    field.rocketmq.start_broker("broker-b")
    field.until_spread(a)


@story(protocols=_ROCKETMQ, kinds=_HOLDFAST, partitions=4, brokers=2)
def rolling_restart_on_two_brokers(field: Field) -> None:
    """One member after the other is replaced, each with queues on both brokers."""
    members = [field.start(each) for each in "abc"]
    field.flow()
    field.until_spread(*members)
    for number, each in enumerate("abc"):
        members[number] = field.relieve(each)
    field.until_spread(*members)


def until_even(field: Field) -> dict[tuple[str, int], int]:
    """Wait until those who live share the queues of all topics, none with two more than another; says who has what."""
    living = [each for each in field.members.values() if each.process.poll() is None]
    seen: dict[tuple[str, int], int] = {}

    def even() -> bool:
        field.until_spread(*living)
        seen.clear()
        seen.update(field.owners())
        counts = Counter(seen.values())
        return set(counts) == {each.pid for each in living} and max(counts.values()) - min(counts.values()) <= 1

    field.until(even, "queues are shared evenly over all topics")
    return seen
