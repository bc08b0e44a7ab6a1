"""Groups of processes that come, leave, are killed, frozen and thawed, on a real Redis that is stopped and emptied.

At rest: the plan's members are those that live, each queue is planned, nobody has two more than another, all members
know that very plan, and it stays.
"""

from __future__ import annotations

import json
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Self

import pytest

from holdfast.dedup.redis_coordinator import RedisCoordinator
from holdfast.dedup.redis_store import RedisClaims
from holdfast.errors import StoreUnavailable
from tests.harness.processes import die_with_parent
from tests.harness.servers.redis import RedisServer
from tests.harness.store_groups import GROUP, queues
from tests.harness.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.dedup.coordinator import GroupState

LEASE_S = 1.0
#: Of members that are not to be lost, however long the machine stands still. They beat as often as the others.
CALM_S = 30.0
TOPICS, EACH = 5, 4
QUEUES = {queue for i in range(TOPICS) for queue in queues(EACH, f"t{i}")}


class Process:
    """A process of group_member.py."""

    def __init__(self, url: str, name: str, lease_s: float) -> None:
        self.name = name
        self.frozen = False
        self.said: dict[str, Any] = {}
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.contracts.redis.group_member",
                url,
                name,
                str(lease_s),
                str(TOPICS),
                str(EACH),
            ],
            stdout=subprocess.PIPE,
            preexec_fn=die_with_parent,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.said = json.loads(line)

    def signal(self, number: int) -> None:
        os.kill(self._process.pid, number)

    def freeze(self) -> None:
        self.signal(signal.SIGSTOP)
        self.frozen = True

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)
        self.frozen = False

    def gone(self) -> bool:
        return self._process.poll() is not None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


class Field:
    """The server, the processes, and what is seen from the side."""

    def __init__(self, server: RedisServer) -> None:
        self.server = server
        self.processes: list[Process] = []
        self.store = RedisClaims.from_url(server.url, namespace="t", timeout_s=0.5)
        self.coordinator = RedisCoordinator(self.store)
        self._made = 0

    def start(self, lease_s: float = LEASE_S) -> Process:
        self._made += 1
        self.processes.append(Process(self.server.url, f"m{self._made}", lease_s))
        return self.processes[-1]

    def drop(self, process: Process) -> None:
        self.processes.remove(process)
        process.kill()

    def end(self, process: Process) -> None:
        """SIGTERM, and wait."""
        process.signal(signal.SIGTERM)
        until(process.gone)
        self.drop(process)

    def state(self) -> GroupState | None:
        try:
            return self.coordinator.describe(GROUP)
        except StoreUnavailable:
            return None

    def at_rest(self) -> tuple[GroupState, list[dict[str, Any]]]:
        """Wait until it is, and say how it is, and what its members said then."""
        found: list[tuple[GroupState, list[dict[str, Any]]]] = []

        def rests() -> bool:
            state = self.state()
            if state is None or not state.settled:
                return False
            if sorted(each.client_id for each in state.members) != sorted(each.name for each in self.processes):
                return False
            said = [each.said for each in self.processes]
            found.append((state, said))
            return all(each.get("stamp") == state.plan.stamp for each in said)

        until(rests)
        return found[-1]

    def check(self) -> GroupState:
        """All that must be so at rest."""
        state, said = self.at_rest()
        ids = {each.id for each in state.members}
        counts = Counter(state.plan.owners.values())
        assert set(state.plan.owners) == QUEUES
        assert set(counts) <= ids
        numbers = [counts[each] for each in ids]
        assert max(numbers) - min(numbers) <= 1
        by_id = {each["id"]: each["own"] for each in said}
        assert by_id == {each: counts[each] for each in ids}
        return state

    def beaten(self, times: int) -> None:
        """Wait until each member's lease has begun anew so often."""
        last: dict[str, float] = {}
        beats: Counter[str] = Counter()

        def often() -> bool:
            state = self.state()
            left_s = state.left_s if state else {}
            for each in left_s:
                beats[each] += left_s[each] > last.get(each, math.inf)
                last[each] = left_s[each]
            return bool(left_s) and min(beats[each] for each in left_s) >= times  # of those that are in now

        until(often)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in [*self.processes]:
            self.drop(process)
        self.store.close()


@pytest.fixture
def field() -> Iterator[Field]:
    with RedisServer() as server, Field(server) as made:
        yield made


def test_members_come_and_go(field: Field) -> None:
    processes = [field.start(CALM_S) for _ in range(4)]
    first = field.check()
    field.end(processes[0])
    second = field.check()
    assert second.plan.generation == first.plan.generation + 1, "who leaves has published the plan of the others"
    killed = field.start()
    field.check()
    killed.signal(signal.SIGKILL)
    field.drop(killed)
    field.start()
    field.check()


def test_at_rest_the_plan_stays(field: Field) -> None:
    for _ in range(3):
        field.start(CALM_S)
    before = field.check()
    field.beaten(4)
    assert field.check().plan == before.plan


def test_who_was_frozen_past_its_lease_comes_back_under_another_id(field: Field) -> None:
    frozen, *_ = [field.start() for _ in range(3)]
    before = field.check()
    old = frozen.said["id"]
    frozen.freeze()
    until(lambda: old not in {each.id for each in (field.state() or before).members})
    frozen.thaw()
    after = field.check()
    assert frozen.said["id"] != old
    assert old not in after.plan.owners.values()


def test_a_redis_that_was_emptied_is_told_again_and_nothing_moves(field: Field) -> None:
    for _ in range(3):
        field.start(CALM_S)
    before = field.check()
    field.server.kill()
    field.server.restart()
    assert field.check().plan == before.plan


class Trouble:
    """One thing after another, as the seed says."""

    def __init__(self, field: Field, seed: int) -> None:
        self.field = field
        self.rnd = random.Random(seed)

    def happens(self) -> None:
        self.rnd.choice(
            [self.start, self.start, self.end, self.kill, self.freeze, self.thaw, self.restart, self.rest]
        )()

    def some(self) -> Process:
        return self.rnd.choice(self.field.processes)

    def start(self) -> None:
        if len(self.field.processes) < 6:
            self.field.start()

    def end(self) -> None:
        process = self.some()
        if len(self.field.processes) > 2 and not process.frozen:
            self.field.end(process)

    def kill(self) -> None:
        if len(self.field.processes) > 2:
            self.field.drop(self.some())

    def freeze(self) -> None:
        if not any(each.frozen for each in self.field.processes):
            self.some().freeze()

    def thaw(self) -> None:
        for each in self.field.processes:
            each.thaw()

    def restart(self) -> None:
        self.field.server.kill()
        time.sleep(self.rnd.choice([0.0, 1.5 * LEASE_S]))
        self.field.server.restart()

    def rest(self) -> None:
        time.sleep(self.rnd.uniform(0.0, 1.5 * LEASE_S))


@pytest.mark.parametrize("seed", range(2))
def test_whatever_happens_it_comes_to_rest(field: Field, seed: int) -> None:
    trouble = Trouble(field, seed)
    for _ in range(3):
        field.start()
    for _ in range(12):
        trouble.happens()
    trouble.thaw()
    before = field.check()
    field.beaten(3)
    while set((after := field.check()).members) != set(before.members):  # the machine stood still for a lease
        before = after
        field.beaten(3)
    assert after.plan == before.plan
