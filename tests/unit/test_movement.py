"""What a plan moves, counted and put into words."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.dedup.groups import GroupMember
from holdfast.records import Partition
from holdfast.tools.movement import Move, movement

ORDERS = [Partition("orders", number) for number in range(6)]


def group(*ids: str) -> list[GroupMember]:
    return [GroupMember(member_id, member_id) for member_id in ids]


def runs(**sizes: int) -> dict[Partition, str]:
    """The first partitions of `orders` to the first member, and so on."""
    owners = [member for member, size in sizes.items() for _ in range(size)]
    return dict(zip(ORDERS, owners, strict=False))


class TestMoves:
    def test_it_says_what_moves_from_whom_to_whom_and_what_stays(self) -> None:
        found = movement(runs(a=3, b=3), runs(a=2, c=2, b=2), had=group("a", "b"), has=group("a", "b", "c"))
        assert found.moves == (Move(ORDERS[2], "a", "c"), Move(ORDERS[3], "b", "c"))
        assert found.flows == {("a", "c"): [ORDERS[2]], ("b", "c"): [ORDERS[3]]}
        assert (found.stayed, found.joined, found.left, found.between_stayers) == (4, ("c",), (), [])

    def test_partitions_that_come_or_go_are_no_moves_from_member_to_member(self) -> None:
        found = movement({ORDERS[0]: "a", ORDERS[1]: "a"}, {ORDERS[1]: "a", ORDERS[2]: "a"}, had=(), has=group("a"))
        assert found.moved == []
        assert found.begun == [Move(ORDERS[2], None, "a")]
        assert found.ended == [Move(ORDERS[0], "a", None)]

    def test_moves_between_those_who_stay_are_told_apart(self) -> None:
        before = runs(a=2, b=2, c=2)
        after = before | {ORDERS[0]: "b", ORDERS[1]: "c", ORDERS[3]: "c"}
        found = movement(before, after, had=group("a", "b", "c"), has=group("b", "c"))
        assert len(found.moved) == 3
        assert found.between_stayers == [Move(ORDERS[3], "b", "c")]


class TestEvenness:
    def test_a_member_with_nothing_counts(self) -> None:
        found = movement({}, runs(a=3, b=3), had=(), has=group("a", "b", "c"))
        assert found.after.sizes == {"a": 3, "b": 3, "c": 0}
        assert (found.after.idle, found.after.spread, found.after.even) == (["c"], 3, False)

    def test_one_apart_is_as_even_as_can_be(self) -> None:
        found = movement({}, runs(a=3, b=2), had=(), has=group("a", "b"))
        assert (found.after.spread, found.after.even) == (1, True)

    def test_weights_count(self) -> None:
        members = [GroupMember("a", "a", 2), GroupMember("b", "b", 1)]
        assert movement({}, runs(a=4, b=2), had=(), has=members).after.even
        assert not movement({}, runs(a=3, b=3), had=(), has=members).after.even

    def test_nobody_is_a_group_too(self) -> None:
        nothing = movement({}, {}, had=(), has=())
        assert (nothing.after.spread, nothing.after.even, nothing.moves) == (0, True, ())


PLANS = st.dictionaries(st.sampled_from(ORDERS), st.sampled_from("abc"))


class TestAnyPlans:
    @given(before=PLANS, after=PLANS)
    def test_each_partition_moves_stays_begins_or_ends(
        self, before: dict[Partition, str], after: dict[Partition, str]
    ) -> None:
        found = movement(before, after, had=(), has=())
        counts = len(found.moved) + len(found.begun) + len(found.ended) + found.stayed
        assert counts == len(before.keys() | after.keys())
        assert sorted(partition for flow in found.flows.values() for partition in flow) == sorted(
            move.partition for move in found.moves
        )
        again = {partition: owner for partition, owner in before.items() if owner == after.get(partition)}
        again |= {move.partition: move.target for move in found.moves if move.target is not None}
        assert again == after

    @given(before=PLANS, after=PLANS)
    def test_the_order_of_what_is_given_does_not_matter(
        self, before: dict[Partition, str], after: dict[Partition, str]
    ) -> None:
        backwards = movement(dict(reversed(before.items())), dict(reversed(after.items())), had=(), has=())
        assert backwards.describe() == movement(before, after, had=(), has=()).describe()


class TestWords:
    def test_a_join_is_told(self) -> None:
        found = movement(runs(a=3, b=3), runs(a=2, c=2, b=2), had=group("a", "b"), has=group("a", "b", "c"))
        assert found.describe({"c": "pod-3"}).splitlines() == [
            "2 of 6 partitions move, 4 stay",
            "pod-3 joins",
            "  from a to pod-3: 1 (orders-2)",
            "  from b to pod-3: 1 (orders-3)",
            "before: 2 members have 3 partitions each (a 3, b 3): as even as can be",
            "after: 3 members have 2 partitions each (a 2, b 2, pod-3 2): as even as can be",
        ]

    def test_what_is_uneven_idle_new_and_gone_is_told(self) -> None:
        found = movement(
            runs(a=2, b=2), {ORDERS[0]: "b", ORDERS[4]: "b"}, had=group("a", "b"), has=group("b", "c", "d")
        )
        assert found.describe().splitlines() == [
            "1 of 5 partitions moves, 1 had nobody before, 3 have nobody now, 0 stay",
            "c, d join",
            "a leaves",
            "  from b to nobody: 2 (orders-2, orders-3)",
            "  from nobody to b: 1 (orders-4)",
            "  from a to nobody: 1 (orders-1)",
            "  from a to b: 1 (orders-0)",
            "before: 2 members have 2 partitions each (a 2, b 2): as even as can be",
            "after: 3 members have 0 to 2 partitions (b 2, c 0, d 0), 2 of them idle: 2 apart",
        ]

    def test_weights_are_told_beside_what_members_have(self) -> None:
        members = [GroupMember("a", "a", 2), GroupMember("b", "b", 1)]
        words = movement({}, runs(a=4, b=2), had=(), has=members).after.describe()
        assert words == "2 members have 2 to 4 partitions (a 4 of 4, b 2 of 2): as even as can be"

    def test_a_large_group_is_told_in_few_words(self) -> None:
        size = 200
        ids = [f"m{number:03}" for number in range(size)]
        before = {Partition("t", number): ids[number % size] for number in range(size * 10)}
        after = {Partition("t", number): ids[number // 10] for number in range(size * 10)}
        words = movement(before, after, had=group(*ids), has=group(*ids)).describe()
        assert len(words.splitlines()) < 15
        assert max(map(len, words.splitlines())) < 200
        assert "(m000 10, m001 10, m002 10, m003 10, 193 more, m197 10, m198 10, m199 10): as even" in words

    def test_of_a_large_group_who_has_most_and_who_has_least_are_told(self) -> None:
        ids = [f"m{number:02}" for number in range(20)]
        plan = {Partition("t", number): ids[min(number, 12)] for number in range(30)}
        words = movement({}, plan, had=(), has=group(*ids)).after.describe()
        assert words == (
            "20 members have 0 to 18 partitions (m12 18, m00 1, m01 1, m02 1, 13 more, m17 0, m18 0, m19 0), "
            "7 of them idle: 18 apart"
        )
