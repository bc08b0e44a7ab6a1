"""Where a scenario is played: members as processes, traffic, signals; it waits for what the ledger says."""

from __future__ import annotations

import random
import signal
import time
import uuid
from typing import TYPE_CHECKING, Any, Self

from confluent_kafka import ConsumerGroupState, TopicPartition

from tests.scenarios.config import Kind, MemberConfig, Protocol
from tests.scenarios.ledger import Reader
from tests.scenarios.outcome import Outcome
from tests.scenarios.process import Member
from tests.scenarios.referee import Death
from tests.scenarios.sampler import Sampler
from tests.scenarios.traffic import Traffic
from tests.servers.processes import end, tail

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from pathlib import Path

    from tests.scenarios.ledger import Where
    from tests.servers.kafka import KafkaServer

_LOOK_S = 0.05
_WITHIN_S = 45.0
#: Settings.mark_batch: with the workers, what a death may repeat at most.
_MARK_BATCH = 500


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
        kafka: KafkaServer,
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
        self.kafka, self.home, self.protocol, self.kind = kafka, home, protocol, kind
        self.random = random.Random(seed)
        self.group, self.topic = f"group-{name}", f"orders-{name}"
        self.topics: list[str] = []
        self.members: dict[str, Member] = {}
        self.deaths: list[Death] = []
        self.replayed: dict[Where, int] = {}
        self.dead_letters: str | None = None
        self._shared: dict[str, Any] = {"redis_url": redis_url, "topics": (self.topic,)} | (config or {})
        self._reader = Reader(home / "ledger.tsv")
        self._partitions: dict[str, list[int]] = {}
        self.traffic = Traffic(kafka.bootstrap, seed, work_ms)
        self.sampler = Sampler(kafka.bootstrap, self.group, lambda: dict(self._partitions))
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

    # -- acting --------------------------------------------------------------------------------------------------------

    def add_topic(self, name: str, partitions: int = 8) -> None:
        """A topic that is judged too."""
        self.kafka.create_topic(name, partitions)
        self.topics.append(name)
        self._partitions[name] = list(range(partitions))

    def grow(self, topic: str, partitions: int) -> None:
        """Add partitions to a topic."""
        self.kafka.add_partitions(topic, partitions)
        self._partitions[topic] = list(range(partitions))

    def add_dead_letters(self) -> None:
        """A topic for what fails for good; for members started from now on."""
        self.dead_letters = f"{self.topic}.dlq"
        self.kafka.create_topic(self.dead_letters, 1)
        self._shared["dead_letter"] = self.dead_letters

    def send_slow(
        self, work_ms: float, partitions: Iterable[int] | None = None, fail_at: tuple[str, ...] = ()
    ) -> list[str]:
        """Send one long order to each partition (of the first topic), ahead of what comes; returns their keys."""
        orders = []
        for each in self._partitions[self.topic] if partitions is None else partitions:
            order = self.traffic.next(work_ms=work_ms, fail_at=fail_at)
            self.traffic.send(self.topic, order, partition=each)
            orders.append(order.order_id)
        return orders

    def stable(self) -> bool:
        """Whether the broker sees no rebalance pending in the group."""
        return self.state() == ConsumerGroupState.STABLE

    def state(self) -> ConsumerGroupState:
        """The group's, as the broker sees it."""
        found = self.kafka.admin.describe_consumer_groups([self.group])[self.group].result(10)
        state: ConsumerGroupState = found.state
        return state

    def reset(self, offsets: Iterable[TopicPartition]) -> None:
        """Set the group's offsets as an operator does, once it is empty; who has left in order is soon out of it."""
        self.until(lambda: self.state() == ConsumerGroupState.EMPTY, "the group is empty", within_s=4)
        self.kafka.reset(self.group, offsets)

    def start(self, name: str, **changes: Any) -> Member:
        """Start a member; does not wait for it. A name may be used again after its process ended."""
        settings = self._shared | changes
        settings["topics"] = tuple(each.replace("{topic}", self.topic) for each in settings["topics"])
        config = MemberConfig(
            name=name,
            kind=self.kind,
            bootstrap=self.kafka.bootstrap,
            group=self.group,
            namespace=self.group,
            ledger=str(self.home / "ledger.tsv"),
            events=str(self.home / "events.jsonl"),
            protocol=self.protocol,
            **settings,
        )
        self.members[name] = Member(config, self.home / f"{name}.log")
        return self.members[name]

    def flow(self, per_second: float = 300) -> None:
        """Let orders come to all topics from now on."""
        self.traffic.flow(list(self.topics), per_second)

    def stop(self, *members: Member) -> None:
        """SIGTERM to all at once; returns when they have ended by themselves, with status 0."""
        for member in members:
            member.may_end = True
            member.signal(signal.SIGTERM)
        for member in members:
            self.until_ended(member)
            if member.process.returncode != 0:
                raise self.error(f"{member.name} ended with status {member.process.returncode}")

    def kill(self, member: Member) -> None:
        """SIGKILL."""
        member.may_end = True
        self._dies(member)
        member.signal(signal.SIGKILL)
        member.process.wait()

    def stall(self, member: Member) -> None:
        """SIGSTOP, to last past its session: counts as a death."""
        self._dies(member)
        member.signal(signal.SIGSTOP)

    def pause(self, member: Member) -> None:
        """SIGSTOP, to last less than its session: no excuse for anything."""
        member.signal(signal.SIGSTOP)

    def go_on(self, member: Member) -> None:
        """SIGCONT."""
        member.signal(signal.SIGCONT)

    def _dies(self, member: Member) -> None:
        self.deaths.append(Death(member.name, member.pid, time.monotonic_ns(), member.config.workers + _MARK_BATCH))

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
        since, pids = time.monotonic_ns(), {each.pid for each in members}
        everything = {(topic, each) for topic, numbers in self._partitions.items() for each in numbers}

        def spread() -> bool:
            new = [each for each in self._reader.read() if each.at_ns > since and each.what == "start"]
            mine = [each for each in new if each.pid in pids]
            return {each.where[:2] for each in mine} == everything and {each.pid for each in mine} == pids

        self.until(spread, f"{', '.join(each.name for each in members)} share all partitions")

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

    def until_handled(self, more: int) -> None:
        """That many more records have ended than now."""
        goal = self._ended() + more
        self.until(lambda: self._ended() >= goal, f"{more} more records end")

    def until_ended(self, member: Member) -> None:
        """Its process is gone."""
        self.until(lambda: member.process.poll() is not None, f"{member.name} ends after SIGTERM")

    def until_settled(self) -> None:
        """Everything that was produced has ended, or has failed for good."""
        self.until(self._settled, "all that was produced is handled", within_s=60)

    def _ended(self) -> int:
        return sum(each.what == "end" for each in self._reader.read())

    def _settled(self) -> bool:
        entries, produced, hopeless = self._reader.read(), list(self.traffic.produced), self.traffic.hopeless
        if self._by_key:
            return {each.key for each in produced} <= {each.key for each in entries if each.what == "end"} | hopeless
        ended = {each.where for each in entries if each.what == "end" or each.key in hopeless}
        if not all(each.where in ended for each in produced):
            return False
        # A first failure settles nothing: there may be retries to come, and then there is the dead letter.
        dead = self.kafka.end_offsets(self.dead_letters) if self.dead_letters else {}
        return self.dead_letters is None or sum(dead.values()) >= len(hopeless)

    @property
    def _by_key(self) -> bool:
        return self._shared.get("key") is not None

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
            deaths=self.deaths,
            samples=self.sampler.samples,
            ends={topic: self.kafka.end_offsets(topic) for topic in self.topics},
            committed={topic: self.kafka.committed(self.group, topic) for topic in self.topics},
            by_key=self._by_key,
            given_up=frozenset(self.traffic.hopeless),
            replayed=self.replayed,
            dead_letters=self.kafka.end_offsets(self.dead_letters) if self.dead_letters else {},
        )

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
        parts.append(f"--- broker:\n{tail(self.kafka.log_file, 15)}")
        return FieldError("\n".join(parts))
