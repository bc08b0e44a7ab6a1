"""What is kept of business keys beside Redis is bounded by its bytes: keys are anybody's."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING

from holdfast.dedup.claims import Claim, ClaimKey, Token, Verdict
from holdfast.dedup.redis_failover_replay import FailoverReplay
from holdfast.dedup.redis_layout import Layout
from holdfast.runtime import MACHINE

if TYPE_CHECKING:
    from collections.abc import Callable

LONG = 100_000


def grown(work: Callable[[int], object], times: int) -> int:
    tracemalloc.start()
    for number in range(times):
        work(number)
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return used


def claim(number: int) -> Claim:
    return Claim(ClaimKey("g/t", f"{number:08}" + "x" * LONG), Token("p", number, 1))


def test_long_keys_are_not_kept_for_their_digests() -> None:
    layout = Layout("n", 1, hash_keys=True)
    short, long = ClaimKey("g/t", "short"), claim(0).key
    assert layout.names_of([short, long]) == [*layout.names_of([short]), *layout.names_of([long])]
    assert grown(lambda number: layout.names_of([claim(number).key]), 200) < 1_000_000


def test_finished_keys_that_may_be_said_again_are_bounded_by_their_length() -> None:
    given = FailoverReplay(MACHINE, 3600.0, 10.0)
    assert grown(lambda number: given.finish([claim(number)], None, [Verdict.DONE]), 200) < 7_000_000
    _, finished = given.recent_ends()
    assert [each.claims[-1] for each in finished][-1] == claim(199)  # the latest are kept


def test_keys_that_were_given_back_are_bounded_by_their_length() -> None:
    given = FailoverReplay(MACHINE, 3600.0, 10.0)
    assert grown(lambda number: given.unclaim([claim(number)]), 200) < 7_000_000
    assert given.recent_calls()[1][-1] == claim(199)
    asked = given.asked_for([claim(199), claim(0)])
    assert list(asked.claims) == [claim(199)]
    assert claim(199) not in given.recent_calls()[1]
