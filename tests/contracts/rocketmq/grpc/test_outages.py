"""Answers that are lost, a broker and a proxy that go away: on a server of its own, since no other story likes that."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.contracts.rocketmq.grpc.crew import Crew
from tests.contracts.rocketmq.grpc.lab import AGAIN_S, LEASE_S, Lab
from tests.contracts.rocketmq.grpc.stories import story
from tests.harness.servers.rocketmq import RocketMQServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.contracts.rocketmq.grpc.lab import Field


#: Messages whose handlers are held up.
HELD = [f"slow{number}" for number in range(8)]


@contextmanager
def _at_work(lab: Lab) -> Iterator[tuple[RocketMQServer, Field, Crew]]:
    """Two apps here with slow handlers, which have begun, and two processes with quick ones, on a server of their own;
    at the end the slow ones have come to the last message, all have left, and nothing has run twice."""
    with RocketMQServer(proxy=True) as server:
        own = Lab(server, lab.redis_url, lab.folder)
        slow, quick = own.field(), own.field()
        slow.gate.hold(*HELD)
        slow.fill(*HELD)
        with Crew(quick) as crew, slow.app(), slow.app():
            members = [crew.join("a"), crew.join("b")]
            slow.gate.wait(lambda: set(HELD) <= set(slow.gate.started))
            crew.feed(lambda: all(len(crew.of(member, "end")) > 100 for member in members))
            yield server, slow, crew
            slow.fill("end")
            slow.gate.wait_for(["end"])
            for member in members:
                member.leave()
        assert slow.gate.twice == []
        assert crew.twice == set()
        own.close()


@story
def test_what_comes_again_after_lost_answers_and_restarts_does_not_run_again(lab: Lab) -> None:
    """Quick handlers in two processes, slow ones in two apps here; what the broker brings again has been handled."""
    with _at_work(lab) as (server, slow, crew):
        # The broker stands still: it does what it was asked when it goes on, and its answers come too late.
        server.pause_broker()
        time.sleep(0.4 * LEASE_S)  # renewals fall due meanwhile
        server.resume_broker()
        _go_on(crew, 500)
        time.sleep(AGAIN_S)
        server.stop_broker()
        server.start_broker()
        _go_on(crew, 500)
        server.stop_proxy()
        server.start_proxy()
        _go_on(crew, 100)

        slow.gate.let_go()
        slow.gate.wait_for(HELD)
        crew.wait_for(crew.fed)
        # What was acknowledged by a receipt in doubt comes once more.
        time.sleep(AGAIN_S)


@story
def test_a_proxy_that_is_killed_and_away_for_longer_than_the_leases_costs_nothing(lab: Lab) -> None:
    """Leases that nobody can renew end at the broker, which brings their messages again, while handlers still run."""
    with _at_work(lab) as (server, slow, crew):
        server.kill_proxy()
        time.sleep(AGAIN_S)
        slow.gate.let_go(*HELD[:4])  # ends while there is nobody to acknowledge it to
        slow.gate.wait_for(HELD[:4])
        server.start_proxy()
        _go_on(crew, 500)
        time.sleep(AGAIN_S)
        slow.gate.let_go()
        slow.gate.wait_for(HELD)
        crew.wait_for(crew.fed)


def _go_on(crew: Crew, messages: int) -> None:
    """Until so many more are handled."""
    ended = len(crew.entries("end"))
    crew.feed(lambda: len(crew.entries("end")) >= ended + messages)
