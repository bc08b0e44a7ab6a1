"""The referee sees every kind of harm in ledgers made by hand: one that cannot fail would prove nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.harness.group import referee
from tests.harness.group.intake import Behind
from tests.harness.group.ledger import Entry, Ledger, Reader, What, Where
from tests.harness.group.outcome import Happened, Outcome
from tests.harness.group.referee import Death, Produced, Sample

if TYPE_CHECKING:
    from pathlib import Path

TOPIC = "orders"
S = 1_000_000_000
PIDS = {"a": 1, "b": 2}


def entry(at_s: float, member: str, what: What, offset: int, *, lane: str = "c1", partition: int = 0) -> Entry:
    where = Where(TOPIC, partition, offset)
    return Entry(int(at_s * S), member, PIDS[member], where, lane, f"o{partition}-{offset}", what, 1)


def run(
    at_s: float, member: str, offset: int, *, lane: str = "c1", took_s: float = 0.5, what: What = "end"
) -> list[Entry]:
    """A start, and an end half a second later."""
    return [entry(at_s, member, "start", offset, lane=lane), entry(at_s + took_s, member, what, offset, lane=lane)]


def produced(*offsets: int, at_s: float = 0) -> list[Produced]:
    return [Produced(Where(TOPIC, 0, each), "c1", f"o0-{each}", int(at_s * S)) for each in offsets]


def death(member: str, at_s: float, at_most: int = 10) -> Death:
    return Death(member, PIDS[member], int(at_s * S), at_most)


def outcome(entries: list[Entry], *offsets: int, deaths: list[Death] | None = None) -> Outcome:
    """All committed to the end, no samples."""
    end = {TOPIC: {0: max(offsets) + 1}}
    return Outcome(
        protocol="consumer",
        produced=produced(*offsets),
        entries=sorted(entries),
        deaths=deaths or [],
        samples=[],
        ends=end,
        committed=end,
    )


def test_a_run_without_harm_has_no_faults() -> None:
    assert outcome([*run(1, "a", 0), *run(2, "a", 1), *run(3, "b", 2)], 0, 1, 2).faults() == []


def test_a_record_that_never_ran_is_lost() -> None:
    assert "1 of 2 records are lost" in outcome(run(1, "a", 0), 0, 1).faults()


def test_a_record_that_started_and_never_ended_is_lost() -> None:
    assert outcome([*run(1, "a", 0), entry(2, "a", "start", 1)], 0, 1).lost == 1


def test_a_record_that_failed_for_good_is_lost_unless_it_may_fail() -> None:
    told = outcome(run(1, "a", 0, what="fail"), 0)
    assert told.lost == 1
    assert replace(told, given_up=frozenset({"o0-0"})).lost == 0


def test_a_record_that_ran_twice_is_a_repeat() -> None:
    told = outcome([*run(1, "a", 0), *run(3, "b", 0)], 0)
    assert [each.member for each in told.repeats] == ["b"]
    assert any("1 repeats that no death excuses" in each for each in told.faults())


def test_a_session_that_was_lost_explains_a_repeat_and_excuses_none() -> None:
    told = outcome([*run(1, "a", 0), *run(12, "a", 0)], 0)
    [fault] = replace(told, happened=(Happened(11 * S, "a", 1, "SessionLost"),)).faults()
    assert "1.500 end by a (pid 1, epoch 1); 11.000 SessionLost of a (pid 1); 12.000 start by a" in fault


def test_a_retry_after_a_failure_is_no_repeat() -> None:
    assert outcome([*run(1, "a", 0, what="fail"), *run(2, "a", 0)], 0).faults() == []


def test_an_execution_after_a_failure_and_a_success_is_a_repeat() -> None:
    told = outcome([*run(1, "a", 0, what="fail"), *run(2, "a", 0), *run(3, "b", 0)], 0)
    assert len(told.unexcused) == 1


def test_what_a_dead_member_had_in_hand_is_excused_once() -> None:
    running = [*run(1, "a", 0), entry(2, "a", "start", 1), *run(8, "b", 1)]
    assert outcome(running, 0, 1, deaths=[death("a", 2.2)]).faults() == []
    again = outcome([*running, *run(9, "b", 1)], 0, 1, deaths=[death("a", 2.2)])
    assert len(again.unexcused) == 1


def test_what_had_ended_just_before_a_death_is_excused() -> None:
    told = outcome([*run(1, "a", 0), *run(8, "b", 0)], 0, deaths=[death("a", 2.0)])
    assert told.repeats
    assert told.faults() == []


def test_what_had_ended_long_before_a_death_is_not_excused() -> None:
    told = outcome([*run(1, "a", 0), *run(8, "b", 0)], 0, deaths=[death("a", 4.0)])
    assert len(told.unexcused) == 1


def test_a_death_excuses_nothing_of_another_member() -> None:
    told = outcome([*run(1, "a", 0), *run(3, "a", 0)], 0, deaths=[death("b", 2)])
    assert len(told.unexcused) == 1


def test_a_repeat_that_began_before_the_death_is_not_excused() -> None:
    told = outcome([entry(1, "a", "start", 0), *run(2, "b", 0)], 0, deaths=[death("a", 3)])
    assert len(told.unexcused) == 1


def test_a_death_excuses_no_more_than_its_bound() -> None:
    entries = [entry(1, "a", "start", each, lane=f"c{each}") for each in range(4)]
    for each in range(4):
        entries += run(8, "b", each, lane=f"c{each}")
    told = outcome(entries, *range(4), deaths=[death("a", 1.1, at_most=3)])
    assert len(told.unexcused) == 1


def test_the_record_that_a_stop_caught_before_the_ledger_is_excused() -> None:
    told = outcome([*run(8, "b", 0), *run(9, "a", 0)], 0, deaths=[death("a", 2)])
    assert told.repeats
    assert told.faults() == []


def test_a_zombie_that_starts_more_than_that_is_not_excused() -> None:
    zombie = [*run(8, "b", 0), *run(9, "b", 1), *run(10, "a", 0), *run(11, "a", 1)]
    told = outcome(zombie, 0, 1, deaths=[death("a", 2)])
    assert [each.where.offset for each in told.unexcused] == [1]


def test_two_executions_at_the_same_time_are_seen() -> None:
    told = outcome([*run(1, "a", 0), *run(1.2, "b", 0)], 0)
    assert any("at the same time" in each for each in told.faults())


def test_an_execution_ends_with_its_member() -> None:
    entries = [entry(1, "a", "start", 0), *run(8, "b", 0)]
    ran = referee.executions(entries)
    assert referee.concurrent(ran)
    assert referee.concurrent(ran, [death("a", 2)]) == []


def test_the_same_process_running_a_record_twice_at_once_is_seen() -> None:
    entries = [entry(1, "a", "start", 0), entry(1.1, "a", "start", 0), entry(1.2, "a", "end", 0)]
    ran = referee.executions(entries)
    assert len(ran) == 2
    assert len(referee.concurrent(ran)) == 1


def test_a_later_record_of_a_key_that_starts_first_breaks_order() -> None:
    told = outcome([*run(3, "a", 0), *run(1, "a", 1)], 0, 1)
    assert any("order was broken" in each for each in told.faults())


def test_a_later_record_of_a_key_that_starts_before_the_earlier_ended_breaks_order() -> None:
    told = outcome([*run(1, "a", 0), *run(1.2, "b", 1)], 0, 1)
    assert any("order was broken" in each for each in told.faults())


def test_other_keys_may_overtake() -> None:
    assert outcome([*run(3, "a", 0, lane="c1"), *run(1, "a", 1, lane="c2")], 0, 1).faults() == []


def test_a_commit_ahead_of_the_work_is_seen() -> None:
    told = outcome([*run(1, "a", 0), *run(2, "a", 1)], 0, 1)
    fine = Sample(int(1.6 * S), TOPIC, {0: 1})
    early = Sample(int(1.6 * S), TOPIC, {0: 2})
    assert replace(told, samples=[fine]).faults() == []
    assert any("commits ahead of the work" in each for each in replace(told, samples=[early]).faults())


def test_a_log_whose_end_is_not_committed_is_seen_and_an_empty_partition_is_not() -> None:
    assert referee.uncommitted({0: 5, 1: 0, 2: 3}, {0: 5, 2: 2}) == {2: (3, 2)}
    assert referee.uncommitted({0: 5}, {}) == {0: (5, None)}
    told = outcome(run(1, "a", 0), 0)
    assert any("not committed to its end" in each for each in replace(told, committed={TOPIC: {}}).faults())


def test_two_records_of_one_business_key_that_both_ran_are_a_repeat() -> None:
    entries = [each._replace(key="same") for each in [*run(1, "a", 0), *run(2, "a", 1)]]
    told = replace(outcome(entries, 0, 1), by_key=True, produced=[each._replace(key="same") for each in produced(0, 1)])
    assert len(told.unexcused) == 1
    assert replace(told, entries=entries[:2]).faults() == []


def test_a_replay_on_purpose_is_no_repeat_but_a_second_one_is() -> None:
    told = outcome([*run(1, "a", 0), *run(3, "a", 0)], 0)
    assert replace(told, replayed={Where(TOPIC, 0, 0): 1}).faults() == []
    twice = outcome([*run(1, "a", 0), *run(3, "a", 0), *run(5, "a", 0)], 0)
    assert len(replace(twice, replayed={Where(TOPIC, 0, 0): 1}).unexcused) == 1


def test_a_pause_counts_only_while_a_record_waits() -> None:
    ran = referee.executions([*run(1, "a", 0), *run(9, "b", 1)])
    waiting = [*produced(0, at_s=1), *produced(1, at_s=2)]
    assert referee.pauses(waiting, ran) == {(TOPIC, 0): 7.0}
    idle = [*produced(0, at_s=1), *produced(1, at_s=9)]
    assert referee.pauses(idle, ran) == {(TOPIC, 0): 0.0}


def test_an_end_without_a_start_is_refused() -> None:
    with pytest.raises(ValueError, match="an end without a start"):
        referee.executions([entry(1, "a", "end", 0)])


def test_the_ledger_reads_back_what_it_was_told_and_waits_for_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "ledger.tsv"
    reader = Reader(path)
    assert reader.read() == []
    Ledger(path, "a").note("start", Where(TOPIC, 3, 7), "c1", "o1", 4)
    with path.open("ab") as file:
        file.write(b"half a li")
    [found] = reader.read()
    assert found[1:2] + found[3:] == ("a", Where(TOPIC, 3, 7), "c1", "o1", "start", 4)
    assert reader.read() == [found]


def test_a_lag_that_is_at_its_worst_when_the_flow_ends_is_worked_off_after_it() -> None:
    some = produced(*range(8), at_s=1)
    late = produced(8, 9, at_s=2)  # acknowledged when the producer was flushed
    behind = Behind(some + late, [each for offset in range(10) for each in run(2 + offset, "a", offset)])
    assert behind.recovered_s(S, usual=3) == pytest.approx(7.5, abs=0.05)  # seven have ended
    assert Behind(some + late, run(2, "a", 0)).recovered_s(S, usual=3) is None


def test_what_comes_while_a_backlog_is_worked_off_is_counted_from_when_it_was_at_its_worst() -> None:
    at_once = produced(*range(6), at_s=1)
    later = [*produced(6, at_s=3), *produced(7, at_s=4), *produced(8, 9, at_s=8)]
    behind = Behind(at_once + later, [each for offset in range(10) for each in run(2 + offset, "a", offset)])
    assert behind.at(behind.worst(S)) == 6
    assert behind.came_meanwhile(S, usual=3) == 2  # by 6.5 s, when five have ended
    assert Behind(at_once, run(2, "a", 0)).came_meanwhile(S, usual=3) is None


def test_who_is_out_of_reach_may_repeat_what_it_did_meanwhile_and_nothing_that_it_did_before_or_after() -> None:
    away = Death("a", PIDS["a"], 10 * S, 2, until_ns=20 * S)
    entries = [*run(5, "a", 0), *run(12, "a", 1), *run(19, "a", 2), *run(21, "a", 3)]
    again = [*run(30, "b", 0), *run(31, "b", 1), *run(32, "b", 2), *run(33, "b", 3)]
    ran = referee.executions([*entries, *again])
    assert [each.where.offset for each in referee.unexcused(referee.repeats(ran), ran, [away])] == [0, 3]
    [dead] = [away._replace(until_ns=0)]
    assert [each.where.offset for each in referee.unexcused(referee.repeats(ran), ran, [dead])] == [0, 2, 3]
