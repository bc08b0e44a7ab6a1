"""A store that is open while it is down: what was brought to its end meanwhile is no one's when it answers again."""

from __future__ import annotations

from holdfast.dedup.claims import Acquired, Claim, ClaimKey, LetGo, Mark, Token, Verdict
from holdfast.dedup.memory import MemoryClaims
from holdfast.dedup.open import OpenClaims, OpenSession

KEY = Claim(ClaimKey("g/orders", "17"), Token("p", 0, 1))
OTHER = Claim(KEY.key, Token("q", 0, 1))


class NoTime:
    """A clock that stands still."""

    def now(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing waits")


def opened(store: MemoryClaims) -> OpenSession:
    claims = OpenClaims(store, went_down=lambda _: None, came_back=lambda _: None, clock=NoTime())
    return claims.begin(60.0)


def test_a_key_that_was_finished_while_the_store_was_down_is_done_when_it_is_back() -> None:
    store = MemoryClaims(renewals=False)
    one, two = opened(store), store.begin(60.0)
    assert one.claim([KEY]) == [Verdict.NEW]
    store.go_silent(hears=False)
    assert one.finish([KEY]) == [Verdict.DONE]
    store.speak_again()
    one.vouch(60.0)  # nothing else is asked of the store
    assert two.claim([OTHER]) == [Verdict.DONE]


def test_a_key_that_was_given_back_meanwhile_is_free() -> None:
    store = MemoryClaims(renewals=False)
    one, two = opened(store), store.begin(60.0)
    one.claim([KEY])
    store.go_silent(hears=False)
    one.unclaim([KEY])
    store.speak_again()
    one.poll([])
    assert two.claim([OTHER]) == [Verdict.NEW]


def test_a_partition_that_was_let_go_meanwhile_is_the_next_owners_with_all_that_was_marked() -> None:
    store = MemoryClaims(renewals=False)
    one, two = opened(store), store.begin(60.0)
    [mine] = one.acquire(["p"])
    assert isinstance(mine, Acquired)
    store.go_silent(hears=False)
    one.mark([Mark("p", mine.epoch, 2, [0, 1])])
    one.let_go([LetGo("p", mine.epoch, [])])
    store.speak_again()
    one.vouch(60.0)
    [theirs] = two.acquire(["p"])
    assert isinstance(theirs, Acquired)
    assert theirs.watermark == 2


def test_so_is_one_that_was_taken_over_without_an_answer() -> None:
    store = MemoryClaims(renewals=False)
    store.begin(60.0).acquire(["p"])
    for session_id in list(store.state.sessions):
        store.expire(session_id)
    one, two = opened(store), store.begin(60.0)
    store.go_silent(hears=True)
    [granted] = one.acquire(["p"])
    assert isinstance(granted, Acquired)
    store.speak_again()
    one.let_go([LetGo("p", granted.epoch, [])])
    assert isinstance(two.acquire(["p"])[0], Acquired)
