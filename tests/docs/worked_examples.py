"""The examples that people learn assignment from, as plans and as the pictures of docs/explanation/assignment.md.

`python -m tests.docs.worked_examples` draws them anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.dedup.groups import GroupMember
from holdfast.plugin.assign.kafka import range_, round_robin
from holdfast.plugin.assign.members import Subscriber
from holdfast.plugin.assign.rocketmq import average, by_circle
from holdfast.plugin.assign.sticky import sticky
from holdfast.records import Partition
from holdfast.tools.movement import movement
from holdfast.tools.picture import Panel, before_and_after, draw, evenness

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.plugin.assign.members import Weighed

    Plan = Mapping[Partition, str]

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"


def topics(**sizes: int) -> list[Partition]:
    """Of Kafka: t0=4 is a topic of four partitions."""
    return [Partition(name, number) for name, size in sizes.items() for number in range(size)]


def queues(**sizes: int) -> list[Partition]:
    """The same of RocketMQ, at one broker."""
    return [each._replace(broker="broker-a") for each in topics(**sizes)]


def subscribed(**members: str) -> list[Subscriber]:
    """C0="t0 t1" is a member that wants these topics."""
    return [Subscriber(id=name, topics=frozenset(wanted.split())) for name, wanted in members.items()]


def consumers(count: int) -> list[GroupMember]:
    """Of RocketMQ: C1, C2 and so on."""
    return [GroupMember(f"C{number}", f"C{number}") for number in range(1, count + 1)]


ALIKE = subscribed(C0="t0 t1", C1="t0 t1")
FOURS, THREES = topics(t0=4, t1=4), topics(t0=3, t1=3)
#: Each wants one topic more than the one before.
DIFFERING = subscribed(C0="t0", C1="t0 t1", C2="t0 t1 t2")
GROWING = topics(t0=1, t1=2, t2=3)
#: Four topics of two, and three members of which C1 leaves.
TRIO = subscribed(C0="t0 t1 t2 t3", C1="t0 t1 t2 t3", C2="t0 t1 t2 t3")
PAIR = [TRIO[0], TRIO[2]]
TWOS = topics(t0=2, t1=2, t2=2, t3=2)
EIGHT = queues(orders=8)
SEVERAL = queues(t0=4, t1=4, t2=4, t3=4, t4=4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A picture, and what it shows in one line."""

    name: str
    caption: str
    svg: str


def beside(name: str, title: str, plans: Mapping[str, tuple[Plan, Sequence[Weighed]]]) -> Example:
    """Plans that have nothing to do with each other."""
    panels, words = [], []
    for said, (plan, members) in plans.items():
        note = evenness(movement({}, plan, had=(), has=members).after)
        panels.append(Panel(title=said, plan=plan, members=[member.id for member in members], note=note))
        words.append(f"{said}: {note}")
    return Example(name=name, caption=f"{title}. {'; '.join(words)}", svg=draw(panels, title=title))


def change(name: str, title: str, before: Plan, after: Plan, had: Sequence[Weighed], has: Sequence[Weighed]) -> Example:
    """One plan after the other."""
    found = movement(before, after, had=had, has=has)
    numbers = f"{len(found.moved)} of {found.stayed + len(found.moves)} move"
    if found.between_stayers:
        numbers += f", {len(found.between_stayers)} of them between members that stay"
    words = f"{title}: {numbers}; {evenness(found.before)} before, {evenness(found.after)} after"
    return Example(name=name, caption=words, svg=before_and_after(before, after, had=had, has=has, title=title))


def of_kafka() -> list[Example]:
    """Range, round robin and sticky."""
    differing = round_robin(DIFFERING, GROWING), sticky(DIFFERING, GROWING, {})
    turns = round_robin(TRIO, TWOS)
    left = DIFFERING[1:]
    return [
        beside(
            "range",
            "range: two members, two topics",
            {
                "of four partitions": (range_(ALIKE, FOURS), ALIKE),
                "of three partitions": (range_(ALIKE, THREES), ALIKE),
            },
        ),
        beside(
            "alike",
            "The same two topics of three partitions",
            {
                "roundrobin": (round_robin(ALIKE, THREES), ALIKE),
                "sticky": (sticky(ALIKE, THREES, {}), ALIKE),
            },
        ),
        beside(
            "differing",
            "C0 wants t0, C1 wants t0 and t1, C2 wants all three",
            {"roundrobin": (differing[0], DIFFERING), "sticky": (differing[1], DIFFERING)},
        ),
        change("leaves-roundrobin", "roundrobin: C1 leaves", turns, round_robin(PAIR, TWOS), TRIO, PAIR),
        change("leaves-sticky", "sticky: C1 leaves", turns, sticky(PAIR, TWOS, turns), TRIO, PAIR),
        change(
            "differing-leaves-roundrobin",
            "roundrobin: C0 leaves those who differ",
            differing[0],
            round_robin(left, GROWING),
            DIFFERING,
            left,
        ),
        change(
            "differing-leaves-sticky",
            "sticky: C0 leaves those who differ",
            differing[1],
            sticky(left, GROWING, differing[1]),
            DIFFERING,
            left,
        ),
    ]


def of_rocketmq() -> list[Example]:
    """AVG, AVG_BY_CIRCLE and sticky."""
    three, four, nine = consumers(3), consumers(4), consumers(9)
    found = []
    for name, title, strategy in (
        ("avg", "AVG", average),
        ("circle", "AVG_BY_CIRCLE", by_circle),
        ("sticky", "sticky", sticky),
    ):
        before = strategy(three, EIGHT, {})
        after = strategy(four, EIGHT, before)
        found.append(change(name, f"{title}: eight queues, a fourth consumer", before, after, three, four))
    found += [
        beside(
            "idle",
            "Eight queues, nine consumers",
            {"AVG": (average(nine, EIGHT, {}), nine), "sticky": (sticky(nine, EIGHT, {}), nine)},
        ),
        beside(
            "several-topics",
            "Five topics of four queues, three consumers",
            {
                "AVG": (average(three, SEVERAL, {}), three),
                "AVG_BY_CIRCLE": (by_circle(three, SEVERAL, {}), three),
                "sticky": (sticky(three, SEVERAL, {}), three),
            },
        ),
    ]
    return found


def main() -> None:
    """Draw all of them, and remove what is none any more."""
    PICTURES.mkdir(exist_ok=True)
    examples = [*of_kafka(), *of_rocketmq()]
    for old in {*PICTURES.glob("*.svg")} - {PICTURES / f"{example.name}.svg" for example in examples}:
        old.unlink()
    for example in examples:
        (PICTURES / f"{example.name}.svg").write_text(example.svg, encoding="utf-8")
        print(f"![{example.caption}](../pictures/{example.name}.svg)")


if __name__ == "__main__":
    main()
