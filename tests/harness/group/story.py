"""A story: one scenario as a function of a field, told to members of any kind on any protocol, by any seed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.harness.group.config import KAFKA, KINDS, Kind, Protocol
from tests.harness.group.field import Field, FieldError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.harness.group.outcome import Outcome
    from tests.harness.servers.kafka import KafkaServer
    from tests.harness.servers.rocketmq import RocketMQServer


def _nothing(_: Outcome) -> list[str]:
    return []


@dataclass(frozen=True, kw_only=True)
class Story:
    """What is played, how its members are configured, and what more than the promises is to hold."""

    name: str
    play: Callable[[Field], None]
    config: dict[str, Any] = field(default_factory=dict)
    partitions: int = 8
    #: How many brokers it needs: on RocketMQ each with so many queues of a topic, on Kafka each with a replica of all.
    brokers: int = 1
    #: Who can play it: some need what only holdfast has.
    kinds: tuple[Kind, ...] = KINDS
    #: On which protocols.
    protocols: tuple[Protocol, ...] = KAFKA
    #: Protocols under which only loss counts (there is no store).
    may_repeat: frozenset[Protocol] = frozenset()
    check: Callable[[Outcome], list[str]] = _nothing
    #: Orders that one partition has before it begins.
    backlog: int = 0

    def tell(
        self,
        server: KafkaServer | RocketMQServer,
        redis_url: str | None,
        home: Path,
        protocol: Protocol,
        seed: int,
        kind: Kind = "holdfast",
    ) -> Outcome:
        """Play it once. Raises FieldError where it does not come to its end."""
        with Field(
            server,
            redis_url,
            home,
            protocol=protocol,
            seed=seed,
            kind=kind,
            partitions=self.partitions,
            config=self.config,
        ) as field:
            try:
                field.send_backlog(self.backlog)
                self.play(field)
                return field.finish()
            except FieldError as error:
                error.outcome = field.outcome()
                raise

    def faults(self, outcome: Outcome) -> list[str]:
        """What broke a promise; empty = all held."""
        return [*outcome.faults(may_repeat=outcome.protocol in self.may_repeat), *self.check(outcome)]


STORIES: dict[str, Story] = {}


def story(**how: Any) -> Callable[[Callable[[Field], None]], Story]:
    """Make a story of a function; its name is the function's."""

    def make(play: Callable[[Field], None]) -> Story:
        made = Story(name=play.__name__, play=play, **how)
        STORIES[made.name] = made
        return made

    return make
