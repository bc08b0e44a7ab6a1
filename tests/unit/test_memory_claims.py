"""A store in memory: what it keeps is bounded by what can still be asked for."""

from __future__ import annotations

from holdfast import MemoryClaims
from holdfast.dedup.claims import Claim, ClaimKey, Token, Verdict
from holdfast.runtime import Machine
from tests.harness.clocks import HandClock


def test_keys_whose_window_has_passed_are_not_kept_for_ever() -> None:
    clock = HandClock()
    claims = MemoryClaims(window_s=60.0, runtime=Machine(clock), renewals=False)
    session = claims.begin(3600.0)
    done = [Claim(ClaimKey("s", str(number)), Token("p", number, 1)) for number in range(20_000)]
    for at in range(0, len(done), 100):
        few = done[at : at + 100]
        session.claim(few)
        session.finish(few, ["x" * 100] * 100)
        clock.sleep(10.0)
    assert len(claims.state.keys) < 3_000
    assert session.claim(done[-500:]) == [Verdict.DONE] * 500  # those of the last minute


def test_keys_in_somebodys_hands_stay() -> None:
    clock = HandClock()
    claims = MemoryClaims(window_s=60.0, runtime=Machine(clock), renewals=False)
    session, other = claims.begin(86_400.0), claims.begin(86_400.0)
    held = Claim(ClaimKey("s", "held"), Token("p", 0, 1))
    session.claim([held])
    for number in range(5_000):
        claim = Claim(ClaimKey("s", str(number)), Token("p", number, 1))
        session.claim([claim])
        session.finish([claim])
        clock.sleep(1.0)
    assert other.claim([held]) == [Verdict.BUSY]
