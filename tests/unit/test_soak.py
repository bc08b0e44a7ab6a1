"""A soak's report gives each fault what happened in its time, and sees what grows."""

from __future__ import annotations

from itertools import islice

from tests.chaos.soak.__main__ import drawn
from tests.chaos.soak.faults import FAULTS
from tests.chaos.soak.report import Leg, Played, attribute, rows
from tests.chaos.soak.vitals import Look, Vitals
from tests.harness.group.ledger import Entry, What, Where
from tests.harness.group.outcome import Outcome
from tests.harness.group.referee import Death, Produced

S = 1_000_000_000


def entry(at_s: float, pid: int, what: What, offset: int) -> Entry:
    return Entry(int(at_s * S), f"m{pid}", pid, Where("orders", 0, offset), f"c{offset}", f"o{offset}", what, 1)


def ran(at_s: float, pid: int, offset: int) -> list[Entry]:
    return [entry(at_s, pid, "start", offset), entry(at_s + 0.1, pid, "end", offset)]


def test_each_fault_answers_for_its_time() -> None:
    first = Played(fault="kill -9", began_ns=10 * S)
    second = Played(fault="join", began_ns=20 * S)
    entries = [
        *ran(11, 1, 0),
        entry(11.5, 1, "start", 1),
        *ran(15, 2, 1),  # it was in hand at the death
        *ran(16, 2, 0),  # it was not: ended, and long acknowledged
        *ran(29, 2, 3),
    ]
    outcome = Outcome(
        produced=[Produced(Where("orders", 0, n), f"c{n}", f"o{n}", at * S) for n, at in enumerate((9, 9, 21, 21))],
        entries=entries,
        protocol="eager",
        deaths=[Death("m1", 1, int(13.5 * S), 10)],
        samples=[],
        ends={},
        committed={},
    )
    attribute([first, second], outcome)
    assert (first.lost, first.repeated, first.in_hand) == (0, 1, 1)
    assert (second.lost, second.repeated, second.in_hand) == (1, 0, 0)
    assert second.pause_s == 8.0
    leg = Leg(protocol="eager", brokers=1, store="one", seed=1, minutes=1, played=[first, second])
    assert [row[:8] for row in rows([leg])] == [
        ("join", "eager", "1", "one", "1", "1", "0", "0"),
        ("kill -9", "eager", "1", "one", "1", "0", "1", "1"),
    ]


def test_a_leg_that_did_not_come_to_its_end_has_not_held() -> None:
    leg = Leg(protocol="eager", brokers=1, store="one", seed=1, minutes=1)
    held = [leg.held]
    leg.faults = []
    held.append(leg.held)
    leg.audit = ["1 is lost for the audit"]
    held.append(leg.held)
    assert held == [False, True, False]


def test_what_was_not_judged_is_not_told_as_nothing() -> None:
    leg = Leg(protocol="eager", brokers=1, store="one", seed=1, minutes=1, error="not within 120 s")
    leg.played = [Played(fault="join", began_ns=0)]
    [row] = rows([leg])
    assert row[5:9] == ("?", "?", "?", "?")


def test_what_grows_is_named_and_what_is_flat_is_not() -> None:
    early = Vitals(10.0, 50 * 1024, 20, 30)
    assert Look("a", 600.0, early, Vitals(600.0, 55 * 1024, 24, 33)).grown == ""
    leak = Look("a", 600.0, early, Vitals(600.0, 80 * 1024, 27, 37)).grown
    assert leak == "a: memory 50 -> 80 MiB, threads 20 -> 27, files 30 -> 37"


def test_a_seed_draws_the_same_faults_and_all_of_them_before_one_comes_again() -> None:
    faults = list(FAULTS.values())
    twice = [each.name for each in islice(drawn(faults, 7), 2 * len(faults))]
    assert twice == [each.name for each in islice(drawn(faults, 7), 2 * len(faults))]
    assert sorted(twice[: len(faults)]) == sorted(FAULTS)
    assert twice != [each.name for each in islice(drawn(faults, 8), 2 * len(faults))]
