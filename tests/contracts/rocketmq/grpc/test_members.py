"""Member processes that join, leave, die and stand still, on a real RocketMQ; the ledger is outside of them."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

from tests.contracts.rocketmq.grpc.crew import Crew
from tests.contracts.rocketmq.grpc.lab import AGAIN_S, LEASE_S
from tests.contracts.rocketmq.grpc.stories import story

if TYPE_CHECKING:
    from tests.contracts.rocketmq.grpc.lab import Lab


def values(count: int) -> list[str]:
    return [f"x{number}" for number in range(count)]


@story
def test_members_come_and_go_in_order_and_nothing_runs_twice(lab: Lab) -> None:
    field = lab.field()
    # So long that what was not given back would not come again in time.
    with Crew(field) as crew:
        first = crew.join("first", invisible_s=600, work_s=0.02)
        crew.feed(lambda: len(crew.of(first, "end")) > 50)
        second = crew.join("second", invisible_s=600, work_s=0.02)
        crew.feed(lambda: len(crew.of(second, "end")) > 50)
        first.leave()
        third = crew.join("third", invisible_s=600, work_s=0.02)
        crew.feed(lambda: len(crew.of(third, "end")) > 50)
        second.leave()
        crew.wait_for(crew.fed)
        third.leave()
        assert crew.twice == set()


@story
def test_who_leaves_with_slow_handlers_ends_them_and_gives_the_rest_back(lab: Lab) -> None:
    field = lab.field()
    with Crew(field) as crew:
        slow = crew.join("slow", invisible_s=600, work_s=14.0)
        field.fill(*values(60))
        crew.wait(lambda: len(crew.in_hand(slow)) == 8)
        slow.signal(signal.SIGTERM)
        quick = crew.join("quick", invisible_s=600)
        crew.wait_for(set(values(60)) - crew.in_hand(slow))
        crew.wait_for(values(60))
        slow.process.wait(60)
        quick.leave()
        assert crew.twice == set()
        assert len(crew.of(slow, "end")) == 8


@story
def test_after_a_kill_nothing_is_lost_and_only_what_was_in_hand_runs_again(lab: Lab) -> None:
    field = lab.field()
    with Crew(field) as crew:
        victim = crew.join("victim", work_s=0.3)
        field.fill(*values(300))
        crew.wait(lambda: len(crew.of(victim, "end")) > 40)
        victim.kill()
        other = crew.join("other")
        crew.wait_for(values(300))
        # Of what had ended, the store may not have known the last of each worker.
        assert crew.twice <= crew.in_hand(victim) | set(crew.of(victim, "end")[-8:])
        assert crew.twice & crew.in_hand(victim)
        other.leave()


@story
def test_who_stands_still_past_the_lease_starts_nothing_of_what_others_have(lab: Lab) -> None:
    field = lab.field()
    with Crew(field) as crew:
        frozen = crew.join("frozen", work_s=0.5)
        field.fill(*values(200))
        # In all of its handlers: one that is let through, and stopped before its ledger has it, is in no hand by that.
        crew.wait(lambda: len(crew.of(frozen, "end")) > 16 and len(crew.in_hand(frozen)) == 8)
        frozen.signal(signal.SIGSTOP)
        in_hand = crew.in_hand(frozen) | set(crew.of(frozen, "end")[-8:])
        other = crew.join("other")
        crew.wait_for(set(values(200)) - set(crew.of(frozen, "end")))
        time.sleep(LEASE_S)
        frozen.signal(signal.SIGCONT)
        field.fill("end1", "end2")
        crew.wait_for(["end1", "end2"])
        other.leave()
        frozen.leave()
        assert crew.twice <= in_hand


@story
def test_a_member_says_nothing_leaves_no_log_and_ends_at_once(lab: Lab) -> None:
    field = lab.field()
    with Crew(field) as crew:
        member = crew.join("member")
        field.fill("x")
        crew.wait_for("x")
        member.leave()
        assert member.log.read_text() == ""
        assert list(member.home.iterdir()) == []


@story
def test_without_a_store_what_was_in_hand_and_what_was_not_acknowledged_runs_again(lab: Lab) -> None:
    """What a store is for here: another member knows nothing of what this one has done."""
    field = lab.field()
    with Crew(field) as crew:
        victim = crew.join("victim", claims=False, work_s=0.3)
        field.fill(*values(100))
        crew.wait(lambda: len(crew.of(victim, "end")) > 16)
        victim.kill()
        other = crew.join("other", claims=False)
        crew.wait_for(values(100))
        time.sleep(AGAIN_S)
        assert crew.twice
        other.leave()
