"""A server that takes no writes any more, or lets nobody in: no call is answered, and none ends anything."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from holdfast import idempotent
from holdfast.dedup import redis_failover_replay
from holdfast.dedup.calls.debts import Debts, Finish
from holdfast.dedup.claims import Acquired, AskInHand, Claim, ClaimKey, Drop, InHand, LetGo, Mark, Token, Verdict, Wait
from holdfast.dedup.redis_admin import RedisAdmin
from holdfast.dedup.redis_groups import RedisGroupSession
from holdfast.dedup.redis_store import RedisClaims
from holdfast.errors import AccessRefused, StoreError, StoreLockedOut, StoreUnavailable
from holdfast.runtime import Machine
from tests.contracts.redis.test_faults import answered
from tests.harness.clocks import HandClock
from tests.harness.servers.redis import RedisServer
from tests.harness.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from holdfast.dedup.claims import ClaimSession
    from holdfast.dedup.redis_session import RedisSession

ONE = Claim(ClaimKey("h", "k"), Token("p", 0, 1))


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with RedisServer() as made:
        yield made


def acquired(session: ClaimSession, *partitions: str) -> list[Acquired]:
    """Each of them is the session's."""
    found = session.acquire(partitions)
    ours = [each for each in found if isinstance(each, Acquired)]
    assert ours == found
    return ours


class TestReadOnly:
    def test_a_connection_that_another_thread_reads_from_is_left_alone(self, server: RedisServer) -> None:
        claims = RedisClaims.from_url(server.url)
        session = claims.begin(3600.0)
        pool = claims.parts().client.connection_pool
        reading = pool.get_connection()
        reading.send_command("PING")  # type: ignore[no-untyped-call]
        with server.client() as raw:
            raw.replicaof("127.0.0.1", "1")
            with pytest.raises(StoreUnavailable):
                session.renew()
            raw.replicaof("NO", "ONE")
        assert reading.read_response() == b"PONG"
        pool.release(reading)
        assert session.renew()
        claims.close()

    def test_callers_of_an_idempotent_function_see_errors_of_the_store_only(self, server: RedisServer) -> None:
        claims = RedisClaims.from_url(server.url)
        f = idempotent(claims, key="order_id", name="f")(lambda order_id: order_id)
        wrong: list[Exception] = []
        refused: list[StoreError] = []
        over = threading.Event()

        def calls(caller: int) -> None:
            number = 0
            while not over.is_set():
                number += 1
                try:
                    f(f"{caller}-{number}")
                except StoreError as error:
                    refused.append(error)
                except Exception as error:  # noqa: BLE001 - what is looked for
                    wrong.append(error)

        def await_more(count: int) -> None:
            enough = len(refused) + count
            until(lambda: len(refused) >= enough)

        callers = [threading.Thread(target=calls, args=(n,)) for n in range(8)]
        for each in callers:
            each.start()
        with server.client() as raw:
            for _ in range(10):
                raw.replicaof("127.0.0.1", "1")
                await_more(len(callers) + 1)  # more than can be late answers of the turn before
                raw.replicaof("NO", "ONE")
        over.set()
        for each in callers:
            each.join()
        assert wrong == []
        assert answered(lambda: f("after")) == "after"
        until(lambda: not claims.calls.process.debts)
        claims.close()


class _Odd(redis.Connection):
    """A connection that another thread closes while it is read from."""

    odd = 0

    def read_response(self, *args: Any, **kwargs: Any) -> Any:
        if _Odd.odd:
            _Odd.odd -= 1
            self.disconnect()  # type: ignore[no-untyped-call]
            raise ValueError("I/O operation on closed file")
        return super().read_response(*args, **kwargs)


def test_whatever_a_connection_raises_is_no_answer(redis_server: RedisServer, redis_url: str) -> None:
    assert redis_url
    pool = redis.ConnectionPool(
        connection_class=_Odd, port=redis_server.port, socket_timeout=2.0, retry=Retry(NoBackoff(), 0)
    )
    claims = RedisClaims(redis.Redis(connection_pool=pool))
    session = claims.begin(3600.0)
    for call in (lambda: session.claim([ONE]), claims.begin, lambda: RedisGroupSession(claims.parts(), "g").standing()):
        _Odd.odd = 1
        with pytest.raises(StoreUnavailable, match="ValueError: I/O operation on closed file") as caught:
            call()
        assert isinstance(caught.value.__cause__, ValueError)
    assert session.claim([ONE]) == [Verdict.NEW]
    claims.close()
    pool.disconnect()


class _Interrupted(redis.Connection):
    """A signal's handler raises between a request and its reply; the server replies when the next request is there."""

    paused: RedisServer | None = None
    armed = False

    def send_packed_command(self, *args: Any, **kwargs: Any) -> None:
        super().send_packed_command(*args, **kwargs)  # type: ignore[no-untyped-call]
        if _Interrupted.armed:
            _Interrupted.armed = False
            raise KeyboardInterrupt
        if _Interrupted.paused is not None:
            _Interrupted.paused.resume()


def test_the_reply_to_an_interrupted_call_is_not_taken_for_that_to_the_next(server: RedisServer) -> None:
    pool = redis.ConnectionPool(
        connection_class=_Interrupted, port=server.port, socket_timeout=10.0, retry=Retry(NoBackoff(), 0)
    )
    claims = RedisClaims(redis.Redis(connection_pool=pool))
    a, b = claims.begin(3600.0), claims.begin(3600.0)
    [own] = a.acquire(["p"])
    assert isinstance(own, Acquired)
    assert b.claim([ONE]) == [Verdict.NEW]
    group = RedisGroupSession(claims.parts(), "g")
    theirs, free = ONE._replace(token=Token("p", 1, 1)), Claim(ClaimKey("h", "free"), Token("p", 2, 1))
    ask: Callable[[Claim], object]
    for ask in (
        lambda claim: a.claim([claim]),  # one command
        lambda claim: a.exchange([], [Mark("p", own.epoch, 0, [])], [claim]).claimed,  # and several
        lambda claim: group.noted([claim.key.key]) == [None] and a.claim([claim]),  # and what is no script
    ):
        server.pause()
        _Interrupted.paused, _Interrupted.armed = server, True
        with pytest.raises(KeyboardInterrupt):
            ask(free)
        assert ask(theirs) == [Verdict.BUSY]
        _Interrupted.paused = None
    claims.close()
    pool.disconnect()


def test_what_is_owed_is_paid_whatever_was_raised(caplog: pytest.LogCaptureFixture) -> None:
    class Session:
        asked = 0

        def finish(self, claims: Sequence[Claim], results: Sequence[str]) -> list[Verdict]:
            assert len(claims) == len(results)
            self.asked += 1
            if self.asked < 3:
                raise ValueError("a defect, of whomever")
            return [Verdict.NEW]

    session: Any = Session()
    debts = Debts()
    debts.start()
    debts.add(Finish(session, [ONE], [""]))
    until(lambda: not debts)
    assert session.asked == 3
    assert "is sent again" in caplog.text


class TestBehind:
    """Another server, which has not heard the last of what was acknowledged."""

    @staticmethod
    def what_is_there(server: RedisServer) -> dict[bytes, bytes]:
        with server.client() as raw:
            return {bytes(name): raw.dump(name) or b"" for name in raw.scan_iter()}

    @staticmethod
    def fail_over(server: RedisServer, kept: dict[bytes, bytes]) -> None:
        server.kill()
        server.restart()
        with server.client() as raw:
            for name, dump in kept.items():
                raw.restore(name, 0, dump)

    def fail_over_before_it_is_noted(
        self, server: RedisServer, kept: dict[bytes, bytes], session: RedisSession, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """When the first server has answered the session's next call, and it has not noted that yet: another takes its
        place, and the thread that renews says all again."""
        ask_all = session._asker.ask_all

        def answered_and_then(questions: Any) -> Any:
            monkeypatch.undo()
            found = ask_all(questions)
            self.fail_over(server, kept)
            answered(session.renew)
            return found

        monkeypatch.setattr(session._asker, "ask_all", answered_and_then)

    def test_what_was_given_back_is_given_back_again(self, server: RedisServer) -> None:
        claims = RedisClaims.from_url(server.url)
        a, b = claims.begin(3600.0), claims.begin(3600.0)
        [mine] = acquired(a, "p")
        kept_one, other = Claim(ClaimKey("h", "kept"), Token("p", 1, 1)), Claim(ClaimKey("h", "k"), Token("q", 0, 1))
        assert a.claim([ONE, kept_one]) == [Verdict.NEW] * 2
        kept = self.what_is_there(server)
        a.unclaim([ONE, kept_one])
        assert a.claim([kept_one]) == [Verdict.NEW]
        a.let_go([LetGo("p", mine.epoch, [5])])
        self.fail_over(server, kept)
        assert answered(lambda: b.claim([other])) == [Verdict.BUSY]
        assert b.acquire(["p"]) == [Wait.WAIT]
        assert a.renew()
        assert b.claim([other, kept_one._replace(token=other.token)]) == [Verdict.NEW, Verdict.BUSY]
        [theirs] = acquired(b, "p")
        assert theirs.running == {5}
        assert a.renew()
        assert b.claim([other]) == [Verdict.NEW]
        assert a.finish([kept_one]) == [Verdict.DONE]
        claims.close()

    def test_so_it_is_after_a_failover_there_and_back(self, server: RedisServer) -> None:
        """Between two renewals: the server has the run id that it had before, and the other one's data."""
        claims = RedisClaims.from_url(server.url)
        a, b = claims.begin(3600.0), claims.begin(3600.0)
        [mine] = acquired(a, "p")
        with RedisServer() as replica, server.client() as first, replica.client() as second:
            _follow(second, server)
            second.replicaof("NO", "ONE")  # here it would be the primary; the last writes have not come
            a.let_go([LetGo("p", mine.epoch, [5])])
            _follow(first, replica)
            first.replicaof("NO", "ONE")
            assert answered(lambda: b.acquire(["p"])) == [Wait.WAIT]
            assert a.renew()
            [theirs] = acquired(b, "p")
            assert theirs.running == {5}
        claims.close()

    @pytest.mark.parametrize("call", ["let_go", "unclaim", "release", "finish", "exchange", "drop"])
    def test_so_is_what_the_first_server_answered_while_all_was_said_again(
        self, server: RedisServer, call: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """By the thread that renews, between the answer to another's call and its note of that."""
        claims = RedisClaims.from_url(server.url)
        a, b = claims.begin(3600.0), claims.begin(3600.0)
        mine, other = acquired(a, "p", "q")
        a.mark([Mark("p", mine.epoch, 8, [])])
        assert a.claim([ONE]) == [Verdict.NEW]
        a.let_go([LetGo("q", other.epoch, [5])])
        kept = self.what_is_there(server)
        calls: dict[str, Callable[[], object]] = {
            "let_go": lambda: a.let_go([LetGo("p", mine.epoch, [])]),
            "unclaim": lambda: a.unclaim([ONE]),
            "release": lambda: a.release([Token("q", 5, other.epoch)]),
            "finish": lambda: a.finish([ONE]),
            "exchange": lambda: a.exchange([ONE], [], []),
            "drop": lambda: a.drop([Drop("p", mine.epoch, 2)]),
        }
        self.fail_over_before_it_is_noted(server, kept, a, monkeypatch)
        calls[call]()
        after = {
            "let_go": lambda: b.acquire(["p"]) != [Wait.WAIT],
            "unclaim": lambda: b.claim([ONE]) == [Verdict.NEW],
            "release": lambda: self.poll_of(b, "q", 5) == InHand(frozenset(), frozenset({5})),
            "finish": lambda: b.claim([ONE]) == [Verdict.DONE],
            "exchange": lambda: b.claim([ONE]) == [Verdict.DONE],
            "drop": lambda: self.watermark_after(a, b, "p") == 2,
        }
        assert after[call]()
        claims.close()

    @pytest.mark.parametrize("call", ["claim", "claim_fenced", "exchange"])
    def test_so_is_what_was_given_back_and_asked_for_anew_in_vain(
        self, server: RedisServer, call: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The same, at the next renewal: the first server said that another has the key."""
        claims = RedisClaims.from_url(server.url)
        a, b = claims.begin(3600.0), claims.begin(3600.0)
        theirs = ONE._replace(token=Token("q", 0, 1))
        assert a.claim([ONE]) == [Verdict.NEW]
        kept = self.what_is_there(server)
        a.unclaim([ONE])
        assert b.claim([theirs]) == [Verdict.NEW]
        calls: dict[str, Callable[[], object]] = {
            "claim": lambda: a.claim([ONE]),
            "claim_fenced": lambda: a.claim_fenced([ONE]),
            "exchange": lambda: a.exchange([], [], [ONE]).claimed,
        }
        self.fail_over_before_it_is_noted(server, kept, a, monkeypatch)
        assert calls[call]() in ([Verdict.BUSY], [(Verdict.BUSY, 0)])
        assert b.claim([theirs]) == [Verdict.BUSY]
        assert a.renew()
        assert b.claim([theirs]) == [Verdict.NEW]
        claims.close()

    @staticmethod
    def watermark_after(gone: ClaimSession, session: ClaimSession, partition: str) -> int:
        gone.end()
        [found] = acquired(session, partition)
        return found.watermark

    @staticmethod
    def poll_of(session: ClaimSession, partition: str, offset: int) -> object:
        [theirs] = session.acquire([partition])
        assert isinstance(theirs, Acquired)
        [found] = session.poll([AskInHand(partition, theirs.epoch, [offset])])
        return found

    @pytest.mark.parametrize("hash_keys", [False, True])
    def test_what_was_finished_is_finished_again(self, server: RedisServer, *, hash_keys: bool) -> None:
        claims = RedisClaims.from_url(server.url, hash_keys=hash_keys)
        a, b = claims.begin(3600.0), claims.begin(3600.0)
        two, gone = (Claim(ClaimKey("h", name), ONE.token) for name in ("two", "gone"))
        assert a.claim([ONE, two]) == [Verdict.NEW] * 2
        kept = self.what_is_there(server)
        assert a.claim([gone]) == [Verdict.NEW]
        assert a.finish([ONE, gone]) == [Verdict.DONE] * 2
        assert a.finish([two], ["its result"]) == [Verdict.NEW]
        self.fail_over(server, kept)
        theirs = [each._replace(token=Token("q", 0, 1)) for each in (ONE, two, gone)]
        assert answered(lambda: b.claim(theirs[:2])) == [Verdict.BUSY] * 2
        assert a.renew()
        assert b.claim(theirs) == [Verdict.DONE] * 3
        assert b.results([two.key]) == ["its result"]
        claims.close()

    def test_what_an_owner_has_marked_is_marked_again(self, server: RedisServer) -> None:
        claims = RedisClaims.from_url(server.url)
        a, b = claims.begin(3600.0), claims.begin(3600.0)
        mine, other = acquired(a, "p", "q")
        kept = self.what_is_there(server)
        assert a.mark([Mark("p", mine.epoch, 5, [7, 9]), Mark("q", other.epoch, 0, [3])]) == [frozenset()] * 2
        assert a.drop([Drop("q", other.epoch, 0)]) == [True]
        self.fail_over(server, kept)
        assert answered(a.renew)
        a.end()  # as if it had died: nothing is let go
        first, second = acquired(b, "p", "q")
        assert (first.watermark, first.done) == (5, frozenset({7, 9}))
        assert (second.watermark, second.done) == (0, frozenset())
        claims.close()

    @pytest.mark.parametrize("ends", [False, True], ids=["at the renewal", "as it is let go"])
    def test_what_was_dropped_is_dropped_again(self, server: RedisServer, *, ends: bool) -> None:
        """Or what is replayed on purpose would be done, and skipped, for every owner that follows."""
        claims = RedisClaims.from_url(server.url)
        a, b = claims.begin(3600.0), claims.begin(3600.0)
        [mine] = acquired(a, "p")
        assert a.mark([Mark("p", mine.epoch, 50, [60, 70])]) == [frozenset()]
        kept = self.what_is_there(server)
        assert a.drop([Drop("p", mine.epoch, 10)]) == [True]
        assert a.mark([Mark("p", mine.epoch, 12, [14])]) == [frozenset()]
        self.fail_over(server, kept)
        if ends:
            answered(lambda: a.let_go([LetGo("p", mine.epoch, [15])]))
        else:
            answered(a.renew)
            a.end()  # as if it had died: nothing is let go
        [found] = acquired(b, "p")
        assert (found.watermark, found.done, found.again) == (12, {14}, 71)
        assert found.running == ({15} if ends else set())
        claims.close()

    def test_and_so_it_is_by_whoever_took_over_since(self, server: RedisServer) -> None:
        claims = RedisClaims.from_url(server.url)
        a, b, c, d = (claims.begin(3600.0) for _ in range(4))
        [first] = acquired(a, "p")
        a.mark([Mark("p", first.epoch, 50, [])])
        a.let_go([LetGo("p", first.epoch, [])])
        kept = self.what_is_there(server)
        [again] = acquired(a, "p")
        a.drop([Drop("p", again.epoch, 10)])
        a.let_go([LetGo("p", again.epoch, [])])
        [second] = acquired(b, "p")
        self.fail_over(server, kept)
        answered(lambda: b.mark([Mark("p", second.epoch, 11, [10])]))
        assert b.renew()
        b.let_go([LetGo("p", second.epoch, [])])
        [third] = acquired(c, "p")
        assert (third.watermark, third.done, third.again) == (11, set(), 50)
        c.let_go([LetGo("p", third.epoch, [])])
        # Set by a tool, of which nothing is left but its word.
        kept = self.what_is_there(server)
        assert RedisAdmin.of(claims).set_position("p", 5)
        [fourth] = acquired(d, "p")
        assert fourth.watermark == 5
        self.fail_over(server, kept)
        answered(d.renew)
        d.let_go([LetGo("p", fourth.epoch, [])])
        [fifth] = acquired(c, "p")
        assert (fifth.watermark, fifth.again) == (5, 50)
        claims.close()

    def test_what_is_done_since_a_drop_stays_done_where_that_was_not_lost(self, server: RedisServer) -> None:
        claims = RedisClaims.from_url(server.url)
        a, b = claims.begin(3600.0), claims.begin(3600.0)
        [mine] = acquired(a, "p")
        a.mark([Mark("p", mine.epoch, 50, [])])
        assert a.drop([Drop("p", mine.epoch, 10)]) == [True]
        a.mark([Mark("p", mine.epoch, 20, [30])])
        assert a.drop([Drop("p", mine.epoch, 10)]) == [True]  # once more: what came between is void as well
        a.mark([Mark("p", mine.epoch, 12, [14])])
        self.fail_over(server, self.what_is_there(server))
        answered(a.renew)
        a.end()
        [found] = acquired(b, "p")
        assert (found.watermark, found.done, found.again) == (12, {14}, 50)
        claims.close()

    def test_what_is_told_of_a_drop_that_another_has_overruled_changes_nothing(self, server: RedisServer) -> None:
        claims = RedisClaims.from_url(server.url)
        a, b = claims.begin(3600.0), claims.begin(3600.0)
        [first] = acquired(a, "p")
        a.drop([Drop("p", first.epoch, 10)])
        a.mark([Mark("p", first.epoch, 20, [])])
        a.let_go([LetGo("p", first.epoch, [])])
        [second] = acquired(b, "p")
        b.drop([Drop("p", second.epoch, 3)])
        b.mark([Mark("p", second.epoch, 4, [])])
        b.let_go([LetGo("p", second.epoch, [])])
        self.fail_over(server, self.what_is_there(server))
        answered(a.renew)
        assert b.renew()
        [third] = acquired(a, "p")
        assert (third.watermark, third.done) == (4, set())
        claims.close()

    @pytest.mark.parametrize("kind", ["finishes", "unclaims", "releases", "marks", "hand-overs"])
    def test_a_session_that_has_ended_more_than_it_remembers_ends_so_that_nobody_waits_for_it(
        self, server: RedisServer, kind: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Where the server may not have heard of it: one that is as far as the last renewal costs nothing."""
        monkeypatch.setattr(redis_failover_replay, "_KEPT_ITEMS", 3)
        claims = RedisClaims.from_url(server.url)
        a, b = claims.begin(3600.0), claims.begin(3600.0)
        names = ["p", "q", "r", "s", "t"]
        keys = [Claim(ClaimKey("h", name), ONE.token) for name in names]
        owned = acquired(a, *names)
        [own, *_] = acquired(a, "u")
        a.let_go([LetGo("u", own.epoch, range(5))])
        assert a.claim(keys) == [Verdict.NEW] * 5
        ends: dict[str, Callable[[], object]] = {
            "finishes": lambda: [a.finish([each]) for each in keys],
            "unclaims": lambda: a.unclaim(keys),
            "releases": lambda: a.release([Token("u", offset, own.epoch) for offset in range(5)]),
            "marks": lambda: a.mark([Mark("u", own.epoch, 0, range(5), former=True)]),
            "hand-overs": lambda: a.let_go(
                [LetGo(name, each.epoch, []) for name, each in zip(names, owned, strict=True)]
            ),
        }
        assert a.renew()
        kept = self.what_is_there(server)
        ends[kind]()
        assert a.renew()
        self.fail_over(server, self.what_is_there(server))
        assert answered(a.renew)
        assert a.live()
        self.fail_over(server, kept)
        assert not answered(a.renew)
        assert not a.live()
        a.end()  # its lease is over
        theirs = [each._replace(token=Token("x", 0, 1)) for each in keys]
        assert Verdict.BUSY not in b.claim(theirs)
        found = acquired(b, "u", *names)[0]
        [polled] = b.poll([AskInHand("u", found.epoch, range(5))])
        assert isinstance(polled, InHand)
        assert polled.done | polled.yours == set(range(5))
        claims.close()

    def test_saying_it_again_takes_few_calls_however_many_it_were_before(self, server: RedisServer) -> None:
        claims = RedisClaims.from_url(server.url)
        session = claims.begin(3600.0)
        kept = self.what_is_there(server)
        finished = [Claim(ClaimKey("h", f"k{number}"), Token("p", number, 1)) for number in range(1_200)]
        for each in finished[:1_000]:
            session.finish([each])
        for each in finished[1_000:]:
            session.finish([each], [each.key.key])
        self.fail_over(server, kept)
        with server.client() as raw:
            assert answered(session.renew)
            stats = raw.info("commandstats")
        assert stats["cmdstat_evalsha"]["calls"] < 20
        assert session.claim(finished) == [Verdict.DONE] * 1_200
        assert session.results([each.key for each in finished[1_100:]]) == [each.key.key for each in finished[1_100:]]
        claims.close()

    def test_a_session_stays_alive_while_it_says_it_again_however_long_that_takes(
        self, server: RedisServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clock = HandClock()
        claims = RedisClaims.from_url(server.url, runtime=Machine(clock))
        session = claims.begin(10.0)
        kept = self.what_is_there(server)
        finished = [Claim(ClaimKey("h", f"k{number}"), Token("p", number, 1)) for number in range(3_000)]
        session.finish(finished[:1_000])
        for start in range(1_000, 3_000, 500):
            session.finish(finished[start : start + 500])
        self.fail_over(server, kept)
        answered(claims.connect)
        alone = session._asker.alone

        def slow(asking: Any) -> Any:
            clock.sleep(3.0)
            return alone(asking)

        monkeypatch.setattr(session._asker, "alone", slow)
        assert answered(session.renew)
        monkeypatch.undo()
        assert session.live()
        assert session.claim(finished) == [Verdict.DONE] * 3_000
        claims.close()

    def test_what_was_fenced_is_not_finished_again(self, server: RedisServer) -> None:
        claims = RedisClaims.from_url(server.url)
        a, b = claims.begin(3600.0), claims.begin(3600.0)
        two = Claim(ClaimKey("h", "two"), ONE.token)
        assert a.claim([ONE, two]) == [Verdict.NEW] * 2
        kept = self.what_is_there(server)
        RedisAdmin.of(claims).forget([ONE.key], force=True)
        theirs = [each._replace(token=Token("q", 0, 1)) for each in (ONE, two)]
        assert b.claim(theirs[:1]) == [Verdict.NEW]
        assert a.finish([ONE, two]) == [Verdict.FENCED, Verdict.DONE]
        b.unclaim(theirs[:1])
        kept = {name: dump for name, dump in kept.items() if b"two" in name or b"sessions" in name}
        self.fail_over(server, kept)
        answered(a.renew)
        assert b.claim(theirs) == [Verdict.NEW, Verdict.DONE]
        claims.close()

    def test_what_was_in_hand_at_a_hand_over_and_is_done_is_done_again(self, server: RedisServer) -> None:
        claims = RedisClaims.from_url(server.url)
        a, b = claims.begin(3600.0), claims.begin(3600.0)
        [mine] = acquired(a, "p")
        a.let_go([LetGo("p", mine.epoch, [3, 4, 5])])
        [theirs] = acquired(b, "p")
        kept = self.what_is_there(server)
        assert a.mark([Mark("p", mine.epoch, 0, [3, 4], former=True)]) == [frozenset()]
        self.fail_over(server, kept)
        poll = AskInHand("p", theirs.epoch, [3, 4, 5])
        assert answered(lambda: b.poll([poll])) == [InHand(frozenset(), frozenset())]
        assert a.renew()
        assert b.poll([poll]) == [InHand(frozenset({3, 4}), frozenset())]
        claims.close()

    def test_what_was_let_go_is_not_owned_again_by_marking_what_was_in_hand(self, server: RedisServer) -> None:
        claims = RedisClaims.from_url(server.url)
        a, b = claims.begin(3600.0), claims.begin(3600.0)
        [first] = acquired(a, "p")
        a.let_go([LetGo("p", first.epoch, [])])
        kept = self.what_is_there(server)
        [theirs] = acquired(b, "p")
        b.let_go([LetGo("p", theirs.epoch, [3])])
        self.fail_over(server, kept)
        mark = Mark("p", theirs.epoch, 0, [3], former=True)
        assert answered(lambda: b.mark([mark])) == [frozenset()]
        [again] = acquired(a, "p")
        assert again.done == {3}
        claims.close()

    def test_what_was_let_go_and_lost_is_known_to_who_takes_it_back(self, server: RedisServer) -> None:
        claims = RedisClaims.from_url(server.url)
        a, b = claims.begin(3600.0), claims.begin(3600.0)
        first, other = acquired(a, "p", "q")
        kept = self.what_is_there(server)
        a.mark([Mark("p", first.epoch, 3, [4])])
        a.let_go([LetGo("p", first.epoch, [5]), LetGo("q", other.epoch, [6])])
        self.fail_over(server, kept)
        [again] = answered(lambda: a.acquire(["p"]))
        assert isinstance(again, Acquired)
        assert (again.watermark, again.done, again.running) == (3, frozenset({4}), frozenset({5}))
        # Let go again, and asked for in vain: it is let go all the same.
        kept = self.what_is_there(server)
        a.let_go([LetGo("p", again.epoch, [7])])
        assert isinstance(b.acquire(["p"])[0], Acquired)
        assert a.acquire(["p"]) == [Wait.WAIT]
        self.fail_over(server, kept)
        assert answered(lambda: b.acquire(["p", "q"])) == [Wait.WAIT] * 2
        assert a.renew()
        found, also = acquired(b, "p", "q")
        assert (found.watermark, found.done, found.running) == (3, frozenset({4}), frozenset({5, 7}))
        assert also.running == {6}
        claims.close()

    def test_and_so_is_what_became_of_what_was_in_hand(self, server: RedisServer) -> None:
        """Said to the first server: it is neither left running by its own former owner, for ever, nor run once more."""
        claims = RedisClaims.from_url(server.url)
        a = claims.begin(3600.0)
        [first] = acquired(a, "p")
        kept = self.what_is_there(server)
        a.let_go([LetGo("p", first.epoch, [5, 6, 7])])
        a.mark([Mark("p", first.epoch, 0, [5], former=True)])
        a.release([Token("p", 6, first.epoch)])
        self.fail_over(server, kept)
        [again] = answered(lambda: a.acquire(["p"]))
        assert isinstance(again, Acquired)
        assert (again.done, again.running) == (frozenset({5}), frozenset({7}))
        claims.close()

    def test_what_a_former_owner_that_is_gone_has_marked_is_marked_again(self, server: RedisServer) -> None:
        claims = RedisClaims.from_url(server.url)
        a, b, c = (claims.begin(3600.0) for _ in range(3))
        kept = self.what_is_there(server)
        [first] = acquired(a, "p")
        a.mark([Mark("p", first.epoch, 3, [4, 5])])
        a.let_go([LetGo("p", first.epoch, [])])
        a.end()
        [second] = acquired(b, "p")
        self.fail_over(server, kept)
        assert answered(b.renew)
        b.let_go([LetGo("p", second.epoch, [])])
        [third] = acquired(c, "p")
        assert (third.watermark, third.done) == (3, frozenset({4, 5}))
        claims.close()

    def test_what_is_owned_again_stays_so(self, server: RedisServer) -> None:
        claims = RedisClaims.from_url(server.url)
        a, b = claims.begin(3600.0), claims.begin(3600.0)
        [first] = acquired(a, "p")
        kept = self.what_is_there(server)
        a.let_go([LetGo("p", first.epoch, [])])
        [again] = acquired(a, "p")
        self.fail_over(server, kept)
        answered(a.renew)
        assert b.acquire(["p"]) == [Wait.WAIT]
        assert a.mark([Mark("p", again.epoch, 0, [3])]) == [frozenset()]
        claims.close()


def _follow(raw: redis.Redis, primary: RedisServer) -> None:
    """Until it has all of the primary's data."""
    raw.replicaof("127.0.0.1", str(primary.port))
    until(lambda: raw.info("replication")["master_link_status"] == "up")


def test_a_position_is_read_and_written_once_however_many_of_its_records_are_released(server: RedisServer) -> None:
    claims = RedisClaims.from_url(server.url)
    session = claims.begin(3600.0)
    mine, others = session.acquire(["p", "q"])
    assert isinstance(mine, Acquired)
    assert isinstance(others, Acquired)
    session.let_go([LetGo("p", mine.epoch, range(100)), LetGo("q", others.epoch, range(50))])
    with server.client() as raw:
        raw.config_resetstat()
        session.release(
            [*(Token("p", n, mine.epoch) for n in range(99)), *(Token("q", n, others.epoch) for n in range(50))]
        )
        stats = raw.info("commandstats")
    assert stats["cmdstat_hmget"]["calls"] == 2
    assert stats["cmdstat_hset"]["calls"] + stats["cmdstat_hdel"]["calls"] == 2
    again, empty = session.acquire(["p", "q"])
    assert isinstance(again, Acquired)
    assert isinstance(empty, Acquired)
    assert again.running == {99}
    assert empty.running == set()
    claims.close()


class TestLockedOut:
    """A slip with passwords or permissions."""

    @pytest.mark.parametrize("rights", [["-evalsha", "-eval"], ["-hget"]], ids=["no scripts", "no commands in them"])
    def test_at_the_start_it_is_refused_and_later_it_is_no_answer_until_it_is_mended(
        self, server: RedisServer, rights: list[str]
    ) -> None:
        with server.client() as raw:
            raw.acl_setuser("app", enabled=True, passwords=["+pass"], keys=["*"], commands=["+@all", *rights])
            claims = RedisClaims.from_url(f"redis://app:pass@127.0.0.1:{server.port}/0")
            with pytest.raises(AccessRefused, match="refuses these credentials"):
                claims.begin(3600.0)
            _permit(raw, "+@all")
            session = claims.begin(3600.0)
            _permit(raw, *rights)
            group = RedisGroupSession(claims.parts(), "g")
            for call in (session.renew, lambda: session.claim([ONE]), lambda: claims.begin(3600.0), group.look):
                with pytest.raises(StoreLockedOut, match="let in before"):
                    call()
            _permit(raw, "+@all")
            assert session.claim([ONE]) == [Verdict.NEW]
            session.end()
            claims.close()

    def test_a_user_who_was_removed_is_waited_for(self, server: RedisServer) -> None:
        with server.client() as raw:
            raw.acl_setuser("app", enabled=True, passwords=["+pass"], keys=["*"], commands=["+@all"])
            claims = RedisClaims.from_url(f"redis://app:pass@127.0.0.1:{server.port}/0")
            session = claims.begin(3600.0)
            raw.acl_deluser("app")
            with pytest.raises(StoreLockedOut):
                _until_locked_out(session)
            raw.acl_setuser("app", enabled=True, passwords=["+pass"], keys=["*"], commands=["+@all"])
            assert answered(lambda: session.claim([ONE])) == [Verdict.NEW]
            session.end()
            claims.close()

    def test_a_password_that_changes_costs_nothing_where_it_is_asked_for(self, server: RedisServer) -> None:
        class Rotating(redis.CredentialProvider):
            password = "first"  # noqa: S105 - of a server that lives for one test

            def get_credentials(self) -> tuple[str, str]:
                return ("app", self.password)

        provider = Rotating()
        with server.client() as raw:
            raw.acl_setuser("app", enabled=True, passwords=["+first"], keys=["*"], commands=["+@all"])
            url = f"redis://127.0.0.1:{server.port}/0"
            claims = RedisClaims.from_url(url, credential_provider=provider)
            session = claims.begin(3600.0)
            _permit(raw, ">second", "<first")
            provider.password = "second"  # noqa: S105
            assert session.claim([ONE]) == [Verdict.NEW]  # by the connection that there is
            claims.parts().client.connection_pool.disconnect()
            assert session.renew()  # by a new one
            session.end()
            claims.close()


def _permit(raw: redis.Redis, *rights: str) -> None:
    raw.execute_command("ACL", "SETUSER", "app", *rights)  # type: ignore[no-untyped-call]


def _until_locked_out(session: ClaimSession) -> None:
    while True:
        try:
            session.renew()
        except StoreLockedOut:
            raise
        except StoreUnavailable:
            logging.getLogger(__name__).debug("the connection was closed")


def test_more_threads_than_a_pool_has_by_default_are_all_answered(server: RedisServer) -> None:
    claims = RedisClaims.from_url(server.url, timeout_s=30.0)
    session = claims.begin(3600.0)
    with server.client() as raw:
        raw.client_pause(300, all=True)
        replies: list[list[Verdict]] = []
        threads = [
            threading.Thread(
                target=lambda n=n: replies.append(session.claim([Claim(ClaimKey("h", f"{n}"), Token("p", n, 1))]))
            )
            for n in range(150)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert replies == [[Verdict.NEW]] * 150
    session.end()
    claims.close()


def test_a_pool_that_is_too_small_is_named(redis_server: RedisServer, redis_url: str) -> None:
    assert redis_url
    with redis.Redis(
        port=redis_server.port, socket_timeout=2.0, retry=Retry(NoBackoff(), 0), max_connections=1
    ) as client:
        claims = RedisClaims(client)
        session = claims.begin(3600.0)
        taken = client.connection_pool.get_connection()
        with pytest.raises(StoreUnavailable, match="max_connections above the number of threads"):
            session.renew()
        client.connection_pool.release(taken)
        assert session.renew()
        session.end()
        claims.close()
