"""A store that is open while it is down: what was brought to its end meanwhile is no one's when it answers again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.dedup.claims import Acquired, Claim, ClaimKey, LetGo, Mark, Token, Verdict
from holdfast.dedup.memory import MemoryClaims
from holdfast.dedup.memory_session import MemorySession
from holdfast.dedup.open import OpenClaims, OpenSession
from holdfast.runtime import Machine
from tests.harness.clocks import HandClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.runtime import Thread

KEY = Claim(ClaimKey("g/orders", "17"), Token("p", 0, 1))
OTHER = Claim(KEY.key, Token("q", 0, 1))


class Looks(Machine):
    """Time that a test sets. What is spawned runs at once, unless it is held."""

    def __init__(self) -> None:
        self.clock = HandClock()
        super().__init__(self.clock)
        self.held: list[Callable[[], None]] | None = None

    def spawn(self, target: Callable[[], None], name: str) -> Thread:
        if self.held is None:
            target()
        else:
            self.held.append(target)
        return self.current()


def back(store: MemoryClaims, looks: Looks, session: OpenSession) -> None:
    """The store answers again, and nothing else is asked of it than whether it does."""
    store.speak_again()
    looks.clock.sleep(1.0)
    session.vouch(60.0)
    session.vouch(60.0)


def opened(store: MemoryClaims, looks: Looks) -> OpenSession:
    claims = OpenClaims(store, went_down=lambda _: None, came_back=lambda _: None, runtime=looks)
    return claims.begin(60.0)


def test_a_key_that_was_finished_while_the_store_was_down_is_done_when_it_is_back() -> None:
    store, looks = MemoryClaims(renewals=False), Looks()
    one, two = opened(store, looks), store.begin(60.0)
    assert one.claim([KEY]) == [Verdict.NEW]
    store.go_silent(hears=False)
    assert one.finish([KEY]) == [Verdict.DONE]
    back(store, looks, one)
    assert two.claim([OTHER]) == [Verdict.DONE]


def test_a_key_that_was_given_back_meanwhile_is_free() -> None:
    store, looks = MemoryClaims(renewals=False), Looks()
    one, two = opened(store, looks), store.begin(60.0)
    one.claim([KEY])
    store.go_silent(hears=False)
    one.unclaim([KEY])
    back(store, looks, one)
    assert two.claim([OTHER]) == [Verdict.NEW]


def test_a_partition_that_was_let_go_meanwhile_is_the_next_owners_with_all_that_was_marked() -> None:
    store, looks = MemoryClaims(renewals=False), Looks()
    one, two = opened(store, looks), store.begin(60.0)
    [mine] = one.acquire(["p"])
    assert isinstance(mine, Acquired)
    store.go_silent(hears=False)
    one.mark([Mark("p", mine.epoch, 2, [0, 1])])
    one.let_go([LetGo("p", mine.epoch, [])])
    back(store, looks, one)
    [theirs] = two.acquire(["p"])
    assert isinstance(theirs, Acquired)
    assert theirs.watermark == 2


def test_so_is_one_that_was_taken_over_without_an_answer() -> None:
    store, looks = MemoryClaims(renewals=False), Looks()
    store.begin(60.0).acquire(["p"])
    for session_id in list(store.state.sessions):
        store.expire(session_id)
    one, two = opened(store, looks), store.begin(60.0)
    store.go_silent(hears=True)
    [granted] = one.acquire(["p"])
    assert isinstance(granted, Acquired)
    back(store, looks, one)
    one.let_go([LetGo("p", granted.epoch, [])])
    assert isinstance(two.acquire(["p"])[0], Acquired)


class TestWaiting:
    """A store that is gone may take its whole timeout to say nothing: no partition stands still for that."""

    @pytest.fixture
    def asked(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """Calls that were made by those who cannot wait."""
        asked: list[str] = []

        def noted(name: str) -> None:
            found = getattr(MemorySession, name)

            def call(session: MemorySession, *what: object) -> object:
                asked.append(name)
                return found(session, *what)

            monkeypatch.setattr(MemorySession, name, call)

        for name in ("claim", "finish", "mark", "poll", "acquire"):
            noted(name)
        return asked

    def test_only_the_first_call_asks_until_somebody_else_has_heard_of_it(self, asked: list[str]) -> None:
        store, looks = MemoryClaims(renewals=False), Looks()
        looks.held = []
        one, two = opened(store, looks), store.begin(60.0)
        store.go_silent(hears=False)
        for _ in range(100):
            assert one.claim([KEY]) == [Verdict.NEW]
            assert one.finish([KEY]) == [Verdict.DONE]
            one.vouch(60.0)
            looks.clock.sleep(1.0)
        assert asked == ["claim"]
        assert len(looks.held) == 1, "one look at a time"
        store.speak_again()
        looks.held.pop()()
        one.vouch(60.0)
        assert two.claim([OTHER]) == [Verdict.DONE]

    def test_a_store_that_answers_looks_and_nothing_else_is_asked_less_and_less(self, asked: list[str]) -> None:
        store, looks = MemoryClaims(lease_s=3600.0, renewals=False), Looks()
        one = opened(store, looks)

        for _ in range(600):
            store.go_silent(hears=False)
            one.claim([KEY])
            store.speak_again()
            looks.clock.sleep(0.1)
            one.look()
        assert 2 < len(asked) < 12
