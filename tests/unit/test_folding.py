"""What comes again and again is told once, and then now and then, with how often it came."""

from __future__ import annotations

from holdfast.plugin.folding import EVERY_S, Folding
from tests.harness.clocks import HandClock


def test_a_line_that_comes_again_is_told_once_in_a_while_with_how_often_it_came() -> None:
    clock = HandClock()
    folding = Folding(clock)
    assert folding.says("connect to a:1 failed after 3ms") == "connect to a:1 failed after 3ms"
    for number in range(5):
        assert folding.says(f"connect to a:1 failed after {number}ms") is None
    clock.sleep(EVERY_S)
    told = "connect to a:1 failed after 9ms (5 more like this since the last such line)"
    assert folding.says("connect to a:1 failed after 9ms") == told
    clock.sleep(EVERY_S)
    assert folding.says("connect to a:1 failed after 9ms") == "connect to a:1 failed after 9ms"


def test_lines_of_other_kinds_are_told_beside_it() -> None:
    folding = Folding(HandClock())
    assert folding.says("a is away") == "a is away"
    assert folding.says("b is away") == "b is away"
    assert folding.says("a is away") is None
    assert folding.says("orders-3 cannot be read; again in 0.2 s") is not None
    assert folding.says("orders-4 cannot be read; again in 0.2 s") is not None
    assert folding.says("orders-3 cannot be read; again in 5.0 s") is None


def test_what_names_ever_other_things_is_told_and_fills_no_memory() -> None:
    folding = Folding(HandClock())
    names = [chr(0x4E00 + number) for number in range(5_000)]
    assert [folding.says(name) for name in names] == names
    assert len(folding._logged) < 1_000
