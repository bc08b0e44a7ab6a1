"""`holdfast status --group` and `holdfast web`: what all members of a group have told of themselves in a real Redis."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import uuid
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest

from holdfast import RedisClaims
from holdfast.adapters.watching import board, serve
from holdfast.adapters.watching.members import SILENT_S
from holdfast.dedup.redis_coordinator import RedisCoordinator
from tests.harness.engine import Bench, numbered
from tests.harness.waiting import PATIENCE_S, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.conftest import Here


class Members:
    """Two members of group "g", which serve; what they share is in a namespace of their own."""

    def __init__(self, bench: Bench, store: RedisClaims, where: list[str]) -> None:
        self.bench, self.coordinator = bench, RedisCoordinator(store)
        #: The options of a command.
        self.where = where


@pytest.fixture
def members(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Members]:
    monkeypatch.setattr(board, "_EVERY_S", 0.02)
    namespace = uuid.uuid4().hex[:8]
    store = RedisClaims.from_url(redis_url, namespace=namespace)
    with Bench(claims=store, orders=2) as bench:
        one, other = bench.member("one"), bench.member("other")
        with serve(one.app, port=0), serve(other.app, port=0):
            found = Members(bench, store, ["--group", "g", "--redis", redis_url, "--namespace", namespace])
            until(lambda: [each["partitions"] for each in told(found)] and all(each["ready"] for each in told(found)))
            until(lambda: sorted(len(each["partitions"]) for each in told(found)) == [1, 1])
            yield found
    store.close()


def told(members: Members) -> list[dict[str, Any]]:
    return [json.loads(text) for text in members.coordinator.posts("g").values()]


def test_each_member_has_a_line(here: Here, members: Members) -> None:
    members.bench.broker.produce("orders", 0, *numbered("x", range(5)))
    members.bench.wait_ended("x4")
    until(lambda: sum(each["records"]["handled"] for each in told(members)) == 5)
    lines = here("status", *members.where).stdout.splitlines()
    assert lines[0].split() == ["MEMBER", "STATE", "PARTITIONS", "LAG", "IN", "FLIGHT", "OLDEST", "HANDLED", "TOLD"]
    assert [each.split()[1:5] for each in lines[1:3]] == [["running", "1", "0", "0"]] * 2
    assert lines[3] == "g: 2 members, 2 partitions, lag: 0"
    found = [json.loads(each) for each in here("status", *members.where, "--json").stdout.splitlines()]
    assert [each["type"] for each in found] == ["member"] * 2
    assert sorted(one["partition"] for each in found for one in each["partitions"]) == ["orders-0", "orders-1"]


def test_the_redis_may_be_the_environments(here: Here, members: Members, monkeypatch: pytest.MonkeyPatch) -> None:
    group, name, _, url, *namespace = members.where
    monkeypatch.setenv("HOLDFAST_REDIS", url)
    assert "g: 2 members" in here("status", group, name, *namespace).stdout


def test_a_member_that_tells_nothing_any_more_is_told_of(here: Here, members: Members) -> None:
    [name, *_], old = members.coordinator.posts("g"), told(members)[0]
    gone = old | {"member": "killed", "at_ms": old["at_ms"] - int(2_000 * SILENT_S)}
    members.coordinator.post("g", f"{name}-killed", json.dumps(gone))
    assert "silent, was running" in here("status", *members.where, code=1).stdout


def test_a_group_of_which_nobody_tells_anything_is_no_answer(here: Here, members: Members) -> None:
    assert "no member of other tells of itself" in here("status", "--group", "other", *members.where[2:], code=3).stdout


@pytest.mark.parametrize("said", [[], ["--group", "g"], ["localhost:9464", "--group", "g", "--redis", "redis://x"]])
def test_addresses_or_a_group_are_asked_for(here: Here, said: list[str]) -> None:
    assert "give addresses of processes, or --group and --redis" in here("status", *said, code=2).stderr


def test_a_process_that_is_no_member_serves_the_page_of_the_group(members: Members) -> None:
    command = [sys.executable, "-m", "holdfast", "web", *members.where, "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["url"]
            with urlopen(f"{url}/group", timeout=PATIENCE_S) as answer:  # noqa: S310 - of this test
                [group] = json.load(answer)["groups"]
            assert [len(each["partitions"]) for each in group["members"]] == [1, 1]
            with urlopen(f"{url}/", timeout=PATIENCE_S) as answer:  # noqa: S310 - as above
                assert b"Members of the group" in answer.read()
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130
