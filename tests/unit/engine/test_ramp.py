"""After an assignment the intake ramps up. One engine, turned by hand with a clock that tests move."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from holdfast import MemoryClaims, Ramp, Settings
from holdfast.errors import RecordUnreadable
from holdfast.plugin.engine.leased.leased import Leased
from holdfast.plugin.engine.loop import Engine
from holdfast.plugin.engine.partition.partitioned import Partitioned
from holdfast.plugin.events import Event, RebalanceReport
from holdfast.plugin.handlers import Handler, Routes
from holdfast.plugin.ports import Batch, End
from holdfast.records import Record
from holdfast.runtime import Machine
from holdfast.testing.brokers.kafka import MemoryBroker
from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource
from tests.harness.clocks import HandClock
from tests.harness.engine import Letters, numbered, partition
from tests.harness.waiting import PATIENCE_S
from tests.simulation.brokers.leased import MemoryLeasedSource, MemoryQueue

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from holdfast.records import Partition

#: One turn, by the clock of the tests.
TURN_S = 0.01
P0, P1 = partition(0), partition(1)


class Turned(Engine):
    """Never waits by the machine's clock."""

    def _wait(self) -> None:
        pass


class Quick(MemoryPartitionedSource):
    """The same. What it hands out was fetched ahead, everything there was of one partition before the next one's, as
    Kafka's client does. Where `ends_late`, the answer of what was asked first stays away."""

    ends_late = False
    #: Cannot be read.
    bad: Collection[tuple[Partition, int]] = ()
    _asked: Mapping[Partition, int] | None = None

    def __init__(self, broker: MemoryBroker) -> None:
        super().__init__(broker)
        self._fetched: deque[Record | End] = deque()
        self.pauses: list[Partition] = []

    def poll(self, max_records: int, timeout_s: float) -> Batch:
        return super().poll(max_records, 0.0)

    def _read(self, at_most: int) -> Batch:
        if not self._fetched:
            fetched = super()._read(1_000_000)
            self._fetched.extend([*fetched.records, *fetched.ends])
        came = [self._fetched.popleft() for _ in range(min(at_most, len(self._fetched)))]
        records, ends = (
            [each for each in came if isinstance(each, Record)],
            [each for each in came if isinstance(each, End)],
        )
        places = [(each.partition, each.offset) for each in records if (each.partition, each.offset) in self.bad]
        return Batch(records, ends, {place: RecordUnreadable(f"{place} cannot be read") for place in places})

    def pause(self, partitions: Collection[Partition]) -> None:
        super().pause(partitions)
        self.pauses += partitions
        for each in partitions:
            for record in self._throw_away(each)[:1]:
                self.readers[each].position, self.readers[each].told_end = record.offset, -1

    def seek(self, partition: Partition, offset: int | None) -> None:
        super().seek(partition, offset)
        self._throw_away(partition)

    def _forget(self, partitions: Sequence[Partition]) -> None:
        super()._forget(partitions)
        for each in partitions:
            self._throw_away(each)

    def _throw_away(self, partition: Partition) -> list[Record | End]:
        gone = [each for each in self._fetched if each.partition == partition]
        self._fetched = deque(each for each in self._fetched if each.partition != partition)
        return gone

    def look_at_ends(self, partitions: Sequence[Partition]) -> Mapping[Partition, int] | None:
        if self._asked is None:
            self._asked = super().look_at_ends(partitions)
        if self.ends_late:
            return None
        asked, self._asked = self._asked, None
        return asked


class QuickLeased(MemoryLeasedSource):
    """The same."""

    def poll(self, max_records: int, timeout_s: float) -> Batch:
        return super().poll(max_records, 0.0)


class Rig:
    """A member whose turns and time are the test's. It owns P0 of two; P1 is nobody's until it is given."""

    def __init__(
        self,
        ramp: Ramp | None,
        *,
        queue: MemoryQueue | None = None,
        new_group: bool = False,
        max_in_flight_bytes: int = 64 * 1024 * 1024,
    ) -> None:
        self.letters = Letters(threading.Condition())
        self.clock = HandClock()
        self.broker = MemoryBroker(orders=2)
        self.source = Quick(self.broker)
        self.group = self.broker.group("g")
        self.started: list[tuple[float, int]] = []
        self.offsets: list[tuple[int, int]] = []
        self.events: list[Event] = []
        #: Handlers wait for it.
        self.let_go = threading.Event()
        self.let_go.set()
        routes = Routes()
        topic = "jobs" if queue else "orders"
        routes.add(Handler(name="handle", call=self._handle, topics=(topic,), dead_letter="dlq"))
        self.engine = Turned(
            store=MemoryClaims(),
            routes=routes,
            settings=Settings(workers=4, ramp=ramp, max_in_flight_bytes=max_in_flight_bytes),
            letters=self.letters,
            observers=[self],
            group="g",
            runtime=Machine(self.clock),
            family=lambda parts, loop: (
                Partitioned(parts, loop, self.source) if queue is None else Leased(parts, loop, QuickLeased(queue))
            ),
        )
        for each in () if new_group else (P0, P1):
            self.group.set_offset(each, 0, ours=True)  # somebody had it
        self.group.aim({self.source: [P0]})
        self.engine._lifecycle.open([topic])
        self._number = 0
        self._owed = [0.0, 0.0]

    def on_event(self, event: Event) -> None:
        self.events.append(event)

    def _handle(self, record: Record) -> None:
        self.started.append((self.clock.now(), record.partition.number))
        self.offsets.append((record.partition.number, record.offset))
        self.let_go.wait(PATIENCE_S)

    def produce(self, number: int, count: int) -> None:
        self.broker.produce("orders", number, *numbered("x", range(self._number, self._number + count)))
        self._number += count

    def go_on(self, seconds: float, *per_s: float) -> None:
        """Let time pass, in which that much is produced to each partition."""
        for _ in range(round(seconds / TURN_S)):
            for number, rate in enumerate(per_s):
                self._owed[number] += rate * TURN_S
                if (due := int(self._owed[number])) > 0:
                    self._owed[number] -= due
                    self.produce(number, due)
            self.clock.sleep(TURN_S)
            self.engine.turn()
            assert self.engine.parts.stopping.error is None
            ends = time.monotonic() + PATIENCE_S
            while self.let_go.is_set() and self.engine.parts.workers.outstanding and time.monotonic() < ends:
                time.sleep(0)

    def give(self, *partitions: object) -> None:
        self.group.aim({self.source: partitions})  # type: ignore[dict-item]

    def takes_over(self, behind: int = 2_000, *, leave_out: int = 0) -> float:
        """P1 comes, with that much behind, and with a hole at its end; replies when that was."""
        self.go_on(2, 200)
        self.produce(1, behind)
        self.broker.leave_out("orders", 1, leave_out)
        self.give(P0, P1)
        return self.clock.now()

    def intake(self, since: float = 0.0, number: int | None = None) -> list[int]:
        """Started in each second since then, those without any left out."""
        seconds = Counter(int(at - since) for at, of in self.started if at >= since and number in (None, of))
        return [count for _, count in sorted(seconds.items())]

    def longest_pause(self, number: int, since: float) -> float:
        """Seconds in which nothing of that partition was started, since then."""
        times = [since, *(at for at, of in self.started if of == number and at >= since), self.clock.now()]
        return max(after - before for before, after in pairwise(times))

    def held_back(self) -> bool:
        return not self.engine.parts.intake.climb.over

    @property
    def lag(self) -> int:
        return self._number - len(self.started)


class TestATakeoverWithABacklog:
    def test_the_intake_stays_below_one_and_a_half_times_the_steady_one_until_the_lag_is_worked_off(self) -> None:
        rig = Rig(Ramp())
        rig.go_on(12, 200, 200)  # P1 has nobody
        taken = rig.clock.now()
        rig.give(P0, P1)
        rig.go_on(2, 200, 200)
        assert rig.held_back()
        rig.go_on(18, 200, 200)
        assert rig.lag < 10
        assert not rig.held_back()
        assert max(rig.intake(taken)) <= 1.5 * 400
        assert min(rig.intake(taken)[2:6]) >= 1.3 * 400

    def test_what_a_producer_sends_at_once_just_then_is_not_taken_for_what_is_usual(self) -> None:
        rig = Rig(Ramp())
        rig.go_on(12, 200, 200)
        taken = rig.clock.now()
        rig.give(P0, P1)
        rig.go_on(0.03, 200, 200)
        rig.produce(0, 40)  # it, or the machine, had stood still for a moment
        rig.go_on(5, 200, 200)
        assert rig.held_back()
        assert rig.intake(taken)[0] <= 2 * 400
        assert max(rig.intake(taken)[1:]) <= 1.5 * 400

    def test_it_goes_on_from_where_it_was(self) -> None:
        rig = Rig(Ramp())
        rig.go_on(12, 200, 200)
        taken = rig.clock.now()
        rig.give(P0, P1)
        rig.go_on(1, 200, 200)
        assert rig.intake(taken)[0] >= 200

    def test_the_partitions_that_it_had_are_never_behind_the_backlog_of_those_that_came(self) -> None:
        rig = Rig(Ramp())
        taken = rig.takes_over()
        rig.go_on(5, 200, 200)
        assert rig.longest_pause(0, taken) < 0.1
        assert P0 not in rig.source.pauses

    def test_those_that_came_begin_at_once_and_go_on(self) -> None:
        rig = Rig(Ramp())
        taken = rig.takes_over()
        rig.go_on(5, 200, 200)
        assert rig.longest_pause(1, taken) < 0.1

    def test_those_that_came_go_on_even_where_the_others_take_more_than_there_is(self) -> None:
        rig = Rig(Ramp())
        taken = rig.takes_over()
        rig.go_on(5, 1_000, 20)
        assert rig.longest_pause(1, taken) < 0.1

    def test_what_waits_is_bounded(self) -> None:
        rig = Rig(Ramp(), max_in_flight_bytes=2 * 2_000 * 600)  # half of it, and some 600 for each record
        rig.takes_over(30_000)
        most = 0
        for _ in range(40):
            rig.go_on(0.05, 200, 200)
            most = max(most, rig.engine.parts.intake.waiting.records)
        assert 0 < most <= 2_000 + 500

    def test_what_waits_when_its_partition_goes_is_the_next_owners(self) -> None:
        rig = Rig(Ramp())
        rig.takes_over()
        rig.go_on(0.5, 200, 200)
        assert rig.engine.parts.intake.waiting.records
        rig.give(P0)
        rig.go_on(1, 200, 200)
        assert not rig.engine.parts.intake.waiting.records
        rig.give(P0, P1)
        rig.go_on(20, 200, 200)
        assert [offset for of, offset in rig.offsets if of == 1] == list(range(rig.broker.logs[P1].end))

    def test_what_waits_when_the_client_is_sent_back_comes_again(self) -> None:
        rig = Rig(Ramp())
        rig.takes_over()
        rig.go_on(0.5, 200, 200)
        owner = rig.engine.family.owners[P1]  # type: ignore[attr-defined]
        assert rig.engine.parts.intake.waiting.records
        owner.seek_needed = True
        rig.go_on(20, 200, 200)
        assert [offset for of, offset in rig.offsets if of == 1] == list(range(rig.broker.logs[P1].end))

    @pytest.mark.parametrize("goes", [False, True])
    def test_what_waits_and_cannot_be_read_becomes_its_dead_letter(self, *, goes: bool) -> None:
        rig = Rig(Ramp())
        rig.source.bad = {(P1, 1_500), (P1, 1_501)}
        rig.takes_over()
        rig.go_on(0.5, 200, 200)
        assert rig.engine.parts.intake.waiting.records
        if goes:
            rig.give(P0)
            rig.go_on(1, 200, 200)
            rig.give(P0, P1)
        assert not rig.letters.sent
        rig.go_on(20, 200, 200)
        sent = sorted((each.record.partition, each.record.offset) for each in rig.letters.sent)  # several send them
        assert sent == [(P1, 1_500), (P1, 1_501)]
        rest = [offset for offset in range(rig.broker.logs[P1].end) if offset not in (1_500, 1_501)]
        assert sorted(offset for of, offset in rig.offsets if of == 1) == rest

    def test_the_end_of_a_partition_says_nothing_of_what_waits_before_it(self) -> None:
        rig = Rig(Ramp())
        rig.takes_over(leave_out=3)
        rig.go_on(0.5, 200)
        owner = rig.engine.family.owners[P1]  # type: ignore[attr-defined]
        ended = [offset for of, offset in rig.offsets if of == 1]
        assert rig.engine.parts.intake.waiting.records
        assert owner.ledger.watermark <= len(ended)
        rig.go_on(16, 40)
        assert owner.ledger.watermark == rig.broker.logs[P1].end

    def test_one_line_in_the_log_says_so(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level("INFO", "holdfast")
        rig = Rig(Ramp())
        rig.takes_over()
        rig.go_on(2, 200, 200)
        [line] = [each.message for each in caplog.records if "the ramp limits the intake" in each.message]
        assert "1 partitions" in line
        assert "ramp=None" in line

    def test_the_few_seconds_of_a_hand_over_in_good_order_are_taken_at_once(self) -> None:
        rig = Rig(Ramp())
        rig.takes_over(400)
        rig.go_on(1, 200, 200)
        assert rig.lag < 10
        assert not rig.held_back()

    def test_an_answer_that_was_long_on_its_way_makes_no_more_of_what_is_produced(self) -> None:
        rig = Rig(Ramp())
        rig.go_on(12, 200, 200)
        taken = rig.clock.now()
        rig.source.ends_late = True
        rig.give(P0, P1)
        rig.go_on(2, 200, 200)
        rig.source.ends_late = False
        rig.go_on(10, 200, 200)
        assert max(rig.intake(taken)) <= 1.5 * 400

    def test_the_report_tells_the_steady_intake_the_peak_and_how_long_it_lasted(self) -> None:
        rig = Rig(Ramp())
        rig.go_on(12, 200, 200)
        rig.give(P0, P1)
        rig.go_on(20, 200, 200)
        [*_, report] = [event for event in rig.events if isinstance(event, RebalanceReport) and event.gained]
        assert report.gained == (P1,)
        assert 360 < (report.steady_intake_per_s or 0) <= 400
        assert 500 < (report.peak_intake_per_s or 0) <= 600
        assert 4 < (report.ramp_s or 0) < 20

    def test_a_backlog_that_would_take_for_ever_is_taken_at_full_speed_in_the_end(self) -> None:
        rig = Rig(Ramp(over_s=5.0))
        rig.produce(0, 5_000)
        rig.go_on(4.9, 100)
        assert max(rig.intake()) <= 1.5 * 100
        rig.go_on(5.2, 100)
        assert not rig.held_back()
        assert max(rig.intake()) > 1_000

    def test_without_a_ramp_it_is_taken_at_once(self) -> None:
        rig = Rig(None)
        rig.produce(0, 2_000)
        rig.go_on(1, 200)
        assert rig.lag < 10


class TestAStartOfTheWholeGroup:
    def test_where_the_group_begins_everything_is_taken_at_once(self) -> None:
        rig = Rig(Ramp(), new_group=True)
        rig.produce(0, 20_000)
        rig.go_on(1, 300)
        assert rig.lag < 10

    def test_so_is_what_has_waited_for_longer_than_a_member_is_missed(self) -> None:
        rig = Rig(Ramp())
        rig.produce(0, 40_000)
        rig.go_on(3, 300)
        assert rig.lag < 10

    def test_a_member_with_a_steady_intake_is_held_all_the_same(self) -> None:
        rig = Rig(Ramp())
        taken = rig.takes_over(40_000)
        rig.go_on(4, 200, 200)
        assert max(rig.intake(taken)) <= 1.5 * 400


class TestAFreshMember:
    def test_an_idle_start_reports_no_ramp(self) -> None:
        rig = Rig(Ramp())
        rig.go_on(0.5)
        [report] = [event for event in rig.events if isinstance(event, RebalanceReport) and event.gained]
        assert report.ramp_s is report.peak_intake_per_s is report.steady_intake_per_s is None

    def test_an_idle_start_whose_ends_come_late_reports_no_ramp(self) -> None:
        rig = Rig(Ramp())
        rig.source.ends_late = True
        rig.go_on(0.5)
        rig.source.ends_late = False
        rig.go_on(0.5)
        assert not rig.held_back()
        [report] = [event for event in rig.events if isinstance(event, RebalanceReport) and event.gained]
        assert report.ramp_s is None

    def test_what_was_asked_before_partitions_came_says_nothing_of_them(self) -> None:
        rig = Rig(Ramp())
        rig.source.ends_late = True
        rig.go_on(0.1)
        rig.give()
        rig.go_on(0.1)
        rig.produce(0, 5_000)
        rig.give(P0)
        rig.go_on(0.1)
        rig.source.ends_late = False
        rig.go_on(0.3)
        assert rig.held_back()

    def test_an_old_answer_does_not_say_that_nothing_is_behind(self) -> None:
        rig = Rig(Ramp())
        rig.source.ends_late = True
        rig.go_on(0.1)
        rig.produce(0, 5_000)
        rig.go_on(2)
        rig.source.ends_late = False
        rig.go_on(0.1)
        assert rig.held_back()

    def test_it_is_not_held_where_nothing_is_behind(self) -> None:
        rig = Rig(Ramp())
        rig.go_on(0.05)
        assert not rig.held_back()
        rig.produce(0, 2_000)
        rig.go_on(0.5)
        assert rig.lag == 0

    def test_what_a_hand_over_leaves_behind_is_taken_at_once(self) -> None:
        rig = Rig(Ramp())
        rig.produce(0, 60)  # of a fifth of a second
        rig.go_on(0.3, 300)
        assert not rig.held_back()
        rig.go_on(0.1, 300)
        assert rig.lag < 10
        rig.go_on(2, 300)
        assert max(rig.intake()) <= 1.5 * 300

    def test_it_finds_the_steady_intake_out(self) -> None:
        rig = Rig(Ramp())
        rig.produce(0, 2_000)
        rig.go_on(8, 300)
        assert max(rig.intake()) <= 1.5 * 300
        assert min(rig.intake()[1:7]) >= 1.25 * 300

    def test_where_nothing_is_produced_it_doubles_as_long_as_handlers_keep_up(self) -> None:
        rig = Rig(Ramp())
        rig.produce(0, 20_000)
        rig.go_on(6)
        assert rig.lag == 0
        assert rig.intake()[0] <= 150

    def test_it_does_not_grow_while_handlers_do_not_keep_up(self) -> None:
        rig = Rig(Ramp(over_s=3.0))
        rig.let_go.clear()
        rig.produce(0, 20_000)
        rig.go_on(2.9)
        assert rig.engine.parts.intake.climb.rate == 50
        rig.let_go.set()

    def test_it_is_polled_all_the_time(self) -> None:
        rig = Rig(Ramp(floor_per_s=10.0, over_s=3.0))
        rig.let_go.clear()
        rig.produce(0, 20_000)
        polls = []
        for _ in range(20):
            before = rig.source.polls
            rig.go_on(0.15)
            polls.append(rig.source.polls - before)
        assert min(polls) > 0
        rig.let_go.set()


class TestALeasedSource:
    def test_it_begins_at_the_floor_and_ends_when_nothing_is_held_back(self) -> None:
        queue = MemoryQueue()
        rig = Rig(Ramp(), queue=queue)
        queue.put(*numbered("x", range(3_000)))
        rig.go_on(0.5)
        assert sum(rig.intake()) <= 50
        rig.go_on(6)
        assert sum(rig.intake()) == 3_000
        assert not rig.held_back()
