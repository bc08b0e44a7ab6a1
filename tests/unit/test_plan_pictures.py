"""Pictures of plans: each box where it belongs, and nothing that breaks the page it is put on."""

from __future__ import annotations

import re
from collections import Counter
from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from holdfast.dedup.groups import GroupMember
from holdfast.records import Partition
from holdfast.tools.picture import Panel, before_and_after, draw

SVG = "{http://www.w3.org/2000/svg}"


def group(*ids: str) -> list[GroupMember]:
    return [GroupMember(member_id, member_id) for member_id in ids]


def read(svg: str) -> ET.Element:
    return ET.fromstring(svg)  # noqa: S314 - our own


def words(svg: str) -> list[str]:
    return [found.text or "" for found in read(svg).iter(f"{SVG}text")]


def boxes(svg: str) -> Counter[tuple[str, str]]:
    """(partition, how it is drawn), as often as they are there."""
    found: Counter[tuple[str, str]] = Counter()
    for box in read(svg).iter(f"{SVG}rect"):
        tip = box.find(f"{SVG}title")
        if tip is not None:
            goes = box.get("stroke-dasharray") is not None
            pale = (box.get("fill") or "")[1] in "cdef"
            found[tip.text or "", "goes" if goes else "stays" if pale else "comes"] += 1
    return found


A, B, C = (Partition("orders", number) for number in range(3))


def test_what_goes_and_what_comes_is_marked_and_the_rest_is_not() -> None:
    svg = before_and_after({A: "a", B: "b"}, {A: "a", B: "c", C: "c"}, had=group("a", "b"), has=group("a", "c"))
    assert boxes(svg) == Counter(
        {("orders-0", "stays"): 2, ("orders-1", "goes"): 1, ("orders-1", "comes"): 1, ("orders-2", "comes"): 1}
    )
    assert words(svg).count("not there") == 2  # c before, b after
    assert "1 of 3 move; 1 to 2 a member, even" in words(svg)


def test_who_has_nothing_is_called_idle() -> None:
    svg = before_and_after({A: "a"}, {A: "a"}, had=group("a"), has=group("a", "b"))
    assert "idle" in words(svg)


def test_names_are_shown_in_the_place_of_ids() -> None:
    svg = before_and_after({A: "0b6e"}, {A: "0b6e"}, had=(), has=group("0b6e"), names={"0b6e": "pod-1"})
    assert "pod-1" in words(svg)
    assert "0b6e" not in svg


def test_queues_of_one_number_at_two_brokers_are_told_apart() -> None:
    plan = {Partition("t", 0, "broker-a"): "a", Partition("t", 0, "broker-b"): "b"}
    assert {"t at broker-a", "t at broker-b"} <= {*words(draw([Panel(title="", plan=plan, members="ab")]))}


def test_of_many_members_those_are_shown_whose_partitions_move() -> None:
    ids = [f"m{number:03}" for number in range(300)]
    before = {Partition("t", number): ids[number % 300] for number in range(3000)}
    after = before | {Partition("t", 0): ids[299]}
    svg = before_and_after(before, after, had=group(*ids), has=group(*ids))
    assert {"m000", "m299", "and 261 more", "2610 partitions"} <= {*words(svg)}
    assert len([word for word in words(svg) if re.fullmatch(r"m\d{3}", word)]) == 39


def test_of_many_partitions_of_one_member_those_are_shown_that_move() -> None:
    before = {Partition("t", number): "a" for number in range(5000)}
    after = before | {Partition("t", 4999): "b"}
    svg = before_and_after(before, after, had=group("a", "b"), has=group("a", "b"))
    assert boxes(svg)["t-4999", "goes"] == 1
    assert len(svg) < 200_000


NAMES = st.text(max_size=60)
PLANS = st.dictionaries(st.builds(Partition, NAMES, st.integers(0, 10**6), NAMES), NAMES, max_size=20)


@given(before=PLANS, after=PLANS, title=NAMES)
def test_any_names_make_a_picture_that_a_browser_reads(
    before: dict[Partition, str], after: dict[Partition, str], title: str
) -> None:
    svg = before_and_after(before, after, had=(), has=(), title=title)
    root = read(svg)
    width, height = int(root.get("width", 0)), int(root.get("height", 0))
    for box in root.iter(f"{SVG}rect"):
        assert int(box.get("x", 0)) + int(box.get("width", 0)) <= width
        assert int(box.get("y", 0)) + int(box.get("height", 0)) <= height
    assert sum(boxes(svg).values()) == len(before) + len(after)


@given(before=PLANS, after=PLANS)
def test_the_same_plans_make_the_same_picture(before: dict[Partition, str], after: dict[Partition, str]) -> None:
    again = before_and_after(dict(reversed(before.items())), dict(reversed(after.items())), had=(), has=())
    assert again == before_and_after(before, after, had=(), has=())
