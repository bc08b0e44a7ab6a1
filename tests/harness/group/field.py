"""Where a scenario is played: members as processes, traffic, signals; it waits for what the ledger says."""

from __future__ import annotations

import json
import random
import signal
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from confluent_kafka import ConsumerGroupState, TopicPartition

from tests.harness.group.config import Kind, MemberConfig, Protocol
from tests.harness.group.kafka_ground import KafkaGround
from tests.harness.group.ledger import Reader
from tests.harness.group.outcome import Happened, Outcome
from tests.harness.group.process import Member
from tests.harness.group.progress import Progress
from tests.harness.group.referee import Death, uncommitted
from tests.harness.group.rocketmq_ground import RocketMQGround
from tests.harness.group.sampler import Sampler
from tests.harness.group.traffic import Traffic
from tests.harness.processes import end, tail
from tests.harness.servers.kafka import KafkaServer

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from tests.harness.group.ground import Ground
    from tests.harness.group.ledger import Where
    from tests.harness.servers.rocketmq import RocketMQServer

_LOOK_S = 0.05
_WITHIN_S = 120.0
_EXPLAINING = ("SessionLost", "StoreLost", "StoreDown")
#: Settings.mark_batch: with the workers, what a death may repeat at most.
MARK_BATCH = 500


class FieldError(AssertionError):
    """A scenario did not come to where it should; says what was awaited and what the members wrote last."""

    #: What there was until then.
    outcome: Outcome | None = None


class Field:
    """One group on one topic of its own. A context manager: nothing outlives it.

    `config` is what all members share besides what the field fills in; `start` may change it for one.
    """

    def __init__(
        self,
        server: KafkaServer | RocketMQServer,
        redis_url: str | None,
        home: Path,
        *,
        protocol: Protocol,
        seed: int,
        kind: Kind = "holdfast",
        work_ms: float = 3.0,
        partitions: int = 8,
        config: dict[str, Any] | None = None,
    ) -> None:
        name = uuid.uuid4().hex[:8]
        self.ground: Ground = KafkaGround(server) if isinstance(server, KafkaServer) else RocketMQGround(server)
        self.home, self.protocol, self.kind = home, protocol, kind
        self.random = random.Random(seed)
        self.group, self.topic = f"group-{name}", f"orders-{name}"
        self.topics: list[str] = []
        self.members: dict[str, Member] = {}
        self.deaths: list[Death] = []
        self.silenced: set[int] = set()
        self.replayed: dict[Where, int] = {}
        self.dead_letters: str | None = None
        self._shared: dict[str, Any] = {"redis_url": redis_url, "topics": (self.topic,)} | (config or {})
        self._reader = Reader(home / "ledger.tsv")
        self._partitions: dict[str, list[int]] = {}
        self.traffic = Traffic(self.ground, seed, work_ms)
        self._progress = Progress(self.traffic, self._reader, by_key=self._by_key)
        self.sampler = Sampler(self.ground.watch(self.group), lambda: dict(self._partitions))
        self.add_topic(self.topic, partitions)

    def __enter__(self) -> Self:
        self.sampler.start()
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members.values():
            if member.process.poll() is None:
                member.process.kill()
                end(member.process, patience_s=1.0)
        self.sampler.stop()
        self.traffic.close()
        self.ground.close()

    @property
    def kafka(self) -> KafkaServer:
        """For stories that Kafka alone can play."""
        assert isinstance(self.ground, KafkaGround)
        return self.ground.server

    @property
    def rocketmq(self) -> RocketMQServer:
        """For stories that RocketMQ alone can play."""
        assert isinstance(self.ground, RocketMQGround)
        return self.ground.server

    # -- acting --------------------------------------------------------------------------------------------------------

    def add_topic(self, name: str, partitions: int = 8) -> None:
        """A topic that is judged too."""
        self.ground.create_topic(name, partitions)
        self.topics.append(name)
        self._partitions[name] = self.ground.partitions(name)

    def grow(self, topic: str, partitions: int) -> None:
        """Add partitions to a topic."""
        self.ground.grow(topic, partitions)
        self._partitions[topic] = self.ground.partitions(topic)

    def add_dead_letters(self) -> None:
        """A topic for what fails for good; for members started from now on."""
        self.dead_letters = f"{self.topic}-dlq"
        self.ground.create_topic(self.dead_letters, 1)
        self._shared["dead_letter"] = self.dead_letters

    def send_slow(self, work_ms: float, partitions: Iterable[int] | None = None, **changes: Any) -> list[str]:
        """Send one long order to each partition (of the first topic), ahead of what comes; returns their keys."""
        return self._send_each(partitions, work_ms=work_ms, **changes)

    def send_hung(self, *members: str, partitions: Iterable[int] | None = None) -> list[str]:
        """The same with orders that those members ("*" = all) never come back from. Nothing else waits behind them."""
        return self._send_each(partitions, hang_at=members, own_lane=True)

    def send_locking(self, lock_ms: int, partitions: Iterable[int], **changes: Any) -> list[str]:
        """The same with orders whose handlers keep the interpreter lock for so long."""
        return self._send_each(partitions, lock_ms=lock_ms, **changes)

    def send_spinning(self, spin_ms: int) -> list[str]:
        """The same with orders whose handlers compute in Python for so long."""
        return self._send_each(None, spin_ms=spin_ms)

    def send_backlog(self, count: int) -> None:
        """Send so many orders, each with a lane of its own, to the first partition of the first topic."""
        for _ in range(count):
            order = self.traffic.next()
            self.traffic.send(self.topic, replace(order, lane=order.order_id), self._partitions[self.topic][0])
        self.traffic.flush()

    def _send_each(self, partitions: Iterable[int] | None, *, own_lane: bool = False, **changes: Any) -> list[str]:
        orders = []
        for each in self._partitions[self.topic] if partitions is None else partitions:
            order = self.traffic.next(**changes)
            if own_lane:
                order = replace(order, lane=order.order_id)
            self.traffic.send(self.topic, order, partition=each)
            orders.append(order.order_id)
        return orders

    def stable(self) -> bool:
        """Whether the broker sees no rebalance pending in the group."""
        return self.state() == ConsumerGroupState.STABLE

    def state(self) -> ConsumerGroupState:
        """The group's, as the broker sees it."""
        found = self.kafka.described(self.group)
        state: ConsumerGroupState = found.state
        return state

    def reset(self, offsets: Iterable[TopicPartition]) -> None:
        """Set the group's offsets as an operator does, once it is empty; who has left in order is soon out of it."""
        self.until(lambda: self.state() == ConsumerGroupState.EMPTY, "the group is empty")
        self.kafka.reset(self.group, offsets)

    def start(self, name: str, **changes: Any) -> Member:
        """Start a member; does not wait for it. A name may be used again after its process ended."""
        settings = {"bootstrap": self.ground.address} | self._shared | changes
        settings["topics"] = tuple(each.replace("{topic}", self.topic) for each in settings["topics"])
        config = MemberConfig(
            name=name,
            kind=self.kind,
            group=self.group,
            namespace=self.group,
            ledger=str(self.home / "ledger.tsv"),
            events=str(self.home / "events.jsonl"),
            protocol=self.protocol,
            **settings,
        )
        self.members[name] = Member(config, self.home / f"{name}.log")
        return self.members[name]

    def relieve(self, name: str, **changes: Any) -> Member:
        """Stop a member, and let another process of its name begin, which has been waiting for that: the name is away
        for as long as it takes to leave and to join, however long Python takes to start here."""
        old = self.members[f"{name}, the last"] = self.members[name]
        new = self.ready(name, **changes)
        self.stop(old)
        del self.members[f"{name}, the last"]
        self.let_begin(new)
        self.until_works(new)
        return new

    def ready(self, name: str, **changes: Any) -> Member:
        """Start a process that has everything to be a member, and waits for `let_begin`."""
        go = self.home / f"{name}.go.{uuid.uuid4().hex[:8]}"
        new = self.start(name, go=str(go), **changes)
        self.until(Path(f"{go}.waits").exists, f"the next {name} is ready")
        return new

    def let_begin(self, member: Member) -> None:
        """A process that is ready joins now."""
        assert member.config.go is not None
        Path(member.config.go).touch()

    def flow(self, per_second: float = 300) -> None:
        """Let orders come to all topics from now on."""
        self.traffic.flow(list(self.topics), per_second)

    def stop(self, *members: Member) -> None:
        """SIGTERM to all at once; returns when they have ended by themselves, with status 0."""
        for member in members:
            self.terminate(member)
        for member in members:
            self.until_ended(member)
            if member.process.returncode != 0:
                raise self.error(f"{member.name} ended with status {member.process.returncode}")

    def terminate(self, member: Member) -> None:
        """SIGTERM; does not wait for its end."""
        member.may_end = True
        member.signal(signal.SIGTERM)

    def kill(self, member: Member) -> None:
        """SIGKILL."""
        member.may_end = True
        member.signal(signal.SIGKILL)
        member.process.wait()
        self.silenced.add(member.pid)
        self._died(member)

    def stall(self, member: Member) -> None:
        """SIGSTOP, to last past its session: counts as a death."""
        member.signal(signal.SIGSTOP)
        self.until(lambda: member.stopped, f"{member.name} is stopped")
        self._died(member)

    def pause(self, member: Member) -> None:
        """SIGSTOP, to last less than its session: no excuse for anything."""
        member.signal(signal.SIGSTOP)

    def may_die(self, member: Member) -> None:
        """From now on: what it has in hand may be run again by others, as after a death."""
        member.may_end = True
        self.silenced.add(member.pid)
        self._died(member)

    def go_on(self, member: Member) -> None:
        """SIGCONT."""
        member.signal(signal.SIGCONT)

    def _died(self, member: Member) -> None:
        """From now on it does nothing: a signal takes its time, and what starts meanwhile is in hand as well."""
        self.deaths.append(Death(member.name, member.pid, time.monotonic_ns(), member.config.workers + MARK_BATCH))

    # -- waiting -------------------------------------------------------------------------------------------------------

    def until(self, condition: Callable[[], bool], what: str, within_s: float = _WITHIN_S) -> None:
        """Return when it holds. Raises FieldError after `within_s`, and when a member dies unasked."""
        end_at = time.monotonic() + within_s
        while not condition():
            for member in self.members.values():
                if not member.may_end and member.process.poll() is not None:
                    raise self.error(f"{member.name} died unasked, status {member.process.returncode}")
            if time.monotonic() > end_at:
                raise self.error(f"not within {within_s} s: {what}")
            time.sleep(_LOOK_S)

    def until_works(self, member: Member, records: int = 5) -> None:
        """The member's process has started that many records since it began."""
        self.until(lambda: self.started(member) >= records, f"{member.name} starts {records} records")

    def started(self, member: Member) -> int:
        """How many records the member's process has started."""
        return sum(each.pid == member.pid and each.what == "start" for each in self._reader.read())

    def until_spread(self, *members: Member) -> None:
        """From now on each partition has begun a record in one of these members, and each of them has begun some."""
        since, pids, old = time.monotonic_ns(), {each.pid for each in members}, len(self._reader.read())
        everything = {(topic, each) for topic, numbers in self._partitions.items() for each in numbers}

        def spread() -> bool:
            new = [each for each in self._reader.read()[old:] if each.at_ns > since and each.what == "start"]
            mine = [each for each in new if each.pid in pids]
            return {each.where[:2] for each in mine} == everything and {each.pid for each in mine} == pids

        self.until(spread, f"{', '.join(each.name for each in members)} share all partitions")

    def owners(self) -> dict[tuple[str, int], int]:
        """Partition -> process that began a record of it last."""
        return {each.where[:2]: each.pid for each in self._reader.read() if each.what == "start"}

    def until_started(self, keys: Collection[str], *by: Member) -> None:
        """The orders have been started, each by one of these members (by anyone, if none is named)."""
        pids = {each.pid for each in by}
        self.until(
            lambda: (
                set(keys)
                <= {each.key for each in self._reader.read() if each.what == "start" and (not pids or each.pid in pids)}
            ),
            f"{len(keys)} chosen orders start",
        )

    def until_done(self, keys: Collection[str], within_s: float = _WITHIN_S) -> None:
        """The orders have ended, each somewhere."""
        self.until(
            lambda: set(keys) <= {each.key for each in self._reader.read() if each.what == "end"},
            f"{len(keys)} chosen orders end",
            within_s,
        )

    def owner_of(self, key: str) -> Member:
        """Who started that order last."""
        pid = next(each.pid for each in reversed(self._reader.read()) if each.what == "start" and each.key == key)
        return next(each for each in self.members.values() if each.pid == pid)

    def until_dead_letters(self, count: int) -> None:
        """So many letters are in the dead letter topic."""
        topic = self.dead_letters or ""
        self.until(lambda: sum(self.ground.end_offsets(topic).values()) >= count, f"{count} dead letters")

    def until_executed(self, times: int) -> None:
        """That many executions have ended in all."""
        self.until(lambda: self._ended() >= times, f"{times} executions in all")

    def stay(self, seconds: float) -> None:
        """Let an outage last. The only wait that is not for an event: its length is what the scenario is about."""
        end_at = time.monotonic() + seconds
        self.until(lambda: time.monotonic() >= end_at, "time passes", within_s=seconds + 5)

    def until_event(self, name: str) -> None:
        """Some member has told its observers of such an event (holdfast only)."""
        file = self.home / "events.jsonl"
        self.until(lambda: file.exists() and f'"event": "{name}"' in file.read_text(), f"an event {name}")

    def told(self) -> list[dict[str, Any]]:
        """What holdfast's members have told their observers so far, in order."""
        file = self.home / "events.jsonl"
        whole = file.read_text().rpartition("\n")[0] if file.exists() else ""
        return [json.loads(line) for line in whole.splitlines()]

    def until_even(self, *members: Member) -> int:
        """By what these members tell (holdfast only) each has its share of all partitions: nothing moves any more.
        Returns how many events they have told by then."""
        everything, seen = sum(map(len, self._partitions.values())), 0

        def even() -> bool:
            nonlocal seen
            told = self.told()
            seen = len(told)
            has: dict[str, set[tuple[Any, ...]]] = {each.name: set() for each in members}
            for each in told:
                if each["member"] in has:
                    has[each["member"]] |= self._came(each)
                    has[each["member"]] -= self._ours(each.get("given"))
            counts = [len(each) for each in has.values()]
            return sum(counts) == everything and max(counts) - min(counts) <= 1

        self.until(even, f"{', '.join(each.name for each in members)} have even shares")
        return seen

    def nothing_moved(self, since: int) -> None:
        """Raises FieldError where, after so many events, partitions came or went, or a session was lost. The ledger
        alone does not tell: whose membership ends without a handler that runs again, repeats nothing."""
        for each in self.told()[since:]:
            if self._came(each) or each["event"] == "SessionLost" or self._ours(each.get("given")):
                raise self.error(f"a membership was not kept: {each}")

    def _came(self, told: dict[str, Any]) -> set[tuple[Any, ...]]:
        """By the event of the moment: the report of it comes when its effects are over."""
        return self._ours(told["partitions"]) if told["event"] == "Assigned" else set()

    def _ours(self, partitions: Iterable[Iterable[Any]] | None) -> set[tuple[Any, ...]]:
        """Those of the topics that are judged: on RocketMQ members have queues of the retry topic too."""
        return {tuple(each) for each in partitions or () if next(iter(each)) in self.topics}

    def until_handled(self, more: int) -> None:
        """That many more records have ended than now."""
        goal = self._ended() + more
        self.until(lambda: self._ended() >= goal, f"{more} more records end")

    def until_ended(self, member: Member) -> None:
        """Its process is gone."""
        self.until(lambda: member.process.poll() is not None, f"{member.name} ends after SIGTERM")

    def until_settled(self) -> None:
        """Everything that was produced has ended, or has failed for good."""
        self.until(self._settled, "all that was produced is handled", within_s=180)

    def until_caught_up(self, slack: int) -> None:
        """While the traffic goes on: no more than that is produced and not handled."""
        self.until(lambda: self._progress.behind() <= slack, "the lag is worked off")

    def _ended(self) -> int:
        return sum(each.what == "end" for each in self._reader.read())

    def _settled(self) -> bool:
        entries, produced, hopeless = self._reader.read(), list(self.traffic.produced), self.traffic.hopeless
        ended = [each for each in entries if each.what == "end" or each.key in hopeless]
        if self._by_key:
            left: set[Any] = {each.key for each in produced} - {each.key for each in ended}
        else:
            left = {each.where for each in produced} - {each.where for each in ended}
        if left or not self._copies_read():
            return False
        # A first failure settles nothing: there may be retries to come, and then there is the dead letter.
        dead = self.ground.end_offsets(self.dead_letters) if self.dead_letters else {}
        return self.dead_letters is None or sum(dead.values()) >= len(hopeless)

    def _copies_read(self) -> bool:
        """Whether what a retry has stored twice is read too: nothing runs then, offsets alone tell."""
        ends = {topic: self.ground.end_offsets(topic) for topic in self.topics}
        if sum(sum(each.values()) for each in ends.values()) == len(self.traffic.produced):
            return True
        return not any(uncommitted(each, self.ground.committed(self.group, topic)) for topic, each in ends.items())

    @property
    def _by_key(self) -> bool:
        # On RocketMQ a producer's retry across a restart of the broker stores a message twice: one of them is to run.
        return self._shared.get("key") is not None or self.protocol == "rocketmq"

    # -- the end -------------------------------------------------------------------------------------------------------

    def finish(self) -> Outcome:
        """Wind up, and gather what is to be judged."""
        self.wind_up()
        self.sampler.stop()
        return self.outcome()

    def wind_up(self) -> None:
        """Let the traffic end and everything be handled, stop all members in order. Idempotent."""
        self.traffic.stop()
        try:
            self.until_settled()
        except FieldError:
            if any(each.process.poll() not in (None, 0) and not each.may_end for each in self.members.values()):
                raise
            # Lost records are for the referee to tell.
        self.stop(*(each for each in self.members.values() if each.process.poll() is None))

    def outcome(self) -> Outcome:
        """What there is to be judged now."""
        return Outcome(
            produced=list(self.traffic.produced),
            entries=list(self._reader.read()),
            protocol=self.protocol,
            group=self.group,
            silenced=frozenset(self.silenced),
            deaths=self.deaths,
            happened=tuple(self._happened()),
            samples=self.sampler.samples,
            ends={topic: self.ground.end_offsets(topic) for topic in self.topics},
            committed={topic: self.ground.committed(self.group, topic) for topic in self.topics},
            by_key=self._by_key,
            given_up=frozenset(self.traffic.hopeless),
            replayed=self.replayed,
            dead_letters=self.ground.end_offsets(self.dead_letters) if self.dead_letters else {},
        )

    def _happened(self) -> Iterator[Happened]:
        """What holdfast's members told of, and that explains repeats."""
        for told in self.told():
            if told["event"] in _EXPLAINING:
                yield Happened(told["at_ns"], told["member"], told["pid"], told["event"])

    def error(self, what: str) -> FieldError:
        """An error with where all members are and what they wrote last."""
        for member in self.members.values():
            if member.process.poll() is None:
                member.signal(signal.SIGUSR1)  # faulthandler: where is it?
        time.sleep(0.3)
        parts = [what]
        for member in self.members.values():
            parts.append(f"--- {member.name} (pid {member.pid}, status {member.process.poll()}), {member.log}:")
            parts.append(tail(member.log, 25))
        parts.append(f"--- broker:\n{self.ground.log}")
        return FieldError("\n".join(parts))
