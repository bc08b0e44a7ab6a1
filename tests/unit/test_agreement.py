"""The comparison of audit and ledger: it finds what differs, and excuses what a kill hides."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.harness.group.agreement import Account, disagreements
from tests.harness.group.ledger import Where

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

GROUP, TOPIC = "g", "t"


def at(offset: int) -> Where:
    return Where(TOPIC, 0, offset)


def account(told: Iterable[int], untold: Iterable[int] = (), **more: Any) -> Account:
    usual: dict[str, Any] = {
        "group": GROUP,
        "topics": frozenset({TOPIC}),
        "told": Counter(map(at, told)),
        "untold": Counter(map(at, untold)),
        "begun_untold": frozenset(map(at, untold)),
        "crashed": frozenset(map(at, untold)),
        "replayed": frozenset(),
        "lost": 0,
        "any_killed": bool(untold),
    }
    return Account(**{**usual, **more})


def tables(handled: int, **rows: Iterable[Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    where = {"group": GROUP, "topic": TOPIC, "partition": "0"}
    found: dict[str, list[dict[str, Any]]] = {
        "summary": [{"group": GROUP}],
        "members": [{"group": GROUP, "member": "a", "ended": "clean", "missing": 0, "dropped": 0}],
        "coverage": [{**where, "handled": handled}],
        "duplicates": [],
        "gaps": [],
    }
    for name, each in rows.items():
        found[name] = [{**where, **row} for row in each]
    return found


def again(offset: int, cause: str, executions: int = 2) -> dict[str, Any]:
    return {"first": offset, "next": offset + 1, "executions": executions, "cause": cause}


def gap(first: int, following: int, verdict: str) -> dict[str, Any]:
    return {"first": first, "next": following, "verdict": verdict}


def test_both_say_the_same() -> None:
    assert disagreements(account([0, 1, 1, 2]), tables(4, duplicates=[again(1, "hand-over")])) == []


def test_an_execution_that_the_audit_has_not_is_found() -> None:
    assert disagreements(account([0, 1, 2]), tables(2))


def test_a_repeat_that_the_audit_has_not_is_found() -> None:
    assert disagreements(account([0, 1, 1]), tables(3))


def test_a_repeat_that_the_audit_has_invented_is_found() -> None:
    assert disagreements(account([0, 1]), tables(2, duplicates=[again(1, "hand-over")]))


def test_a_wrong_cause_is_found() -> None:
    assert disagreements(account([0, 0]), tables(2, duplicates=[again(0, "crash")]))
    assert disagreements(account([0, 0]), tables(2, duplicates=[again(0, "reset")]))
    assert disagreements(account([0], [0]), tables(2, duplicates=[again(0, "redelivery")]))


def test_what_was_killed_may_be_unknown_and_need_not_be_counted() -> None:
    assert disagreements(account([0, 3], [1, 2]), tables(2, gaps=[gap(1, 3, "unknown")])) == []
    assert disagreements(account([0, 1], [1]), tables(2)) == []


def test_what_is_unknown_and_nobody_killed_had_begun_is_found() -> None:
    assert disagreements(account([0, 3], [1]), tables(3, gaps=[gap(2, 3, "unknown")]))


def test_what_is_lost_for_the_audit_alone_is_found() -> None:
    assert disagreements(account([0, 1]), tables(2, gaps=[gap(1, 2, "lost")]))
    assert disagreements(account([0]), tables(1, gaps=[gap(1, 2, "lost")]))


def test_what_is_left_over_and_was_done_is_found() -> None:
    assert disagreements(account([0, 1]), tables(2, gaps=[gap(1, 2, "pending")]))


def test_events_that_are_missing_are_found() -> None:
    members = [{"member": "a", "ended": "clean", "missing": 2, "dropped": 0}]
    assert disagreements(account([0]), tables(1, members=members))


def test_a_group_that_the_audit_does_not_know_is_found() -> None:
    assert disagreements(account([0]), {**tables(1), "summary": []})
