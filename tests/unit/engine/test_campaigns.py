"""Members come and go at random while records flow: the promises, whatever the order of events.

Graceful: joins, leaves, moves, lost partitions of members that live, handlers that outlive their drain or fail, calls
without an answer. Nothing is lost, nothing runs twice, the order of each key holds. Rough: sessions end as well; then
only what such a session had started and not marked may run again.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Settings
from holdfast.dedup.claims import ClaimKey
from holdfast.dedup.memory_state import Finished
from holdfast.plugin.audit.schema import COVERING, Assigned, Outcome, Revoked, Spans, Stopped
from holdfast.plugin.events import SessionLost
from tests.harness.audit_events import MemoryEvents
from tests.harness.engine import Bench, FlakyClaims, partition
from tests.harness.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.harness.engine import Member, Seen

PARTITIONS = 4
CALLS = ["begin", "acquire", "claim", "finish", "mark", "let_go", "poll", "release", "unclaim"]


class Campaign:
    def __init__(self, bench: Bench, store: FlakyClaims, seed: int, *, rough: bool) -> None:
        self.bench, self.store, self.random = bench, store, random.Random(seed)
        self.keyed = seed % 2 == 1
        self.members: list[Member] = []
        self.produced: set[tuple[int, int]] = set()
        self.values: set[str] = set()
        self.expired: set[str] = set()
        self.told = MemoryEvents()
        self.too_late: list[Seen] = []
        self._joined = 0
        self._actions: list[Callable[[], None]] = [self.join, self.leave, self.move, self.move, self.lose, self.hiccup]
        if rough:
            self._actions += [self.expire, self.expire, self.zombie]
        bench.work.look = self.look

    def look(self, seen: Seen) -> None:
        """At each start: nothing that is done by then may begin again."""
        state = self.store.inner.state
        done = state.position(f"g/orders/1/{seen.partition.number}").is_done(seen.offset)
        finished = self.keyed and isinstance(state.key(ClaimKey("g/orders", f"s:{seen.value}")), Finished)
        if done or finished:
            self.too_late.append(seen)

    # ---- what happens
    def produce(self) -> None:
        for _ in range(self.random.randrange(5, 25)):
            number, key = self.random.randrange(PARTITIONS), f"k{self.random.randrange(6)}"
            value = f"v{len(self.produced)}"
            if self.keyed and self.values and self.random.random() < 0.1:
                value = self.random.choice(sorted(self.values))
            dice = self.random.random()
            if dice < 0.05:
                self.bench.work.hold(value)
            elif dice < 0.15:
                self.bench.work.fail(value, *[ValueError("at random")] * self.random.randrange(1, 3))
            [offset] = self.bench.broker.produce("orders", number, value, key=key)
            self.produced.add((number, offset))
            self.values.add(value)
            if self.random.random() < 0.05:
                self.bench.broker.leave_out("orders", number, 1)

    def join(self) -> None:
        if len(self.members) < 4:
            self._joined += 1
            more: dict[str, Any] = {"key": lambda record: record.value or b""} if self.keyed else {}
            settings = Settings(
                workers=self.random.choice([1, 4]),
                commit_interval_s=0.005,
                drain_timeout_s=self.random.choice([0.01, 0.5]),
                mark_batch=self.random.choice([3, 500]),
                max_in_flight=self.random.choice([20, 4000]),
            )
            name = f"m{self._joined}"
            self.members.append(self.bench.member(name, settings=settings, audit=self.told.audit(name), **more))

    def leave(self) -> None:
        if len(self.members) > 1:
            self.members.pop(self.random.randrange(len(self.members))).app.stop()

    def move(self) -> None:
        """Somebody says who gets what; members that are not there yet, too."""
        self.bench.group.aim(
            {
                member.source: [partition(number) for number in range(PARTITIONS) if where[number] is member]
                for where in [[self.random.choice(self.members) for _ in range(PARTITIONS)]]
                for member in self.members
            }
        )

    def lose(self) -> None:
        with self.bench.changed:
            self.bench.group.lose(self.random.choice(self.members).source)

    def hiccup(self) -> None:
        lose = self.random.choice([self.store.lose_request, self.store.lose_answer])
        lose(self.random.choice(CALLS), self.random.randrange(1, 3))

    def expire(self) -> None:
        """In the order of things: a process gives itself up before the store does."""
        engine = self.random.choice(self.members).app._engine
        session: Any = engine and engine.parts.sessions.session
        if session is not None:
            self.expired.add(session.id)
            session._inner._lease.lose()
            self.store.inner.expire(session.id)

    def zombie(self) -> None:
        member = self.random.choice(self.members)
        engine = member.app._engine
        session: Any = engine and engine.parts.sessions.session
        if session is not None:
            self.expired.add(session.id)
            session._inner._lease.lose()
            with self.bench.changed:
                self.store.inner.expire(session.id)
                self.bench.group.lose(member.source)

    # ---- the whole of it
    def run(self, steps: int) -> None:
        self.join()
        for _ in range(steps):
            self.produce()
            self.random.choice(self._actions)()
            if self.random.random() < 0.4:
                self.bench.work.let_go()
            # On with it when something has happened, at the latest after a moment: some of what happens is silence.
            ended, polls = len(self.bench.work.ended), [member.source.polls for member in self.members]
            self.bench.wait(
                lambda ended=ended, polls=polls: (
                    len(self.bench.work.ended) > ended + 10  # type: ignore[misc]
                    or all(m.source.polls > before + 3 for m, before in zip(self.members, polls, strict=True))
                )
            )
        self.bench.work.let_go()
        self.move()
        for number in range(PARTITIONS):
            end = self.bench.broker.logs[partition(number)].end
            if end:
                self.bench.wait_committed(end, number)
        for member in self.members:
            member.app.stop()
        for member in self.bench.members:
            assert member.over.wait(PATIENCE_S), f"{member.name} does not end"


def ends(bench: Bench) -> dict[tuple[int, int], list[Seen]]:
    found: dict[tuple[int, int], list[Seen]] = defaultdict(list)
    for seen in bench.work.ended:
        found[seen.partition.number, seen.offset].append(seen)
    return found


def _is_record(bench: Bench, number: str, offset: int) -> bool:
    return offset in bench.broker.logs[partition(int(number))].records


def check_audit(campaign: Campaign) -> None:
    """What members told is what they did, each attempt of it, and every offset is accounted for."""
    bench, told = campaign.bench, campaign.told
    for outcome, what in ((Outcome.HANDLED, "end"), (Outcome.FAILED, "fail")):
        for member in bench.members:
            did = Counter(
                (str(seen.partition.number), seen.offset)
                for happened, seen in bench.work.story
                if (happened, seen.member) == (what, member.name)
            )
            said = told.offsets(outcome, member.name)
            # A span of several may have a hole of the log inside.
            assert Counter({each: times for each, times in said.items() if _is_record(bench, *each)}) == did
    covered = {
        (body.partition, offset)
        for body in told.bodies(Spans)
        for span in body.spans
        if span.outcome in COVERING
        for offset in range(span.first or 0, span.next or 0)
    }
    logs = {where.number: log.end for where, log in bench.broker.logs.items()}
    assert covered == {(str(number), offset) for number, end in logs.items() for offset in range(end)}
    for member in bench.members:
        came = Counter((place.partition, place.epoch) for _, place in told.places(Assigned, member.name))
        went = Counter((place.partition, place.epoch) for _, place in told.places(Revoked, member.name))
        assert came == went
        assert set(came.values()) <= {1}
        assert [body.clean for body in told.bodies(Stopped, member.name)] == [True]


def check_order(bench: Bench) -> None:
    """Of one key in one partition: one at a time, and never one before an earlier one has ended."""
    keys: dict[tuple[int, int], bytes | None] = {
        (where.number, offset): stored.key
        for where, log in bench.broker.logs.items()
        for offset, stored in log.records.items()
    }
    running: dict[tuple[int, bytes | None], int] = {}
    last: dict[tuple[int, bytes | None], int] = defaultdict(lambda: -1)
    for what, seen in bench.work.story:
        number = seen.partition.number
        lane = number, keys[number, seen.offset]
        if what == "start":
            assert lane not in running, f"{seen} beside {running[lane]}"
            assert seen.offset > last[lane], f"{seen} after {last[lane]}"
            running[lane] = seen.offset
        else:
            del running[lane]
            if what == "end":
                last[lane] = seen.offset


@pytest.mark.parametrize("seed", range(5))
def test_graceful_nothing_is_lost_nothing_is_repeated_and_keys_keep_their_order(seed: int) -> None:
    store = FlakyClaims()
    with Bench(orders=PARTITIONS, claims=store) as bench:
        campaign = Campaign(bench, store, seed, rough=False)
        campaign.run(25)
        assert [member.name for member in bench.members if member.told(SessionLost)] == []
        assert campaign.too_late == []
        assert set(bench.work.values()) == campaign.values
        if campaign.keyed:
            assert set(bench.work.times().values()) == {1}
        else:
            assert set(ends(bench)) == campaign.produced
            assert [runs for runs in ends(bench).values() if len(runs) > 1] == []
        check_order(bench)
        check_audit(campaign)


@pytest.mark.parametrize("seed", range(5))
def test_rough_nothing_is_lost_and_only_what_was_in_lost_hands_is_repeated(seed: int) -> None:
    store = FlakyClaims()
    with Bench(orders=PARTITIONS, claims=store) as bench:
        campaign = Campaign(bench, store, seed, rough=True)
        campaign.run(25)
        assert campaign.expired
        assert campaign.too_late == []
        assert set(bench.work.values()) == campaign.values
        assert campaign.keyed or set(ends(bench)) == campaign.produced
        for runs in ends(bench).values():
            assert len([seen for seen in runs if seen.session not in campaign.expired]) <= 1, runs
        check_audit(campaign)
