"""Who had what, where members contradict each other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import SettingError
from holdfast.plugin.assign.members import Claim, Subscriber, last_owners
from holdfast.records import Partition

P = Partition("t", 0)


def test_of_two_who_claim_a_partition_the_later_generation_has_it() -> None:
    assert last_owners([Claim("a", [P], 3), Claim("b", [P], 4), Claim("c", [P], 2)]) == {P: "b"}


def test_two_of_the_same_generation_both_lose_it() -> None:
    assert last_owners([Claim("a", [P], 3), Claim("b", [P], 3), Claim("c", [P], 2)]) == {}


def test_a_member_that_says_it_twice_says_it_once() -> None:
    assert last_owners([Claim("a", [P, P], 3)]) == {P: "a"}


@given(st.permutations([("a", 1), ("b", 2), ("c", 2), ("d", 3), ("e", 0)]))
def test_the_order_of_claims_says_nothing(said: list[tuple[str, int]]) -> None:
    assert last_owners([Claim(member, [P], generation) for member, generation in said]) == {P: "d"}


def test_a_member_without_a_name_or_a_weight_is_refused() -> None:
    with pytest.raises(SettingError, match="id"):
        Subscriber(id="", topics=frozenset())
    with pytest.raises(SettingError, match="weight"):
        Subscriber(id="a", topics=frozenset(), weight=0)
