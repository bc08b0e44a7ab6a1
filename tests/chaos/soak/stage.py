"""Where a soak is played: a field, whose members reach brokers and store by lines that can be cut."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any, Final, Self

from tests.chaos.soak.vitals import Watcher
from tests.harness.group.field import MARK_BATCH, Field
from tests.harness.group.referee import Death
from tests.harness.servers.kafka import KafkaServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from random import Random

    from tests.chaos.soak.stores import Store
    from tests.chaos.soak.vitals import Look
    from tests.harness.group.config import Protocol
    from tests.harness.group.process import Member
    from tests.harness.servers.rocketmq import RocketMQServer
    from tests.harness.wire import Wire

#: Each name has a line of its own. The first two live from the beginning to the end, the others come and go.
NAMES: Final = ("a", "b", "c", "d")
STEADY: Final = NAMES[:2]
_RATE: Final = 150.0
#: A second's.
_SLACK: Final = 150
_MOST_PARTITIONS = 16


class Stage:
    """One leg of a soak: one group on one protocol. A context manager."""

    def __init__(
        self,
        server: KafkaServer | RocketMQServer,
        store: Store,
        home: Path,
        protocol: Protocol,
        seed: int,
        events: Path,
    ) -> None:
        """Args: store: that lives longer than this."""
        self.server, self.store, self.protocol = server, store, protocol
        #: RocketMQ's count is that of the queues at each of its brokers.
        self._shared_out = 1 if isinstance(server, KafkaServer) else len(server.brokers)
        config: dict[str, Any] = {"audit": str(events)}
        self.field = Field(
            server, None, home, protocol=protocol, seed=seed, config=config, partitions=8 // self._shared_out
        )
        self.watcher = Watcher(lambda: {each.pid: each.name for each in self.living})

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.field)
            for each in NAMES[:3]:
                self.start(each)
            self.field.flow(_RATE)
            self.field.until_spread(*self.living)
            self.watcher.start()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *how: object) -> None:
        self._stack.close()

    @property
    def random(self) -> Random:
        return self.field.random

    @property
    def kafka(self) -> KafkaServer:
        assert isinstance(self.server, KafkaServer)
        return self.server

    # -- members

    @property
    def living(self) -> list[Member]:
        return [each for each in self.field.members.copy().values() if each.process.poll() is None]

    def start(self, name: str) -> Member:
        line = NAMES.index(name)
        changes = self.store.settings(line)
        if isinstance(self.server, KafkaServer):
            changes["bootstrap"] = self.server.address(line)
        return self.field.start(name, **changes)

    def anyone(self) -> Member:
        """One of those that live."""
        return self.random.choice(self.living)

    def one_that_goes(self) -> Member:
        """One of those that come and go; there is always one."""
        return self.random.choice([each for each in self.living if each.name not in STEADY])

    def absent(self) -> str | None:
        """A name that nobody has now."""
        free = sorted(set(NAMES) - {each.name for each in self.living})
        return free[0] if free else None

    def fill(self) -> None:
        """One of those that come and go is there again."""
        if not any(each.name not in STEADY for each in self.living):
            self.start(NAMES[2])

    def silent(self, member: Member, seconds: float, *, dead: bool) -> None:
        """SIGSTOP for so long. `dead`: past its session."""
        self.field.pause(member)
        self.field.until(lambda: member.stopped, f"{member.name} is stopped")
        if dead:
            self.field.deaths.append(self._death(member, time.monotonic_ns()))
        self.field.stay(seconds)
        self.field.go_on(member)

    # -- lines

    def wires(self, member: Member, to: str) -> list[Wire]:
        """Of its line to "broker" or "store"."""
        line = NAMES.index(member.name)
        return self.store.wires(line) if to == "store" else [*self.kafka.wires(line)]

    @contextlib.contextmanager
    def out_of_reach(self, member: Member) -> Iterator[None]:
        """Meanwhile it goes on with what it has, unheard, past its session: a death with a beginning and an end."""
        began = time.monotonic_ns()
        yield
        self.field.deaths.append(self._death(member, began)._replace(until_ns=time.monotonic_ns()))

    # -- servers

    def a_broker(self) -> Any:
        """A number on Kafka, a name on RocketMQ."""
        return self.random.choice([*self.server.brokers])

    def grow(self) -> None:
        """Two partitions more, as long as there are not too many."""
        now = len(self.field.ground.partitions(self.field.topic))
        if now < _MOST_PARTITIONS:
            self.field.traffic.stop()
            self.field.grow(self.field.topic, (now + 2) // self._shared_out)
            self.field.flow(_RATE)

    # -- after a fault

    def recover(self) -> None:
        """Returns when all who live share all partitions, and the lag is what is usual."""
        self.fill()
        self.field.until_spread(*self.living)
        self.field.until_caught_up(_SLACK)

    def end(self) -> list[Look]:
        """All is handled, all have left; what they took of the machine."""
        looks = self.watcher.stop()
        self.field.wind_up()
        return looks

    def _death(self, member: Member, at_ns: int) -> Death:
        return Death(member.name, member.pid, at_ns, member.config.workers + MARK_BATCH)
