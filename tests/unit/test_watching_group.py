"""The whole group on each member's page: what members tell of themselves, and what becomes of those that are gone."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import MemoryClaims
from holdfast.adapters.watching import board, serve
from holdfast.adapters.watching.members import FORGOTTEN_S, members_of, summary
from holdfast.adapters.watching.outside import Outside
from holdfast.errors import StoreUnavailable
from holdfast.plugin.observe.snapshot import PartitionFigures, Snapshot
from holdfast.records import Partition
from holdfast.runtime import MACHINE
from tests.harness.engine import Bench
from tests.harness.waiting import until
from tests.unit.test_watching_page import TOKEN, Told, ask, full

if TYPE_CHECKING:
    from holdfast.adapters.watching import Endpoint


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board, "_EVERY_S", 0.02)


def group(endpoint: Endpoint) -> dict[str, Any]:
    [found] = json.loads(ask(endpoint, "/group")[2])["groups"]
    return dict(found)


def partitions(endpoint: Endpoint) -> list[list[str]]:
    """Of each member, the owned ones."""
    members = group(endpoint)["members"]
    return sorted(
        [each["partition"] for each in member["partitions"] if each["phase"] == "owned"] for member in members
    )


def told(**figures: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"state": "running", "group": "g", "at_ms": 0} | figures
    snapshot = Snapshot(**given)
    [app] = Outside([Told(snapshot)], 300, 60).status()["apps"]
    return dict(app)


def test_each_page_has_all_members_and_who_has_left_is_gone() -> None:
    with Bench(orders=2) as bench:
        one, other = bench.member("one"), bench.member("other")
        with serve(one.app, port=0) as endpoint:
            with serve(other.app, port=0) as second:
                until(lambda: partitions(endpoint) == [["orders-0"], ["orders-1"]] == partitions(second))
                other.stop()
            until(lambda: partitions(endpoint) == [["orders-0", "orders-1"]])


def test_a_member_that_was_killed_is_silent_and_later_forgotten() -> None:
    texts = {"a": summary(told(member="a", at_ms=1_000)), "b": summary(told(member="b", at_ms=60_000))}
    assert [(each["name"], each["silent_s"]) for each in members_of(texts, 61_000)] == [("a", 60.0), ("b", 1.0)]
    assert [each["name"] for each in members_of(texts, 1_000 + int(FORGOTTEN_S * 1000))] == ["b"]


def test_a_process_that_has_come_in_the_place_of_another_replaces_it() -> None:
    texts = {"h-1#x": summary(told(member="billing-0", at_ms=1)), "h-2#y": summary(told(member="billing-0", at_ms=5))}
    [found] = members_of(texts, 6)
    assert found["at_ms"] == 5
    unnamed = {"h-1#x": summary(told(at_ms=1)), "h-2#y": summary(told(at_ms=5))}
    assert [each["name"] for each in members_of(unnamed, 6)] == ["h-1#x", "h-2#y"]


def test_a_summary_of_another_version_is_left_out() -> None:
    later = json.dumps(json.loads(summary(told())) | {"format": 2})
    assert members_of({"later": later, "ours": summary(told())}, 1) != []
    assert [each["name"] for each in members_of({"later": later, "ours": summary(told())}, 1)] == ["ours"]


def test_a_summary_of_many_partitions_has_those_that_matter_and_the_number_of_the_others() -> None:
    many = [PartitionFigures(partition=Partition("t", n), phase="owned", watermark=0, log_end=n) for n in range(300)]
    many.append(PartitionFigures(partition=Partition("late", 0), phase="acquired"))
    found = json.loads(summary(told(partitions=tuple(many))))
    assert [each["partition"] for each in found["partitions"][:2]] == ["late-0", "t-299"]
    assert len(found["partitions"]) + found["partitions_left_out"] == 301
    assert found["partitions_left_out"] == 101


def test_a_store_that_gives_no_answer_is_told_and_the_rest_of_the_page_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    claims = MemoryClaims()
    app = Told(replace(full(), at_ms=MACHINE.wall_ms()), claims=claims)
    with serve(app, port=0) as endpoint:
        until(lambda: group(endpoint)["members"] != [])
        monkeypatch.setattr(claims.groups, "posts", _away)
        assert (group(endpoint)["members"], group(endpoint)["trouble"]) == ([], "Redis is away")
        assert ask(endpoint, "/status")[0] == 200


def _away(_: str) -> Any:
    raise StoreUnavailable("Redis is away")


def test_an_app_without_such_a_store_tells_nothing_and_says_so() -> None:
    with serve(Told(full()), port=0) as endpoint:
        assert group(endpoint)["members"] == []
        assert "only this process is shown" in group(endpoint)["trouble"]


def test_the_token_is_asked_for() -> None:
    with serve(Told(full()), port=0, token=TOKEN) as endpoint:
        assert ask(endpoint, "/group")[0] == 401
        assert ask(endpoint, "/group", f"Bearer {TOKEN}")[0] == 200
