"""Queues of a leased source that move without a word: the first record waits for the former owner; claims decide."""

from __future__ import annotations

import random
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Holdfast, MemoryClaims, Retry, Settings
from holdfast.plugin.audit.schema import Outcome
from holdfast.plugin.engine.leased.queue_leases import _LOOK_EVERY_S
from holdfast.plugin.events import ResetHonoured, SourceTrouble
from tests.harness.audit_events import MemoryEvents
from tests.harness.engine import Letters, Work
from tests.harness.running import Running
from tests.harness.waiting import until
from tests.simulation.brokers.queue_leased import Log, QueueLeasedMember

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


LONG_S = 60.0


class Member(Running):
    """One app."""

    def __init__(self, field: Field, name: str, patience_s: float, ids: str, letters: Letters | None) -> None:
        super().__init__(field.changed, name)
        self.field = field
        self.source = QueueLeasedMember(field.log, field.changed, patience_s=patience_s, ids=ids)
        self.app = Holdfast(
            self.source,
            claims=field.claims,
            settings=Settings(ramp=None),
            observers=[self],
            audit=field.told.audit(name),
            dead_letters=letters,
        )
        given: dict[str, Any] = {"dead_letter": "dlq", "retry": Retry(attempts=1)} if letters else {}
        self.app.handler("jobs", name="handle", **given)(lambda record: field.work.do(name, record))
        self.start()
        field.wait(lambda: hasattr(self.source, "_fence"))

    @property
    def acked(self) -> list[int]:
        return sorted(self.source.acked)

    @property
    def engine(self) -> Any:
        assert self.app._engine is not None
        return self.app._engine

    def lease(self) -> Any:
        (found,) = self.engine.family._queue_leases._leases.values()
        return found

    def waits_with(self, offset: int) -> None:
        """It is the first record here, and waits for the queue's former owner."""
        self.source.deliver(offset)
        self.field.wait(lambda: self.engine.family._queue_leases._leases)

    def look_again(self) -> None:
        """As if half a minute had passed."""
        lease = self.lease()
        lease.believed_at -= _LOOK_EVERY_S
        lease.look_at = 0.0

    def says(self, text: str) -> bool:
        return any(text in event.error for event in self.told(SourceTrouble))


class Field:
    def __init__(self) -> None:
        self.told = MemoryEvents()
        self.changed = threading.Condition()
        self.log, self.work, self.claims = Log(), Work(self.changed), MemoryClaims()
        self.members: list[Member] = []

    def member(
        self, name: str = "a", *, patience_s: float = LONG_S, ids: str = "m", letters: Letters | None = None
    ) -> Member:
        """Args: ids: members that have different ones know each other's records by their positions alone."""
        self.members.append(Member(self, name, patience_s, ids, letters))
        return self.members[-1]

    def successor(self, *, patience_s: float = LONG_S) -> Member:
        """A member to which nothing has come yet, after another, in whose handler offset 5 is held."""
        self.work.hold("5")
        former, later = self.member("former"), self.member("later", patience_s=patience_s)
        former.source.deliver(5)
        self.wait(lambda: self.work.is_running("5"))
        return later

    def wait(self, over: Callable[[], object], what: str = "") -> None:
        """Looked at after each change, and now and then for what nobody notifies of."""
        until(over, what or (lambda: self.work.story[-10:]), changed=self.changed)

    def position(self, number: int = 0) -> Any:
        return self.claims.state.position(f"p/a/{number}")


def _outcomes(told: MemoryEvents, member: str) -> Counter[Outcome]:
    counted: Counter[Outcome] = Counter()
    for span in told.spans(member):
        counted[span.outcome] += span.records
    return counted


@pytest.fixture
def field() -> Iterator[Field]:
    made = Field()
    yield made
    made.claims.speak_again()
    made.work.let_go()
    for member in made.members:
        member.stop()
    made.claims.close()


class TestTheLease:
    def test_the_first_record_waits_until_the_former_owner_has_ended_what_it_had_in_hand(self, field: Field) -> None:
        later = field.successor()
        later.waits_with(6)
        assert field.work.values() == []
        field.work.let_go()
        field.wait(lambda: later.acked == [6])
        assert field.work.values() == ["5", "6"]

    def test_one_that_died_is_waited_for_until_its_session_has_ended(self, field: Field) -> None:
        later = field.successor()
        later.waits_with(6)
        field.claims.expire(field.members[0].engine.parts.sessions.session.id)
        field.wait(lambda: later.acked == [6])

    def test_a_wait_has_an_end_and_then_the_claims_decide(self, field: Field) -> None:
        later = field.successor(patience_s=0.05)
        later.source.deliver(5, 6)
        field.wait(lambda: later.acked == [6])
        assert later.says("claims protect its records")
        field.work.let_go()
        field.wait(lambda: later.acked == [5, 6])
        assert sorted(field.work.values()) == ["5", "6"]

    def test_two_that_both_have_a_queue_run_each_record_once_in_whatever_order(self, field: Field) -> None:
        rng = random.Random(7)
        both = [field.member("a", patience_s=0.02), field.member("b", patience_s=0.02)]
        left = [list(range(200)) for _ in both]
        for offsets in left:
            rng.shuffle(offsets)
        while any(left):
            at = rng.randrange(2)
            for _ in range(rng.randrange(8)):
                if left[at]:
                    both[at].source.deliver(left[at].pop())
        field.wait(lambda: all(len(member.acked) == 200 for member in both))
        assert set(field.work.starts().values()) == {1}
        assert len(field.work.starts()) == 200

    def test_a_queue_is_let_go_when_nothing_of_it_comes_any_more(self, field: Field) -> None:
        member = field.member()
        member.source.deliver(1)
        field.wait(lambda: field.position().epoch > 0 and field.position().owner is None)
        assert member.acked == [1]

    def test_queues_do_not_wait_for_each_other(self, field: Field) -> None:
        later = field.successor()
        later.source.deliver(6)
        later.source.deliver(7, number=1)
        field.wait(lambda: later.acked == [7])


class TestTheWatermark:
    def test_what_the_former_owner_has_done_is_acknowledged_without_running(self, field: Field) -> None:
        field.member("former").source.deliver(0, 1, 2, 5)
        field.wait(lambda: field.position().watermark == 3 and field.position().owner is None)
        later = field.member("later")
        later.source.deliver(0, 1, 2, 3, 4, 5)
        field.wait(lambda: len(later.acked) == 6)
        assert sorted(seen.value for seen in field.work.started if seen.member == "later") == ["3", "4"]
        later.stop()
        assert _outcomes(field.told, "later") == {Outcome.HANDLED: 2, Outcome.SKIPPED_KEY: 4}

    def test_a_gap_does_not_count_as_done(self, field: Field) -> None:
        former = field.member("former")
        former.source.deliver(9, 7)
        field.wait(lambda: field.position().owner is None and former.acked == [7, 9])
        later = field.member("later")
        later.source.deliver(8)
        field.wait(lambda: later.acked == [8])
        assert sorted(field.work.values()) == ["7", "8", "9"]

    def test_it_passes_over_what_never_comes_by_the_offset_of_the_group(self, field: Field) -> None:
        member = field.member()
        field.log.first, field.log.committed = 2, 4
        member.source.deliver(4, 6)
        field.wait(lambda: field.position().watermark == 5)
        field.wait(lambda: field.position().owner is None)
        field.log.committed = 7
        for offset in (7, 8, 9):
            member.look_again()
            member.source.deliver(offset)
            field.wait(lambda seen=offset: seen in member.acked)  # type: ignore[misc]
        field.wait(lambda: field.position().watermark == 10)

    def test_it_does_not_pass_over_what_has_not_been_delivered_here(self, field: Field) -> None:
        """A member whose client has skipped records commits behind them."""
        member = field.member()
        member.source.deliver(0)
        field.wait(lambda: field.position().watermark == 1)
        field.log.committed = 900
        for offset in (1, 5, 4, 6):
            member.look_again()
            member.source.deliver(offset)
            field.wait(lambda seen=offset: seen in member.acked)  # type: ignore[misc]
        field.wait(lambda: field.position().owner is None)
        assert field.position().watermark == 7
        assert set(field.work.starts().values()) == {1}

    def test_nor_over_what_waits_here(self, field: Field) -> None:
        field.work.hold("3")
        member = field.member()
        member.source.deliver(3)
        field.wait(lambda: field.work.is_running("3"))
        field.log.committed = 900
        for offset in (7, 5, 6):
            member.look_again()
            member.source.deliver(offset)
            field.wait(lambda seen=offset: seen in member.acked)  # type: ignore[misc]
        field.wait(lambda: field.position().above == {5, 6, 7})
        assert field.position().watermark <= 3
        field.work.let_go()
        field.wait(lambda: member.acked == [3, 5, 6, 7])
        assert set(field.work.starts().values()) == {1}

    def test_with_several_brokers_there_is_no_queue_lease(self, field: Field) -> None:
        field.log.brokers = {"a", "b"}
        later = field.successor()
        later.source.deliver(5, 6)
        field.wait(lambda: later.acked == [6])
        field.work.let_go()
        field.wait(lambda: later.acked == [5, 6])
        assert field.work.starts() == {"5": 1, "6": 1}


class TestAnotherLog:
    """The topic was made again, or its broker's store was emptied: the same offsets, other messages (ids)."""

    @pytest.mark.parametrize("end", [3, 1_000], ids=["shorter", "longer"])
    def test_all_of_it_runs_and_what_was_known_is_forgotten(self, field: Field, end: int) -> None:
        field.member("former", ids="x").source.deliver(*range(10))
        field.wait(lambda: field.position().watermark == 10 and field.position().owner is None)
        field.log.end = end
        later = field.member("later", ids="y")
        later.source.deliver(2, 0, 1)
        field.wait(lambda: later.acked == [0, 1, 2])
        assert [field.work.starts()[value] for value in ("0", "1", "2")] == [2, 2, 2]
        field.wait(lambda: field.position().watermark == 3 and not field.position().above)
        assert [event.watermark for event in later.events if isinstance(event, ResetHonoured)] == [10]

    def test_while_the_queue_is_held_too(self, field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("holdfast.plugin.engine.leased.queue_leases._IDLE_S", LONG_S)
        member = field.member()
        member.source.deliver(0, 1, 2)
        field.wait(lambda: field.position().watermark == 3)
        member.source.identity = lambda record: f"new{record.offset}"  # type: ignore[method-assign]
        member.source.deliver(0, 1)
        field.wait(lambda: field.work.starts() == {"0": 2, "1": 2, "2": 1})
        field.wait(lambda: field.position().watermark == 2)

    def test_it_runs_though_the_broker_does_not_answer(self, field: Field) -> None:
        field.member("former", ids="x").source.deliver(0, 1)
        field.wait(lambda: field.position().watermark == 2 and field.position().owner is None)
        field.log.answers = False
        later = field.member("later", ids="y")
        later.source.deliver(0, 1)
        field.wait(lambda: later.acked == [0, 1])
        assert field.work.starts() == {"0": 2, "1": 2}

    def test_what_is_dead_lettered_once_more_shows_no_other_log(self, field: Field) -> None:
        """Its claim was given back, so it is tried wherever it comes again."""
        field.work.fail("1", RuntimeError("bad"), RuntimeError("bad"))
        letters = Letters(field.changed)
        for name in ("former", "later"):
            member = field.member(name, letters=letters)
            member.source.deliver(0, 1, 2)
            field.wait(lambda: len(field.members[-1].acked) == 3 and field.position().owner is None)
        assert len(letters.sent) == 2
        assert not [event for event in field.members[-1].events if isinstance(event, ResetHonoured)]


class TestWhatTheClientSkips:
    def test_is_told(self, field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("holdfast.plugin.engine.leased.queue_leases._FIRST_S", 0.0)
        field.log.committed = 100
        member = field.member()
        member.source.deliver(180)
        field.wait(lambda: member.says("80 records were skipped by the client"))

    def test_is_not_told_of_what_tags_filter_out(self, field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("holdfast.plugin.engine.leased.queue_leases._FIRST_S", 0.0)
        field.log.committed, field.log.dense = 100, False
        member = field.member()
        member.source.deliver(180)
        field.wait(lambda: field.position().owner is None and member.acked == [180])
        assert not member.says("skipped")


class TestTrouble:
    def test_a_session_that_is_lost_begins_anew_and_what_waited_goes_on(self, field: Field) -> None:
        later = field.successor()
        later.waits_with(6)
        before = later.engine.parts.sessions.session
        field.claims.expire(before.id)
        before.renew()
        field.wait(lambda: later.engine.parts.sessions.session not in (None, before))
        field.work.let_go()
        field.wait(lambda: later.acked == [6])
        assert field.work.starts() == {"5": 1, "6": 1}

    @pytest.mark.parametrize("hears", [True, False])
    def test_a_store_that_does_not_answer_is_waited_for(self, field: Field, *, hears: bool) -> None:
        member = field.member()
        field.claims.go_silent(hears=hears)
        member.source.deliver(1, 2)
        field.wait(lambda: member.engine.parts.outage.down)
        assert member.acked == []
        field.claims.speak_again()
        field.wait(lambda: member.acked == [1, 2])
        assert field.work.starts() == {"1": 1, "2": 1}
        field.wait(lambda: field.position().owner is None)

    def test_without_a_store_there_is_no_queue_lease(self, field: Field) -> None:
        field.claims, before = None, field.claims  # type: ignore[assignment]
        member = field.member()
        member.source.deliver(1)
        field.wait(lambda: member.acked == [1])
        field.claims = before
