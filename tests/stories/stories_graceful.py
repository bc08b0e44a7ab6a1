"""Stories in which nobody dies: joining, leaving, scaling, restarting, new topics, slow handlers."""

from __future__ import annotations

import signal
from collections import Counter
from typing import TYPE_CHECKING

from tests.harness.group.config import EVERYWHERE
from tests.harness.group.story import story

if TYPE_CHECKING:
    from tests.harness.group.field import Field
    from tests.harness.group.outcome import Outcome

_HOLDFAST = ("holdfast",)


@story(protocols=EVERYWHERE)
def join(field: Field) -> None:
    """One member at work, a second comes, then a third."""
    a = field.start("a")
    field.flow()
    field.until_works(a)
    b = field.start("b")
    field.until_spread(a, b)
    c = field.start("c")
    field.until_spread(a, b, c)


@story(protocols=EVERYWHERE)
def leave(field: Field) -> None:
    """Three members at work, one is stopped, then another."""
    a, b, c = (field.start(name) for name in "abc")
    field.flow()
    field.until_spread(a, b, c)
    field.stop(b)
    field.until_spread(a, c)
    field.stop(a)
    field.until_spread(c)


@story(protocols=EVERYWHERE)
def scale(field: Field) -> None:
    """2 -> 4 -> 1 members; those that go, go at once."""
    a, b = field.start("a"), field.start("b")
    field.flow()
    field.until_spread(a, b)
    c, d = field.start("c"), field.start("d")
    field.until_spread(a, b, c, d)
    field.stop(a, c, d)
    field.until_spread(b)


@story(protocols=EVERYWHERE)
def rolling_restart(field: Field) -> None:
    """Three members; each is stopped and started again, one after the other."""
    names = ["a", "b", "c"]
    for name in names:
        field.start(name)
    field.flow()
    field.until_spread(*field.members.values())
    field.random.shuffle(names)
    for name in names:
        field.stop(field.members[name])
        field.start(name)
        field.until_spread(*field.members.values())


@story()
def leave_in_pending_rebalance(field: Field) -> None:
    """A rebalance is kept pending by a member that does not answer for a moment; another is stopped meanwhile."""
    a, b = field.start("a"), field.start("b")
    field.flow()
    field.until_spread(a, b)
    c = field.ready("c")  # b's session lasts 6 s: not for a start of Python
    field.pause(b)
    field.let_begin(c)
    field.until(lambda: not field.stable(), "a rebalance is pending")
    a.may_end = True
    a.signal(signal.SIGTERM)
    field.stay(field.random.uniform(0.0, 1.5))  # less than a session: b is slow, not dead
    field.go_on(b)
    field.until_ended(a)
    field.until_spread(b, c)


@story(protocols=EVERYWHERE)
def leave_as_another_joins(field: Field) -> None:
    """One comes and one goes at the same moment, twice."""
    members = [field.start("a"), field.start("b")]
    field.flow()
    field.until_spread(*members)
    for name in "cd":
        members.append(field.start(name))
        going = members.pop(0)
        going.may_end = True
        field.stay(field.random.uniform(0.2, 1.0))  # the newcomer is somewhere between its start and its first record
        field.stop(going)
        field.until_spread(*members)


@story(config={"topics": ("^{topic}.*",)}, kinds=_HOLDFAST, protocols=EVERYWHERE)
def new_topic_matches(field: Field) -> None:
    """A topic that matches the pattern is created while the group is at work."""
    a, b = field.start("a"), field.start("b")
    field.flow()
    field.until_spread(a, b)
    field.traffic.stop()
    field.add_topic(f"{field.topic}-more", 4)
    field.flow()
    field.until_spread(a, b)


@story(protocols=EVERYWHERE)
def partitions_are_added(field: Field) -> None:
    """The topic grows while the group is at work."""
    a, b = field.start("a"), field.start("b")
    field.flow()
    field.until_spread(a, b)
    field.traffic.stop()
    field.grow(field.topic, 12)
    field.flow()
    field.until_spread(a, b)


# max.poll.interval.ms must not be below the session's timeout; a drain and a commit have to fit into it.
@story(
    config={"session_timeout_ms": 3_000, "max_poll_interval_ms": 4_000, "drain_timeout_s": 1.0}, protocols=EVERYWHERE
)
def handler_longer_than_poll_interval(field: Field) -> None:
    """Some handlers run twice as long as a member may be silent, while the others go on."""
    a, b = field.start("a"), field.start("b")
    field.flow(150)
    field.until_spread(a, b)
    settled = field.until_even(a, b) if field.kind == "holdfast" else None  # others tell no such events
    slow = field.send_slow(8_000, partitions=[0, 3, 6])
    field.until_started(slow)
    field.stay(5)  # past max.poll.interval.ms, with the handlers still running
    field.until_spread(a, b)
    if settled is not None:
        field.until_done(slow)
        field.until_spread(a, b)  # who was thrown out has heard of it
        field.nothing_moved(settled)


@story(protocols=EVERYWHERE)
def slow_loops(field: Field) -> None:
    """Handlers that take seconds, within max.poll.interval.ms, in loops that poll between them; members join and go."""
    a, b = field.start("a"), field.start("b")
    field.flow(50)
    field.until_spread(a, b)
    field.until_started(field.send_slow(1_500, partitions=[0, 2, 4, 6]))
    c = field.start("c")
    field.until_spread(a, b, c)
    field.stop(b)
    field.until_spread(a, c)


@story(config={"drain_timeout_s": 1.0}, kinds=_HOLDFAST, protocols=EVERYWHERE)
def handler_outlives_the_drain(field: Field) -> None:
    """Partitions move by a join, then by a leave, while a handler runs on each; the handlers go on for seconds."""
    a, b = field.start("a"), field.ready("b")  # the handlers are not to end while Python starts
    field.flow(150)
    field.until_works(a)
    moved = field.send_slow(6_000)
    field.until_started(moved)
    field.let_begin(b)
    field.until_works(b)
    joined = _overruns(field, "as b joined")
    field.until_done(moved)  # b waits for those
    field.until_caught_up(100)  # else the next ones of a would begin, and end, long before b's
    field.until_started(field.send_slow(6_000))
    field.stop(a)
    field.until_spread(b)
    _overruns(field, "as a left", than=joined)


def _overruns(field: Field, when: str, *, than: int = 0) -> int:
    """How many handlers have outlived a drain. Raises FieldError where there are not more."""
    count = len([each for each in field.told() if each["event"] == "Overrun"])
    if count <= than:
        raise field.error(f"no handler outlived the drain {when}: nothing was shown")
    return count


def _failed_once_then_ended(outcome: Outcome) -> list[str]:
    failed = [each for each in outcome.ran if each.outcome == "fail"]
    found = [] if failed else ["no handler failed after its drain: nothing was shown"]
    for each in failed:
        after = [later for later in outcome.ran if later.where == each.where and later.start_ns > each.start_ns]
        if [later.outcome for later in after] != ["end"] or any(later.member == each.member for later in after):
            found.append(f"{each.where} failed after its hand-over and then: {after}")
    return found


@story(config={"drain_timeout_s": 1.0}, kinds=_HOLDFAST, check=_failed_once_then_ended, protocols=EVERYWHERE)
def handler_outlives_the_drain_and_fails(field: Field) -> None:
    """Handlers of a member that leaves outlive the drain and then fail: its successor alone runs them again."""
    a, b = field.start("a"), field.start("b")
    field.flow(150)
    field.until_spread(a, b)
    field.until_started(field.send_slow(5_000, fail_at=("a",)))
    field.stop(a)
    field.until_spread(b)


def _all_dead_letters_there(outcome: Outcome) -> list[str]:
    # By ownership: a record that moves between two attempts is the new owner's to try as often as the policy says.
    tries = Counter((each.where, each.pid, each.epoch) for each in outcome.ran if each.outcome == "fail")
    failed = {where for where, _, _ in tries}
    found = [] if failed else ["nothing failed: nothing was shown"]
    found += [f"{where} was tried {count} times by pid {pid}" for (where, pid, _), count in tries.items() if count > 3]
    if sum(outcome.dead_letters.values()) != len(failed):
        found.append(f"{len(failed)} records failed for good, dead letters by partition: {outcome.dead_letters}")
    return found


@story(config={"attempts": 3}, kinds=_HOLDFAST, check=_all_dead_letters_there, protocols=EVERYWHERE)
def poison_in_rolling_restart(field: Field) -> None:
    """Orders on which everybody fails end in the dead letter, once, also while members come and go."""
    field.add_dead_letters()
    for name in "abc":
        field.start(name)
    field.flow()
    field.until_spread(*field.members.values())
    for name in "abc":
        for _ in range(10):
            field.traffic.send(field.topic, field.traffic.next(fail_at=("*",)))
        field.stop(field.members[name])
        field.start(name)
        field.until_spread(*field.members.values())
