"""The engine driven by somebody else's loop: what is handed out, what counts as done, and when."""

from __future__ import annotations

import linecache
import random
import sys
import threading
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self, cast

import pytest

from holdfast import MemoryClaims, Ramp, Settings
from holdfast.dedup.keys import resolve_key
from holdfast.dedup.memory_session import MemorySession
from holdfast.errors import SourceError, SourceUnavailable
from holdfast.plugin.engine.partition.ownership import Ownership, Phase
from holdfast.plugin.events import MuchInHand, SessionLost
from holdfast.plugin.handlers import Handler, Routes
from holdfast.plugin.own_loop import lending
from holdfast.plugin.own_loop.driven import Driven
from holdfast.testing.brokers.kafka import MemoryBroker
from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource
from tests.harness.engine import FlakyClaims, numbered, partition
from tests.harness.waiting import PATIENCE_S, until
from tests.tiers import examples, first_and_full

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from holdfast.dedup.claims import ClaimStore
    from holdfast.plugin.audit.settings import Audit
    from holdfast.plugin.events import Event
    from holdfast.plugin.own_loop.user_loop import DoneWhen
    from holdfast.records import Record

#: What may be in the process.
SMALL: dict[str, Any] = {"max_in_flight": 10, "workers": 1}


class Loops:
    """Loops of one group, driven by the test's own thread."""

    def __init__(self, partitions: int = 1, claims: ClaimStore | None = None) -> None:
        self.broker = MemoryBroker(orders=partitions)
        self.claims = claims or MemoryClaims()
        self.made: list[Driven] = []
        self.events: list[Event] = []

    def on_event(self, event: Event) -> None:
        self.events.append(event)

    def loop(
        self, done_when: DoneWhen = "next_poll", *, key: Any = None, audit: Audit | None = None, **settings: Any
    ) -> Driven:
        routes = Routes()
        routes.add(Handler(name="loop", call=print, topics=("^",), key=key and resolve_key(key)))
        source = MemoryPartitionedSource(self.broker)
        made = Driven(
            source,
            done_when=done_when,
            store=self.claims,
            routes=routes,
            settings=Settings(
                **(
                    {"ramp": None, "commit_interval_s": 0.05, "drain_timeout_s": 0.2, "linger_timeout_s": 0.2}
                    | settings
                )
            ),
            observers=[self],
            audit=audit,
        )
        made.begin(["orders"])
        self.made.append(made)
        return made

    def produce(self, *values: str, number: int = 0) -> None:
        self.broker.produce("orders", number, *values)

    def committed(self, number: int = 0) -> int | None:
        return self.broker.group("g").offset(partition(number))


@pytest.fixture
def loops() -> Iterator[Loops]:
    made = Loops()
    yield made
    for each in made.made:
        if each.parts.sessions.session is not None:
            end(each)
    made.claims.close()


def end(loop: Driven) -> None:
    with loop.lock, loop.whole():
        loop.end_of_loop()


def take(loop: Driven, at_most: int = 100, timeout_s: float = 0.0) -> list[str]:
    with loop.lock, loop.whole():
        return [(record.value or b"").decode() for record in loop.take(at_most, timeout_s)]


def records(loop: Driven, at_most: int = 100) -> list[Record]:
    """As `KafkaConsumer` takes them."""
    with loop.lock:
        if at_most == 1 and loop.done_when == "next_poll" and (record := loop.take_quick()) is not None:
            loop.user.gave()
            return [record]
        with loop.whole():
            return list(loop.take(at_most, 0.0))


def taken(loop: Driven, count: int, timeout_s: float = 0.0) -> list[str]:
    got: list[str] = []
    until(lambda: _more(got, loop, timeout_s) >= count)
    return got


def _add(got: list[Record], loop: Driven, at_most: int = 100) -> int:
    got += records(loop, at_most)
    return len(got)


def _more(got: list[str], loop: Driven, timeout_s: float = 0.0) -> int:
    got += take(loop, timeout_s=timeout_s)
    return len(got)


@pytest.mark.parametrize("done_when", ["next_poll", "commit", "explicit"])
def test_what_is_given_back_comes_before_what_lies_behind_it(loops: Loops, done_when: DoneWhen) -> None:
    loops.produce(*numbered("r", range(20)))
    loop = loops.loop(done_when)
    got: list[Record] = []
    until(lambda: _add(got, loop, 1) >= 1)
    until(lambda: _add(got, loop, 1) >= 2)
    loop.again(partition(0), got[-1].offset)
    until(lambda: _add(got, loop, 1) >= 3)
    assert [record.offset for record in got[:3]] == [0, 1, 1]


def test_no_more_than_a_mark_batch_is_handed_out_one_by_one_before_it_is_marked(loops: Loops) -> None:
    loops.produce(*numbered("r", range(100)))
    loop = loops.loop("next_poll", mark_batch=2)
    got: list[Record] = []
    for count in range(1, 101):
        until(lambda more=count: _add(got, loop, 1) >= more)  # type: ignore[misc]
        owner = loop.family.owners[partition(0)]
        assert owner.ledger.watermark >= len(got) - 1 - 2  # the last one may still be handled


def test_a_bound_of_what_may_be_in_hand_holds_and_polling_goes_on(loops: Loops) -> None:
    loops.produce(*numbered("r", range(200)))
    loop = loops.loop("explicit", max_in_flight=10, workers=1)
    got: list[Record] = []
    until(lambda: _add(got, loop) >= 10)
    source = loop.family.source
    assert isinstance(source, MemoryPartitionedSource)
    polls = source.polls
    until(lambda: _add(got, loop) and source.polls > polls + 50)
    assert len(got) <= 10 + 64  # the bound, and what each partition may have in any case
    for record in got:
        loop.end(record.partition, record.offset)
    until(lambda: records(loop))


def test_nothing_is_handed_out_while_the_store_is_away_and_nothing_twice_when_it_is_back() -> None:
    store = FlakyClaims()
    loops = Loops(claims=store)
    loops.produce("a", "b")
    loop = loops.loop()
    assert taken(loop, 2) == ["a", "b"]
    store.go_down()
    until(lambda: take(loop) == [] and loop.parts.sessions.stalled)  # with the first mark that gets no answer
    loops.produce("c")
    assert [take(loop, timeout_s=0.01) for _ in range(5)] == [[]] * 5
    store.come_back()
    assert taken(loop, 1) == ["c"]
    assert take(loop, timeout_s=0.05) == []
    end(loop)
    second = loops.loop()
    assert take(second, timeout_s=0.1) == []
    end(second)
    store.close()


def test_what_stops_the_engine_is_raised_again_and_again_and_nothing_is_handed_out(loops: Loops) -> None:
    loops.produce("a")
    loop = loops.loop()
    assert taken(loop, 1) == ["a"]
    source = loop.family.source
    assert isinstance(source, MemoryPartitionedSource)
    source.fail("poll", SourceError("the log has a hole"))
    loops.produce("behind the hole")
    for _ in range(3):
        with pytest.raises(SourceError, match="hole"):
            until(lambda: take(loop))


def test_what_is_done_while_the_loop_is_elsewhere_is_marked_by_then(loops: Loops) -> None:
    loops.produce("a", "b")
    loop = loops.loop()
    until(lambda: take(loop, 1) == ["a"])
    assert take(loop, 1) == ["b"]
    until(lambda: loop.parts.settling.waiting == 0)  # nobody polls
    assert isinstance(loops.claims, MemoryClaims)
    assert loops.claims.state.position("g/orders/1/0").is_done(0)
    assert not loops.claims.state.position("g/orders/1/0").is_done(1)


@pytest.mark.parametrize("done_when", ["commit", "explicit"])
def test_a_thread_that_has_ended_all_waits_for_no_poll_and_ends_nothing_that_came_later(
    loops: Loops, done_when: DoneWhen
) -> None:
    loops.produce("a", "b")
    loop = loops.loop(done_when)
    assert taken(loop, 2) == ["a", "b"]
    with loop.lock:  # as a poll that waits has it
        telling = threading.Thread(target=loop.end_returned)
        telling.start()
        telling.join(PATIENCE_S)
        assert not telling.is_alive()
        loops.produce("c")
        with loop.whole():
            while not (came := loop.take(5, 0.0)):
                pass
    assert [record.value for record in came] == [b"c"]
    until(lambda: take(loop) == [] and loops.committed() == 2)
    assert [entry.record.offset for entry in loop.user.handed_out] == [2]


@pytest.mark.parametrize("below", [False, True], ids=["all that was returned", "all below an offset"])
def test_what_was_given_back_and_comes_again_is_ended_with_what_came_before_it(loops: Loops, below: bool) -> None:
    loops.produce("a", "b", "c")
    loop = loops.loop("explicit")
    assert taken(loop, 3) == ["a", "b", "c"]
    loop.again(partition(), 0)
    assert taken(loop, 1) == ["a"]
    if below:
        with loop.lock, loop.whole():
            loop.end_below(partition(), 1)
    else:
        loop.end_returned()
    until(lambda: take(loop) == [] and loops.committed() == (1 if below else 3))


def test_an_explicit_loop_keeps_nothing_of_what_it_has_ended(loops: Loops) -> None:
    loop = loops.loop("explicit")
    for hand_over in range(5):
        loops.produce("a", "b")
        assert taken(loop, 2) == ["a", "b"]
        for offset in range(2 * hand_over, 2 * hand_over + 2):
            loop.end(partition(), offset)
        until(lambda: take(loop) == [] and not loop.unfinished)
        assert loop.user.handed_out.ownerships == 0
        source = loop.family.source
        assert isinstance(source, MemoryPartitionedSource)
        loops.broker.group("g").lose(source, partition())  # and it comes back: another ownership


def test_what_comes_again_is_handed_out_in_its_place(loops: Loops) -> None:
    loops.produce("a", "b", "c", "d")
    loop = loops.loop("explicit")
    got: list[Record] = []
    until(lambda: _add(got, loop, 3) >= 3)
    for offset in (2, 0):
        loop.again(partition(), offset)
    assert taken(loop, 3) == ["a", "c", "d"]


def test_a_lost_session_hands_out_again_what_was_not_done(loops: Loops) -> None:
    loops.produce("a", "b")
    loop = loops.loop("commit")
    assert taken(loop, 2) == ["a", "b"]
    loop.end_below(partition(), 1)
    until(lambda: loop.parts.settling.waiting == 0)
    assert loop.parts.sessions.session is not None
    assert isinstance(loops.claims, MemoryClaims)
    loops.claims.expire(loop.parts.sessions.session.id)
    loop.parts.sessions.session.renew()
    assert taken(loop, 1) == ["b"]
    loop.end_below(partition(), 2)
    until(lambda: take(loop) == [] and loops.committed() == 2)
    assert loop.parts.intake.records == 0


def test_a_seek_outlives_a_session_that_is_lost_before_it_took_effect(loops: Loops) -> None:
    """So does whatever else was set while the partition is not taken over yet: its broker may be away for long."""
    loops.produce("a", "b")
    loop = loops.loop()
    assert taken(loop, 2) == ["a", "b"]
    until(lambda: take(loop) == [] and loops.committed() == 2)
    source: Any = loop.family.source
    source.fail("committed", *[SourceUnavailable("no leader")] * 1000)
    loop.read_from(partition(), 0)
    until(lambda: take(loop) == [] and source.failing("committed") < 1000)
    assert loop.parts.sessions.session is not None
    assert isinstance(loops.claims, MemoryClaims)
    loops.claims.expire(loop.parts.sessions.session.id)
    loop.parts.sessions.session.renew()
    until(lambda: take(loop) == [] and any(isinstance(event, SessionLost) for event in loops.events))
    source.forgive("committed")
    assert taken(loop, 2) == ["a", "b"]


def test_a_key_in_hand_elsewhere_is_waited_for(loops: Loops) -> None:
    loops.broker.create("orders", 2)
    group = loops.broker.group("g")
    one, two = loops.loop("explicit", key=lambda r: r.value), loops.loop("explicit", key=lambda r: r.value)
    sources: list[Any] = [one.family.source, two.family.source]
    group.aim({sources[0]: [partition(0)], sources[1]: [partition(1)]})
    loops.produce("same")
    until(lambda: take(two) == [] and take(one) == ["same"])
    loops.produce("same", "other", number=1)
    assert [take(two, timeout_s=0.02) for _ in range(5)] == [[]] * 5
    one.end(partition(0), 0)
    until(lambda: take(one) == [] and one.parts.settling.waiting == 0)
    assert taken(two, 1) == ["other"]


def test_a_thread_that_has_a_record_is_waited_for_within_the_drain(loops: Loops) -> None:
    loops.produce("a", "b")
    loop = loops.loop("explicit", drain_timeout_s=PATIENCE_S, linger_timeout_s=PATIENCE_S)
    assert taken(loop, 2) == ["a", "b"]
    work = threading.Thread(target=loop.end, args=(partition(), 0))
    work.start()
    work.join()
    asked, ending = threading.Event(), threading.Thread(target=end, args=(loop,))

    def finish() -> None:
        asked.wait()
        loop.end(partition(), 1)

    finishing = threading.Thread(target=finish)
    finishing.start()
    ending.start()
    until(lambda: [owner.phase for owner in list(loop.family.owners.values())] == [Phase.FENCED])
    assert ending.is_alive()
    asked.set()
    ending.join(PATIENCE_S)
    finishing.join()
    assert not ending.is_alive()
    assert loops.committed() == 2


@pytest.mark.parametrize("done_when", ["next_poll", "commit", "explicit"])
@pytest.mark.parametrize("seed", first_and_full(range(10), 4))
def test_whatever_happens_to_the_group_every_record_is_done_once(  # noqa: C901 - one history, read top down
    seed: int, done_when: DoneWhen
) -> None:
    """Loops come, go, take, do, give back; partitions move with them. What a loop says is done, no loop gets again."""
    dice, loops, done = random.Random(seed), Loops(partitions=6), Counter[str]()
    members: list[Driven] = []
    hands: dict[Driven, list[Record]] = {}
    produced = 0

    def come() -> None:
        members.append(loops.loop(done_when, key=(lambda record: record.value) if seed % 2 else None))
        hands[members[-1]] = []

    def go(member: Driven) -> None:
        do(member)
        with member.lock, member.whole():
            if done_when == "next_poll":
                member.end_all()
        members.remove(member)
        end(member)

    def do(member: Driven) -> None:
        """It has handled what it has: it says so in its way."""
        if not hands[member]:
            return
        with member.lock, member.whole():
            for record in hands[member]:
                if done_when == "explicit":
                    member.end(record.partition, record.offset)
                elif done_when == "commit":
                    member.end_below(record.partition, record.offset + 1)
        done.update((record.value or b"").decode() for record in hands[member])
        hands[member].clear()

    def turn(member: Driven) -> None:
        if done_when == "next_poll" or dice.random() < 0.7:
            do(member)
        # What is not done and whose partition goes inside this take is another's: "commit" and "next_poll".
        came = records(member, dice.choice([1, 1, 1, 5, 50]))
        hands[member] = [r for r in hands[member] if done_when == "explicit" or not r.cancelled] + came

    come()
    for _ in range(300):
        step = dice.random()
        if step < 0.3:
            values = numbered("r", range(produced, produced + dice.randrange(1, 8)))
            produced += len(values)
            loops.produce(*values, number=dice.randrange(6))
        elif step < 0.33 and len(members) < 4:
            come()
        elif step < 0.36 and len(members) > 1:
            go(dice.choice(members))
        else:
            turn(dice.choice(members))

    def all_done() -> bool:
        for member in members:
            do(member)
            turn(member)
        return sum(done.values()) >= produced and not any(hands.values())

    until(all_done, f"{produced - len(done)} are missing")
    assert done == Counter(numbered("r", range(produced)))
    ends = {number: loops.broker.logs[partition(number)].end for number in range(6)}
    until(lambda: all_done() and {number: loops.committed(number) or 0 for number in range(6)} == ends)
    while members:
        go(members[0])
    loops.claims.close()


class Interrupt:
    """Raises KeyboardInterrupt in the engine's line of that number, counted from here, as a signal handler would."""

    def __init__(self, line: int, where: str = "") -> None:
        """Args: where: only lines of the functions of that name count, in files of that name: "driven.py:whole"."""
        self.left = line
        self.struck = ""
        self._file, _, self._function = where.partition(":")

    def __enter__(self) -> Self:
        sys.settrace(self._frame)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _frame(self, frame: FrameType, _event: str, _arg: object) -> Any:
        # The memory store is a server: what was asked of it happens or does not.
        code = frame.f_code
        meant = code.co_filename.endswith(self._file) and self._function in (code.co_name, "")
        return self._line if "/holdfast/plugin/" in code.co_filename and meant else None

    def _line(self, frame: FrameType, event: str, _arg: object) -> Any:
        if event == "line":
            self.left -= 1
            # Not at the end of a `with`, before its lock is let go: no signal is seen between these two instructions.
            statement = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
            if self.left < 0 and not self.struck and not statement.startswith("with "):
                self.struck = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                raise KeyboardInterrupt
        return self._line


def interrupted(line: int, done_when: DoneWhen, at_most: int, where: str = "") -> None:  # noqa: C901 - one history, read top down
    """One history with one interrupt, which the loop swallows."""
    loops, returned = Loops(partitions=3), Counter[str]()
    hand: list[Record] = []
    interrupt = Interrupt(line, where)
    for number in range(3):
        loops.broker.group("g").set_offset(partition(number), 0, ours=True)  # somebody had it before: the ramp holds it
    key = (lambda record: record.value) if line % 2 else None
    loop = loops.loop(done_when, key=key, ramp=Ramp(floor_per_s=1_000.0) if line % 3 else None)
    values = numbered("r", range(30))
    produced = iter(values)

    def call(what: Callable[[], Any]) -> Any:
        with suppress(KeyboardInterrupt), interrupt:
            return what()

    def say_done() -> None:
        with loop.lock, loop.whole():
            for record in hand:
                if done_when == "explicit":
                    loop.end(record.partition, record.offset)
                elif done_when == "commit":
                    loop.end_below(record.partition, record.offset + 1)

    def turn() -> None:
        call(say_done)
        came = call(lambda: records(loop, at_most)) or []
        hand.extend(came)
        returned.update((record.value or b"").decode() for record in came)

    def committed() -> int:
        return sum(loops.committed(number) or 0 for number in range(3))

    def comes_true(over: Callable[[], bool], what: Callable[[], str]) -> None:
        until(over, lambda: f"interrupted at {interrupt.struck}: {what()}", meanwhile=turn)

    try:
        for number, value in enumerate(produced):
            loops.produce(value, number=number % 3)
            turn()
            assert committed() <= len(returned), interrupt.struck
        comes_true(lambda: len(returned) == 30, lambda: f"{set(values) - set(returned)} did not come")
        comes_true(lambda: committed() == 30, lambda: f"{committed()} of 30 are committed")
    finally:
        end(loop)
        loops.claims.close()


@pytest.mark.parametrize("at_most", [1, 5])
@pytest.mark.parametrize("done_when", ["next_poll", "commit", "explicit"])
def test_a_loop_that_goes_on_after_ctrl_c_misses_nothing(done_when: DoneWhen, at_most: int) -> None:
    """Wherever it strikes: what the client had given, or was about to be handed out, comes again."""
    dice = random.Random(f"{done_when} {at_most}")
    for _ in range(examples(15)):
        interrupted(dice.randrange(6_000), done_when, at_most)


@pytest.mark.parametrize("at_most", [1, 5])
@pytest.mark.parametrize(
    ("where", "lines"),
    [
        ("driven.py:whole", 40),
        ("driven.py:_came_through", 4),
        ("user_loop.py:note_returned", 3),
        ("user_loop.py:came_through", 2),
        ("user_loop.py:give", 30),
        ("ledger.py:polled_all", 12),
        ("ledger.py:settle_all", 30),
    ],
)
def test_a_call_that_is_torn_at_its_edges_or_in_the_ledger_is_mended(where: str, lines: int, at_most: int) -> None:
    """Each line in turn. Few histories of chance strike there, and what was left torn there stayed so for ever."""
    for line in range(lines):
        interrupted(30 + line, "next_poll", at_most, where)


@pytest.mark.parametrize("done_when", ["next_poll", "commit", "explicit"])
def test_what_has_ended_is_settled_wherever_the_call_is_torn_that_notes_it(done_when: DoneWhen) -> None:
    for line in range(14):
        interrupted(30 + line, done_when, 5, "settling.py:ended")


@pytest.mark.parametrize(
    "where", ["user_loop.py:ended", "user_loop.py:_end", "user_loop.py:ended_returned", "user_loop.py:take_back"]
)
@pytest.mark.parametrize("done_when", ["next_poll", "explicit"])
def test_what_the_loop_has_said_does_not_come_again_wherever_the_call_is_torn_that_notes_it(
    done_when: DoneWhen, where: str
) -> None:
    for line in range(14):
        loops = Loops(partitions=1)
        loops.produce(*numbered("r", range(6)))
        loop = loops.loop(done_when)
        first: list[Record] = []
        until(lambda loop=loop, first=first: _add(first, loop, 1) >= 3)  # type: ignore[misc]
        if done_when == "explicit":
            loop.end(partition(0), 0)
            loop.end_returned()
        got = [(record.value or b"").decode() for record in first]
        with suppress(KeyboardInterrupt), Interrupt(line, where) as interrupt:
            got += take(loop)
        until(lambda loop=loop, got=got: _more(got, loop) >= 6, f"interrupted at {interrupt.struck}: {got}")  # type: ignore[misc]
        assert got == numbered("r", range(6)), interrupt.struck
        end(loop)
        loops.claims.close()


@pytest.mark.parametrize("at_most", [1, 5])
def test_an_assignment_that_is_torn_is_made_up_for(at_most: int) -> None:
    for line in range(8):
        interrupted(line, "next_poll", at_most, "partitions.py:assigned")


@pytest.mark.parametrize(
    ("where", "lines"), [("partitions.py:revoked", 1), ("partitions.py:_go", 10), ("hand_over.py:let_go", 8)]
)
def test_a_hand_over_that_is_torn_is_made_up_for(where: str, lines: int) -> None:
    """Its next owner waits for ours to be let go, whatever the client says."""
    for line in range(lines):
        loops = Loops(partitions=2)
        loops.produce("a")
        loops.produce("b", number=1)
        one = loops.loop()
        assert sorted(taken(one, 2)) == ["a", "b"]
        two = loops.loop()
        with suppress(KeyboardInterrupt), Interrupt(line, where) as interrupt:
            until(lambda loop=one, by=interrupt: take(loop) == [] and bool(by.struck))  # type: ignore[misc]
        target = loops.broker.group("g").target
        moved = next(at for at, seat in target.items() if cast("object", seat.member) is two.family.source)
        loops.produce("c", number=moved.number)
        got: list[str] = []
        stands = f"interrupted at {interrupt.struck}: it stands still"
        until(lambda loop=one, other=two, got=got: take(loop) == [] and _more(got, other) >= 1, stands)  # type: ignore[misc]
        assert got == ["c"]
        end(one)
        end(two)
        loops.claims.close()


def test_what_the_ramp_holds_comes_while_the_loop_waits_for_it(loops: Loops) -> None:
    loops.broker.group("g").set_offset(partition(0), 0, ours=True)  # somebody had it before
    loops.produce(*numbered("r", range(60)))
    loop = loops.loop(ramp=Ramp(floor_per_s=300.0))
    assert taken(loop, 60, timeout_s=0.05) == numbered("r", range(60))
    assert loop.parts.intake.climb.held


@pytest.mark.parametrize("at_most", [1, 7])
def test_a_loop_that_gathers_more_than_may_be_in_the_process_before_it_commits_gets_it_and_is_told(
    loops: Loops, at_most: int
) -> None:
    loops.produce(*numbered("r", range(200)))
    loop = loops.loop("commit", max_in_flight=10, workers=1)
    got: list[Record] = []
    until(lambda: _add(got, loop, at_most) >= 200)
    told = [event for event in loops.events if isinstance(event, MuchInHand)]
    assert 1 <= len(told) <= 5  # once, and at twice as much each time
    with loop.lock, loop.whole():
        loop.end_all()
    until(lambda: take(loop) == [] and loops.committed() == 200)


@pytest.mark.parametrize("at_most", [1, 50])
def test_a_loop_that_gathers_more_bytes_than_may_be_in_the_process_gets_them(loops: Loops, at_most: int) -> None:
    loops.produce(*["x" * 1000] * 50)
    loop = loops.loop("commit", max_in_flight_bytes=4000)
    got: list[Record] = []
    until(lambda: _add(got, loop, at_most) >= 50)


@pytest.mark.parametrize("done_when", ["next_poll", "commit"])
@pytest.mark.parametrize("bound", [{"max_in_flight": 10, "workers": 1}, {"max_in_flight_bytes": 1000}])
def test_a_call_gets_as_many_as_it_asks_for_whatever_may_be_in_the_process(
    loops: Loops, done_when: DoneWhen, bound: dict[str, Any]
) -> None:
    loops.produce(*["x" * 100] * 90)
    loop = loops.loop(done_when, **bound)
    until(lambda: loop.family.owners, meanwhile=lambda: take(loop, 1, 0.0) if not loop.family.owners else None)
    assert len(take(loop, 80, PATIENCE_S)) >= 79


def test_partitions_that_a_loop_wants_go_on_while_it_has_many_of_another(loops: Loops) -> None:
    loops.broker.create("orders", 2)
    loops.produce(*numbered("a", range(150)), number=0)
    loop = loops.loop("commit", max_in_flight=10, workers=1)
    got: list[Record] = []
    until(lambda: _add(got, loop) >= 150)
    loops.produce(*numbered("b", range(150)), number=1)
    until(lambda: _add(got, loop) >= 300)


@pytest.mark.parametrize("done_when", ["next_poll", "commit"])
def test_fresh_records_come_in_the_next_call_beside_a_backlog_that_waits(
    monkeypatch: pytest.MonkeyPatch, done_when: DoneWhen
) -> None:
    monkeypatch.setattr("holdfast.plugin.engine.flow.intake._EARLY", 40)
    monkeypatch.setattr("holdfast.plugin.engine.flow.intake._TURN_S", 0.0)
    monkeypatch.setattr("holdfast.plugin.own_loop.driven._AHEAD_S", 0.0)
    loops = Loops(partitions=2)
    loop = loops.loop(done_when, max_in_flight=400)
    loops.produce(*numbered("a", range(2_000)))
    intake = loop.parts.intake
    until(
        lambda: intake.waiting.records > 0 and intake.paused == 1 and loop._ready(20) == 20,
        lambda: f"{intake.waiting.records} wait, {intake.paused} paused, {intake.records} here",
        meanwhile=lambda: take(loop, 1),
    )
    paused = [each.paused for each in loop.snapshot().partitions]
    assert paused == ["enough of it waits in this process", None]
    monkeypatch.setattr("holdfast.plugin.engine.flow.intake._TURN_S", PATIENCE_S)  # nothing is behind the backlog now
    loops.produce(*numbered("b", range(8)), number=1)
    came = take(loop, 20) + take(loop, 20)
    assert [each for each in came if each.startswith("b")] == numbered("b", range(8))
    loop.user.hold([partition(1)])
    assert loop.snapshot().partitions[1].paused == "the application's loop has paused it, or left it out"
    end(loop)


def test_a_partition_that_the_loop_lets_go_on_is_fetched_while_records_of_it_still_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("holdfast.plugin.engine.flow.intake._TURN_S", 0.0)
    loops = Loops(partitions=2)
    loop = loops.loop(max_in_flight=400)
    loops.produce(*numbered("a", range(2_000)))
    intake = loop.parts.intake
    until(lambda: intake.waiting.records > 100, meanwhile=lambda: take(loop, 20))
    with loop.lock, loop.whole():
        loop.user.hold([partition()])
    until(lambda: intake.paused == 1, meanwhile=lambda: take(loop, 20))
    with loop.lock, loop.whole():
        loop.user.let([partition()])
    until(lambda: intake.paused == 0, meanwhile=lambda: take(loop, 1))
    assert intake.waiting.records > 0
    end(loop)


def test_a_partition_that_the_loop_has_paused_is_not_read_while_another_is_held_back_nor_after_that() -> None:
    loops = Loops(partitions=2)
    loop = loops.loop("explicit", max_ahead=50, max_in_flight=20)
    until(lambda: loop.parts.intake.paused == 0 and len(loop.family.owners) == 2, meanwhile=lambda: take(loop))
    with loop.lock, loop.whole():
        loop.user.hold([partition(1)])
    loops.produce(*numbered("a", range(200)))
    open_one: list[Record] = []

    def end_but_the_first() -> None:
        for record in records(loop, 20):
            if record.offset:
                loop.end(record.partition, record.offset)
            else:
                open_one.append(record)

    far = loop.family.partitions.held_back
    until(lambda: bool(far._far_ahead), meanwhile=end_but_the_first)
    loops.produce(*numbered("b", range(10)), number=1)
    held, polled = loop.parts.intake, loop.parts.meter.polled
    for _ in range(50):
        end_but_the_first()
        assert held.held >= {partition(1)}
    loop.end(open_one[0].partition, open_one[0].offset)
    until(lambda: loops.committed() == 200, meanwhile=end_but_the_first)
    assert loop.parts.meter.polled <= 200
    assert polled <= 200
    with loop.lock, loop.whole():
        loop.user.let([partition(1)])
    came: list[str] = []
    until(lambda: len(came) == 10, meanwhile=lambda: came.extend(take(loop)))
    end(loop)


def test_an_explicit_loop_that_alone_can_end_what_it_has_is_not_starved_for_ever(
    loops: Loops, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lending, "_PATIENCE_S", 0.01)
    loops.produce(*numbered("r", range(200)))
    loop = loops.loop("explicit", max_in_flight=20, workers=1)
    got: list[Record] = []
    until(lambda: _add(got, loop) >= 200)
    assert any(isinstance(event, MuchInHand) for event in loops.events)
    for record in got:
        loop.end(record.partition, record.offset)
    until(lambda: take(loop) == [] and loops.committed() == 200)


def test_what_waits_for_a_key_that_the_loop_has_itself_does_not_slow_the_other_partitions_down(loops: Loops) -> None:
    """Its commit alone ends that wait, and it commits when it has gathered enough."""
    loops.broker.create("orders", 2)
    loops.produce(*["same" * 20] * 100, number=0)
    loop = loops.loop("commit", key=lambda r: r.value, max_in_flight_bytes=1000)
    got: list[Record] = []
    until(lambda: _add(got, loop) >= 1)
    until(lambda: take(loop) == [] and loop.parts.intake.tight)
    loops.produce(*numbered("other", range(50)), number=1)
    others: list[str] = []
    until(lambda: len(others) == 50, meanwhile=lambda: others.extend(take(loop, 50, PATIENCE_S)))


@pytest.mark.parametrize("done_when", ["commit", "explicit"])
def test_what_waits_for_another_members_key_is_bounded_however_much_the_loop_asks(
    loops: Loops, done_when: DoneWhen
) -> None:
    loops.broker.create("orders", 2)
    group = loops.broker.group("g")
    one, two = (loops.loop("explicit", key=lambda r: r.value), loops.loop(done_when, key=lambda r: r.value, **SMALL))
    sources: list[Any] = [one.family.source, two.family.source]
    group.aim({sources[0]: [partition(0)], sources[1]: [partition(1)]})
    loops.produce("same")
    until(lambda: take(two) == [] and take(one) == ["same"])
    loops.produce("same", *numbered("behind", range(500)), number=1)
    until(lambda: take(two) == [] and two.parts.intake.records >= 10)
    for _ in range(50):
        assert take(two, timeout_s=0.005) == []
    assert two.parts.intake.records <= 10 + 64


def test_what_a_loop_has_is_counted_right_when_a_run_is_taken_back(loops: Loops) -> None:
    loops.produce(*numbered("r", range(200)))
    loop = loops.loop("next_poll")
    got: list[Record] = []
    until(lambda: _add(got, loop, 1) >= 5)
    for _ in range(20):
        _add(got, loop, 1)
        with loop.lock, loop.whole():
            loop.user.take_back()  # as at each look at the client
            had = list(loop.user.handed_out)
            assert loop.user.handed_out.records == sum(entry.count for entry in had)
            assert loop.user.handed_out.bytes == sum(entry.size for entry in had)


def test_a_call_that_is_frozen_past_its_lease_hands_out_nothing_of_what_it_has_looked_at_before(
    loops: Loops, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the time that it wakes, another member may have handled it."""
    loops.broker.create("orders", 2)
    for number in (0, 1):
        loops.produce(*numbered(f"p{number}-", range(3)), number=number)
    frozen: list[bool] = []
    lives, enter_all = MemorySession.live, Ownership.enter_all
    monkeypatch.setattr(MemorySession, "live", lambda self: not frozen and lives(self))
    loop = loops.loop("commit")

    def then_freeze(self: Ownership, entries: Any) -> bool:
        entered = enter_all(self, entries)
        frozen.append(True)
        return entered

    monkeypatch.setattr(Ownership, "enter_all", then_freeze)
    until(lambda: take(loop) == [] and frozen != [])
    assert list(loop.user.handed_out) == []
    monkeypatch.undo()
    frozen.clear()
    assert isinstance(loops.claims, MemoryClaims)
    assert loop.parts.sessions.session is not None
    loops.claims.expire(loop.parts.sessions.session.id)
    loop.parts.sessions.session.renew()
    got = taken(loop, 6)
    for number in (0, 1):
        assert [each for each in got if each.startswith(f"p{number}")] == [*numbered(f"p{number}-", range(3))]
