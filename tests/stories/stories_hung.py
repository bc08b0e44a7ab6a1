"""Stories of handlers that hang: for ever, or with the interpreter lock in their hands."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tests.harness.group.config import EVERYWHERE
from tests.harness.group.story import story

if TYPE_CHECKING:
    from tests.harness.group.field import Field
    from tests.harness.group.outcome import Outcome

_HOLDFAST = ("holdfast",)
_LIMITS = {"handler_timeout_s": 2.0, "handler_grace_s": 1.0}


def _one_letter_each(outcome: Outcome) -> list[str]:
    runs = Counter(each.key for each in outcome.ran if each.key in outcome.given_up)
    found = [] if runs else ["nothing hung: nothing was shown"]
    found += [f"{key}, which hangs, was started {times} times" for key, times in runs.items() if times != 1]
    if sum(outcome.dead_letters.values()) != len(runs):
        found.append(f"{len(runs)} records hung, dead letters by partition: {outcome.dead_letters}")
    return found


@story(config=_LIMITS, kinds=_HOLDFAST, check=_one_letter_each, protocols=EVERYWHERE)
def hang(field: Field) -> None:
    """Handlers hang for ever: their records go to the dead letter, all others go on, members come and go."""
    field.add_dead_letters()
    a, b = field.start("a"), field.start("b")
    field.flow(150)
    field.until_spread(a, b)
    field.until_started(field.send_hung("*"))
    field.until_dead_letters(8)
    c = field.start("c")
    field.until_spread(a, b, c)
    field.stop(a)  # its threads hang still
    field.until_spread(b, c)


@story(config=_LIMITS | {"drain_timeout_s": 0.5}, kinds=_HOLDFAST, check=_one_letter_each, protocols=EVERYWHERE)
def hang_through_a_hand_over(field: Field) -> None:
    """Partitions move while their handlers hang: whoever waits for them finds them settled by the dead letter."""
    field.add_dead_letters()
    a = field.start("a")
    field.flow(150)
    field.until_works(a)
    field.until_started(field.send_hung("*"))
    b = field.start("b")
    field.until_dead_letters(8)
    field.until_spread(a, b)
    field.until_started(field.send_hung("*", partitions=[0, 1, 2, 3]))
    field.stop(a)
    field.until_spread(b)


@story(config=_LIMITS, kinds=_HOLDFAST, protocols=EVERYWHERE)
def hang_without_a_dead_letter(field: Field) -> None:
    """The member whose handler hangs ends by itself, and says so; its successor waits for its lease, no longer."""
    a, b = field.start("a"), field.start("b")
    field.flow(150)
    field.until_spread(a, b)
    a.may_end = True  # 3 s after it has started the first
    hung = field.send_hung("a")
    field.until_ended(a)
    field.may_die(a)
    if a.process.returncode == 0 or "HandlerHung" not in a.log.read_text():
        raise field.error("a did not end by HandlerHung")
    field.until_done(hung)
    field.until_spread(b)


def _nothing_again(outcome: Outcome) -> list[str]:
    return [f"{len(outcome.repeats)} records were run again"] if outcome.repeats else []


@story(
    config={"session_timeout_ms": 3_000, "max_poll_interval_ms": 6_000, "drain_timeout_s": 1.0},
    kinds=_HOLDFAST,
    check=_nothing_again,
)
def spin(field: Field) -> None:
    """A handler of each partition computes in Python for longer than the poll interval: that costs time, no more."""
    a, b = field.start("a"), field.start("b")
    field.flow(50)
    field.until_spread(a, b)
    settled = field.until_even(a, b)
    field.until_done(field.send_spinning(8_000), within_s=60)
    field.until_spread(a, b)  # who was thrown out has heard of it
    field.nothing_moved(settled)


@story(kinds=_HOLDFAST, check=_nothing_again)
def lock_for_less_than_the_lease(field: Field) -> None:
    """A handler keeps the interpreter lock for less than the lease: nobody notices, nothing runs again."""
    a, b = field.start("a"), field.start("b")
    field.flow(150)
    field.until_spread(a, b)
    # The last renewal may be 2 s old when it begins, and the machine may stand still when it ends.
    field.until_done(field.send_locking(2_000, partitions=[0]))
    field.until_spread(a, b)


@story(kinds=_HOLDFAST)
def lock_for_longer_than_the_lease(field: Field) -> None:
    """The session dies at the store, the membership lives: the member finds its session lost, and begins another."""
    a, b = field.start("a"), field.start("b")
    field.flow(150)
    field.until_spread(a, b)
    holding = field.send_locking(12_000, partitions=[0])
    field.until_started(holding)
    field.may_die(field.owner_of(holding[0]))
    field.until_done(holding)
    field.until_spread(a, b)


@story(config={"session_timeout_ms": 6_000, "max_poll_interval_ms": 8_000, "drain_timeout_s": 1.0}, kinds=_HOLDFAST)
def lock_for_longer_than_the_poll_interval(field: Field) -> None:
    """The group goes on without the member, and its session is dead: a successor runs what it had in hand.

    Once: a handler that is so slow everywhere is never done, since each time another has taken over before it ends.
    """
    a, b = field.start("a"), field.start("b")
    field.flow(150)
    field.until_spread(a, b)
    holding = field.send_locking(16_000, partitions=[0], lock_once=True)
    field.until_started(holding)
    holder = field.owner_of(holding[0])
    field.may_die(holder)
    field.until_spread(b if holder is a else a)
    field.until_done(holding)
    field.until_spread(a, b)
