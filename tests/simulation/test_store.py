"""A store in a simulated world: each call is on its way for a while, and may be lost, late, or refused."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from holdfast.dedup.claims import Acquired, Claim, ClaimKey, LetGo, Mark, Token, Verdict, Wait
from holdfast.dedup.groups import Member
from holdfast.errors import AccessRefused, StoreLockedOut, StoreUnavailable
from holdfast.testing.store import SimulatedStore
from holdfast.timing import Deadline
from tests.harness.store_groups import in_turn, queues
from tests.simulation.lua.lua_store import LuaStore
from tests.simulation.played import run_all, world

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.dedup.claims import ClaimSession
    from holdfast.testing.process import Process
    from holdfast.testing.scheduler import Scheduler
    from holdfast.testing.store import StoreServer

P = "orders-0"
KEY = Claim(ClaimKey("h", "17"), Token(P, 0, 1))


@pytest.fixture(params=range(3))
def scheduler(request: pytest.FixtureRequest) -> Iterator[Scheduler]:
    with world(request.param) as made:
        yield made


@pytest.fixture(params=["specification", "scripts", "scripts with digests", "scripts in 2 shards"])
def store(scheduler: Scheduler, request: pytest.FixtureRequest) -> StoreServer:
    if request.param == "specification":
        return SimulatedStore(scheduler, lease_s=3.0, timeout_s=1.0)
    digests, shards = "digests" in request.param, 1 + ("2" in request.param)
    return LuaStore(scheduler, lease_s=3.0, timeout_s=1.0, hash_keys=digests, shards=shards)


def play(scheduler: Scheduler, main: Callable[[Process], None], name: str = "only", *, for_s: float = 60.0) -> None:
    process = scheduler.process(name)
    ended = process.spawn(lambda: main(process), "main")
    scheduler.run(lambda: not ended.is_alive(), scheduler.now + for_s)
    assert not scheduler.errors, scheduler.errors[0].trace


def own(session: ClaimSession) -> Acquired:
    [reply] = session.acquire([P])
    assert isinstance(reply, Acquired), reply
    return reply


def know_scripts(session: ClaimSession) -> None:
    """A server that has not heard of a script is asked twice: who dies meanwhile has asked for nothing."""
    [reply] = session.acquire(["other-0"])
    session.let_go([LetGo("other-0", reply.epoch if isinstance(reply, Acquired) else 0, [])])


def until_answered(process: Process, call: Callable[[], None]) -> None:
    while True:
        try:
            return call()
        except StoreUnavailable:
            process.runtime.sleep(0.05)


def test_a_call_is_on_its_way_there_and_back(scheduler: Scheduler, store: StoreServer) -> None:
    network = store.network
    network.slow(0.5)
    seen: dict[tuple[int, int, int], None] = {}
    process = scheduler.process("p")
    process.spawn(store.claims(process).connect, "main")
    for n in range(10_000):
        scheduler.at(
            scheduler.now + n / 1000,
            lambda: seen.update({(network.sent, network.arrived, network.answered): None}),
        )
    run_all(scheduler)
    n = network.sent  # of several calls: the last one
    assert list(seen)[-3:] == [(n, n - 1, n - 1), (n, n, n - 1), (n, n, n)]


def test_one_process_sees_what_another_has_done(scheduler: Scheduler, store: StoreServer) -> None:
    def main(process: Process) -> None:
        a = store.claims(process).begin(10.0)
        b = store.claims(scheduler.process("other")).begin(10.0)
        assert a.id != b.id
        assert own(a).epoch == 1
        assert b.acquire([P]) == [Wait.WAIT]
        assert a.claim([KEY]) == [Verdict.NEW]
        assert b.claim([KEY]) == [Verdict.BUSY]
        a.let_go([LetGo(P, 1, [])])
        assert own(b).epoch == 2

    play(scheduler, main)


def test_the_call_of_a_process_that_dies_arrives(scheduler: Scheduler, store: StoreServer) -> None:
    def dies(process: Process) -> None:
        session = store.claims(process).begin(10.0)
        know_scripts(session)
        store.network.slow(0.01)
        scheduler.at(scheduler.now, process.crash)
        session.acquire([P])

    play(scheduler, dies, "dies", for_s=1.0)
    run_all(scheduler, for_s=0.1)
    store.network.slow(0.0)

    def main(process: Process) -> None:
        session = store.claims(process).begin(10.0)
        assert session.acquire([P]) == [Wait.WAIT]
        process.runtime.sleep(3.0)
        assert own(session).epoch == 2, "nobody renews the lease of the dead"

    play(scheduler, main)


@pytest.mark.parametrize("hears", [True, False])
def test_a_silent_store_hears_or_does_not(scheduler: Scheduler, store: StoreServer, hears: bool) -> None:
    def main(process: Process) -> None:
        session = store.claims(process).begin(10.0)
        know_scripts(session)
        epoch = own(session).epoch
        store.network.go_silent(hears=hears)
        before = process.runtime.now()
        with pytest.raises(StoreUnavailable):
            session.let_go([LetGo(P, epoch, [])])
        assert 1.0 <= process.runtime.now() - before < 1.1
        store.network.speak()
        other = store.claims(scheduler.process("other")).begin(10.0)
        [reply] = other.acquire([P])
        assert isinstance(reply, Acquired) == hears

    play(scheduler, main)


def test_a_late_call_does_no_harm_to_what_was_asked_after_it(scheduler: Scheduler, store: StoreServer) -> None:
    def main(process: Process) -> None:
        session = store.claims(process).begin(10.0)
        own(session)
        arrived = store.network.arrived
        store.network.lose(late=1.0)
        with pytest.raises(StoreUnavailable):
            session.let_go([LetGo(P, 0, [])])
        store.network.lose()
        assert store.network.arrived == arrived
        own(session)
        process.runtime.sleep(2.5)
        assert store.network.arrived > arrived + 1
        assert store.claims(scheduler.process("other")).begin(10.0).acquire([P]) == [Wait.WAIT]

    play(scheduler, main)


@pytest.mark.parametrize("lost", ["calls", "replies"])
def test_what_is_asked_until_it_is_answered_is_done_once(scheduler: Scheduler, store: StoreServer, lost: str) -> None:
    def main(process: Process) -> None:
        session = store.claims(process).begin(10.0)
        epoch = own(session).epoch
        store.network.lose(calls=0.5 * (lost == "calls"), replies=0.5 * (lost == "replies"))

        def mark(offset: int) -> None:
            assert session.mark([Mark(P, epoch, 0, [offset])]) == [frozenset()]

        for offset in range(10):
            until_answered(process, partial(mark, offset))
        store.network.lose()
        session.end()
        process.runtime.sleep(3.0)
        assert own(store.claims(process).begin(10.0)).done == frozenset(range(10))

    play(scheduler, main, for_s=200.0)


def test_a_lease_is_judged_by_the_clock_of_its_process(scheduler: Scheduler, store: StoreServer) -> None:
    slow = scheduler.process("slow", clock_offset_s=-500.0, clock_rate=0.5)

    def main() -> None:
        session = store.claims(slow).begin(10.0)
        store.network.go_silent(hears=False)
        slow.runtime.sleep(2.9)
        assert session.live()
        slow.runtime.sleep(0.2)
        assert not session.live()

    ended = slow.spawn(main, "main")
    scheduler.run(lambda: not ended.is_alive(), scheduler.now + 60)


def test_a_process_that_stands_still_past_its_lease_has_lost_it(scheduler: Scheduler, store: StoreServer) -> None:
    def main(process: Process) -> None:
        session = store.claims(process).begin(10.0)
        own(session)
        process.runtime.sleep(10.0)
        assert session.live(), "renewed meanwhile"
        process.stall(3.5)
        assert not session.live()

    play(scheduler, main)


def test_after_a_failover_what_was_lost_is_said_again(scheduler: Scheduler, store: StoreServer) -> None:
    def main(process: Process) -> None:
        a = store.claims(process).begin(10.0)
        b = store.claims(scheduler.process("other")).begin(10.0)
        epoch = own(a).epoch
        done = Claim(ClaimKey("h", "18"), Token(P, 1, 1))
        assert a.claim([KEY, done]) == [Verdict.NEW, Verdict.NEW]
        store.fail_over(lost_s=0.5)
        a.unclaim([KEY])
        a.finish([done])
        a.let_go([LetGo(P, epoch, [])])
        process.runtime.sleep(0.6)
        assert b.claim([KEY, done]) == [Verdict.BUSY, Verdict.BUSY]
        assert b.acquire([P]) == [Wait.WAIT]
        process.runtime.sleep(1.5)
        assert a.live()
        assert b.claim([KEY, done]) == [Verdict.NEW, Verdict.DONE]
        assert own(b).epoch == 2

    play(scheduler, main)


def test_a_judge_sees_what_is_known(scheduler: Scheduler, store: StoreServer) -> None:
    def main(process: Process) -> None:
        session = store.claims(process).begin(10.0)
        epoch = own(session).epoch
        sent, switches = store.network.sent, scheduler.switches
        assert store.alive(session.id)
        assert not store.alive("nobody")
        assert not store.is_done(P, 0)
        assert not store.is_finished(KEY.key)
        assert (sent, switches) == (store.network.sent, scheduler.switches)
        session.mark([Mark(P, epoch, 3, [0, 1, 2, 300])])
        session.claim([KEY])
        assert not store.is_finished(KEY.key)
        session.finish([KEY])
        assert store.is_finished(KEY.key)
        assert [offset for offset in range(302) if store.is_done(P, offset)] == [0, 1, 2, 300]
        session.abandon()
        process.runtime.sleep(5.0)
        assert not store.alive(session.id)
        process.runtime.sleep(8 * 86_400.0)
        assert not store.is_finished(KEY.key)

    play(scheduler, main, for_s=1e6)


def test_members_put_their_group_back_into_a_store_that_has_forgotten_it(
    scheduler: Scheduler, store: StoreServer
) -> None:
    offered = queues(4)

    def member(process: Process) -> None:
        membership = store.coordinator(process).join(
            "g",
            Member(client_id=process.name, subscription="s"),
            Deadline(10.0, process.runtime),
            strategy=in_turn,
            wake=lambda: None,
            queues=offered,
            lease_s=3.0,
        )
        process.runtime.sleep(4.0)
        before = membership.plan().of(membership.id)
        assert len(before) == 2
        process.runtime.sleep(10.0)
        assert not membership.lost
        assert membership.plan().of(membership.id) == before

    for name in "ab":
        process = scheduler.process(name)
        process.spawn(lambda process=process: member(process), "main")  # type: ignore[misc]
    scheduler.at(scheduler.now + 7.0, store.empty)
    run_all(scheduler, for_s=20.0)
    assert not scheduler.errors, scheduler.errors[0].trace


def test_an_emptied_store_is_another_one(scheduler: Scheduler, store: StoreServer) -> None:
    def main(process: Process) -> None:
        claims = store.claims(process)
        session, known = claims.begin(10.0), claims.store_id
        assert own(session).epoch == 1
        assert known
        store.empty()
        process.runtime.sleep(1.5)
        assert not session.live()
        again = claims.begin(10.0)
        assert claims.store_id != known
        assert own(again).epoch == 1

    play(scheduler, main)


def test_a_refusal_is_told_at_the_start_and_outlived_later(scheduler: Scheduler, store: StoreServer) -> None:
    def main(process: Process) -> None:
        claims = store.claims(process)
        store.network.refuse()
        with pytest.raises(AccessRefused, match="NOAUTH"):
            claims.begin(10.0)
        store.network.refuse("")
        session = claims.begin(10.0)
        store.network.refuse()
        with pytest.raises(StoreLockedOut):
            session.acquire([P])
        store.network.refuse("")
        own(session)

    play(scheduler, main)


def test_groups_live_in_the_same_server(scheduler: Scheduler, store: StoreServer) -> None:
    planned: dict[str, set[int]] = {}
    offered = queues(4)

    def member(process: Process) -> None:
        coordinator = store.coordinator(process)
        membership = coordinator.join(
            "g",
            Member(client_id=process.name, subscription="s"),
            Deadline(10.0, process.runtime),
            strategy=in_turn,
            wake=lambda: None,
            queues=offered,
            lease_s=2.0,
        )
        process.runtime.sleep(5.0)
        planned[process.name] = {queue.number for queue in membership.plan().of(membership.id)}
        process.runtime.sleep(5.0)
        assert not membership.lost
        if process.name == "a":
            membership.leave(Deadline(2.0, process.runtime))
            assert membership.lost
        else:
            process.runtime.sleep(2.0)
            assert set(membership.plan().of(membership.id)) == set(offered)

    for name in "ab":
        process = scheduler.process(name)
        process.spawn(lambda process=process: member(process), "main")  # type: ignore[misc]
    run_all(scheduler, for_s=20.0)
    assert not scheduler.errors, scheduler.errors[0].trace
    assert sorted(map(len, planned.values())) == [2, 2]
    assert planned["a"] | planned["b"] == {0, 1, 2, 3}
