"""The worked examples of docs/explanation/assignment.md: each result, and that the page shows it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.dedup.groups import GroupMember
from holdfast.plugin.assign.kafka import range_, round_robin
from holdfast.plugin.assign.rocketmq import average, by_circle
from holdfast.plugin.assign.sticky import sticky
from holdfast.tools.movement import movement
from tests.docs.worked_examples import (
    ALIKE,
    DIFFERING,
    EIGHT,
    FOURS,
    GROWING,
    PAIR,
    PICTURES,
    SEVERAL,
    THREES,
    TRIO,
    TWOS,
    Example,
    consumers,
    of_kafka,
    of_rocketmq,
    queues,
)
from tests.golden import kafka, rocketmq

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.dedup.groups import Strategy
    from holdfast.plugin.assign.members import Subscriber, Weighed
    from holdfast.records import Partition
    from holdfast.tools.movement import Movement
    from tests.golden.oracle import Oracle

    Plan = Mapping[Partition, str]


def said(plan: Plan) -> dict[str, str]:
    """Such as {"C0": "t0-0 t0-1"}."""
    has = defaultdict(list)
    for partition in sorted(plan):
        has[plan[partition]].append(f"{partition.topic}-{partition.number}")
    return {member: " ".join(partitions) for member, partitions in sorted(has.items())}


def sizes(plan: Plan, members: Sequence[Weighed]) -> list[int]:
    return [[*plan.values()].count(member.id) for member in members]


class TestRange:
    @pytest.fixture
    def java(self, kafka_assignors: Oracle) -> Oracle:
        return kafka_assignors

    def test_two_topics_of_four_are_shared_evenly_by_two_members(self, java: Oracle) -> None:
        plan = range_(ALIKE, FOURS)
        assert said(plan) == {"C0": "t0-0 t0-1 t1-0 t1-1", "C1": "t0-2 t0-3 t1-2 t1-3"}
        assert plan == kafka.ask(java, "range", ALIKE, FOURS).plan

    def test_of_two_topics_of_three_the_first_member_ends_up_with_twice_as_much(self, java: Oracle) -> None:
        plan = range_(ALIKE, THREES)
        assert said(plan) == {"C0": "t0-0 t0-1 t1-0 t1-1", "C1": "t0-2 t1-2"}
        assert plan == kafka.ask(java, "range", ALIKE, THREES).plan


class TestRoundRobin:
    def test_it_is_even_where_all_want_the_same(self, kafka_assignors: Oracle) -> None:
        plan = round_robin(ALIKE, THREES)
        assert said(plan) == {"C0": "t0-0 t0-2 t1-1", "C1": "t0-1 t1-0 t1-2"}
        assert plan == kafka.ask(kafka_assignors, "roundrobin", ALIKE, THREES).plan

    def test_it_is_uneven_where_subscriptions_differ(self, kafka_assignors: Oracle) -> None:
        plan = round_robin(DIFFERING, GROWING)
        assert said(plan) == {"C0": "t0-0", "C1": "t1-0", "C2": "t1-1 t2-0 t2-1 t2-2"}
        assert plan == kafka.ask(kafka_assignors, "roundrobin", DIFFERING, GROWING).plan

    def test_when_one_of_three_leaves_partitions_move_between_those_who_stay(self, kafka_assignors: Oracle) -> None:
        before, after = round_robin(TRIO, TWOS), round_robin(PAIR, TWOS)
        assert said(before) == {"C0": "t0-0 t1-1 t3-0", "C1": "t0-1 t2-0 t3-1", "C2": "t1-0 t2-1"}
        assert said(after) == {"C0": "t0-0 t1-0 t2-0 t3-0", "C2": "t0-1 t1-1 t2-1 t3-1"}
        moved = movement(before, after, had=TRIO, has=PAIR)
        assert (len(moved.moved), len(moved.between_stayers)) == (5, 2)
        assert after == kafka.ask(kafka_assignors, "roundrobin", PAIR, TWOS).plan


class TestSticky:
    def test_it_is_as_even_as_subscriptions_that_differ_allow(self) -> None:
        assert said(sticky(DIFFERING, GROWING, {})) == {"C0": "t0-0", "C1": "t1-0 t1-1", "C2": "t2-0 t2-1 t2-2"}

    def test_it_is_even_where_all_want_the_same(self) -> None:
        assert sizes(sticky(ALIKE, THREES, {}), ALIKE) == [3, 3]

    def test_when_one_of_three_leaves_what_others_have_stays(self, kafka_assignors: Oracle) -> None:
        before = round_robin(TRIO, TWOS)
        after = sticky(PAIR, TWOS, before)
        assert sizes(after, PAIR) == [4, 4]
        assert {partition for partition in TWOS if before[partition] != after[partition]} == {
            partition for partition in TWOS if before[partition] == "C1"
        }
        self.no_worse_than_java(kafka_assignors, before, TRIO, PAIR, TWOS)

    def test_when_one_leaves_of_those_who_differ_what_others_have_stays(self, kafka_assignors: Oracle) -> None:
        before = sticky(DIFFERING, GROWING, {})
        after = sticky(DIFFERING[1:], GROWING, before)
        assert said(after) == {"C1": "t0-0 t1-0 t1-1", "C2": "t2-0 t2-1 t2-2"}
        self.no_worse_than_java(kafka_assignors, before, DIFFERING, DIFFERING[1:], GROWING)

    def no_worse_than_java(
        self,
        oracle: Oracle,
        before: Plan,
        had: Sequence[Subscriber],
        has: Sequence[Subscriber],
        partitions: list[Partition],
    ) -> None:
        theirs = kafka.ask(oracle, "sticky", has, partitions, kafka.owned_in(before, 1)).plan
        ours = sticky(has, partitions, before)

        def rank(plan: Plan) -> tuple[float, int]:
            found = movement(before, plan, had=had, has=has)
            return found.after.spread, len(found.moved)

        assert rank(ours) <= rank(theirs)


class TestRocketMQ:
    def joined(self, strategy: Strategy, oracle: Oracle | None = None) -> Movement:
        """A fourth consumer beside three, and eight queues."""
        three, four = consumers(3), consumers(4)
        before = strategy(three, EIGHT, {})
        after = strategy(four, EIGHT, before)
        if oracle is not None:
            assert before == rocketmq.ask(oracle, strategy, ["C1", "C2", "C3"], EIGHT).plan
            assert after == rocketmq.ask(oracle, strategy, ["C1", "C2", "C3", "C4"], EIGHT).plan
        return movement(before, after, had=three, has=four)

    def numbers(self, strategy: Strategy, count: int) -> list[list[int]]:
        plan = strategy(consumers(count), EIGHT, {})
        return [sorted(queue.number for queue in EIGHT if plan[queue] == each.id) for each in consumers(count)]

    def test_average_gives_runs_of_eight_queues_to_three_and_to_four(self, rocketmq_strategies: Oracle) -> None:
        assert self.numbers(average, 3) == [[0, 1, 2], [3, 4, 5], [6, 7]]
        assert self.numbers(average, 4) == [[0, 1], [2, 3], [4, 5], [6, 7]]
        assert len(self.joined(average, rocketmq_strategies).moved) == 5

    def test_by_circle_deals_eight_queues_to_three_and_to_four(self, rocketmq_strategies: Oracle) -> None:
        assert self.numbers(by_circle, 3) == [[0, 3, 6], [1, 4, 7], [2, 5]]
        assert self.numbers(by_circle, 4) == [[0, 4], [1, 5], [2, 6], [3, 7]]
        assert len(self.joined(by_circle, rocketmq_strategies).moved) == 5

    def test_sticky_moves_to_a_fourth_consumer_what_is_its_share_and_nothing_else(self) -> None:
        found = self.joined(sticky)
        assert (len(found.moved), found.between_stayers, found.after.spread) == (2, [], 0)

    @pytest.mark.parametrize("strategy", [average, by_circle, sticky])
    def test_a_consumer_beyond_the_number_of_queues_is_idle(self, strategy: Strategy) -> None:
        nine = consumers(9)
        before = strategy(nine[:8], EIGHT, {})
        found = movement(before, strategy(nine, EIGHT, before), had=nine[:8], has=nine)
        assert (found.after.idle, len(found.moved)) == (["C9"], 0)

    @pytest.mark.parametrize("strategy", [average, by_circle])
    def test_several_topics_pile_up_on_the_first_consumers(
        self, strategy: Strategy, rocketmq_strategies: Oracle
    ) -> None:
        three = consumers(3)
        plan = strategy(three, SEVERAL, {})
        assert sizes(plan, three) == [10, 5, 5]
        assert plan == rocketmq.ask(rocketmq_strategies, strategy, ["C1", "C2", "C3"], SEVERAL).plan
        single = queues(t0=1, t1=1, t2=1, t3=1)
        assert sizes(strategy(three, single, {}), three) == [4, 0, 0]

    def test_sticky_is_even_over_all_topics(self) -> None:
        three = consumers(3)
        assert sizes(sticky(three, SEVERAL, {}), three) == [7, 7, 6]
        assert sizes(sticky(three, queues(t0=1, t1=1, t2=1, t3=1), {}), three) == [2, 1, 1]

    def test_a_member_of_twice_the_weight_gets_twice_as_many(self) -> None:
        members = [GroupMember("C1", "C1", 2), GroupMember("C2", "C2"), GroupMember("C3", "C3")]
        assert sizes(sticky(members, EIGHT, {}), members) == [4, 2, 2]


ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explanation" / "assignment.md").read_text(encoding="utf-8")
EXAMPLES = [*of_kafka(), *of_rocketmq()]
ANEW = "draw them anew: python -m tests.docs.worked_examples, which prints their captions too"


class TestThePage:
    @pytest.mark.parametrize("example", EXAMPLES, ids=[example.name for example in EXAMPLES])
    def test_a_picture_is_what_the_strategies_come_to_now(self, example: Example) -> None:
        assert (PICTURES / f"{example.name}.svg").read_text(encoding="utf-8") == example.svg, ANEW

    @pytest.mark.parametrize("example", EXAMPLES, ids=[example.name for example in EXAMPLES])
    def test_a_picture_is_shown_with_its_figures_in_words(self, example: Example) -> None:
        assert f"![{example.caption}](../pictures/{example.name}.svg)" in PAGE, ANEW

    def test_no_picture_is_left_over(self) -> None:
        assert {found.stem for found in PICTURES.glob("*.svg")} == {example.name for example in EXAMPLES}, ANEW

    @pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
    def test_an_example_is_accepted_as_it_stands_and_prints_what_the_page_says(self, code: str) -> None:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", code],
            check=True,
            cwd=ROOT,
            timeout=60,
            capture_output=True,
            text=True,
        )
        assert not done.stdout or f"```text\n{done.stdout}```" in PAGE
