"""RocketMQ twice: the model in virtual time, and the server of the run. A script asks both through `RocketStage`."""

from __future__ import annotations

import secrets
from contextlib import ExitStack
from copy import deepcopy
from typing import TYPE_CHECKING, Protocol

from holdfast.adapters.rocketmq.remoting import CommitIgnored
from holdfast.adapters.rocketmq.remoting.admin import Admin
from holdfast.adapters.rocketmq.remoting.sending import Message, Sender
from holdfast.adapters.rocketmq.source import RocketMQSource
from holdfast.dedup.memory_coordinator import MemoryCoordinator
from holdfast.records import Partition
from holdfast.runtime import MACHINE
from holdfast.timing import Deadline
from tests.harness.rocketmq_field import PATIENCE_S, client_of
from tests.harness.witness import Clock, Seen, Witness, in_no_time
from tests.simulation.brokers.rocketmq import RocketBroker
from tests.simulation.brokers.rocketmq_member import RocketSource

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.testing.scheduler import Scheduler
    from tests.harness.servers.rocketmq import RocketMQServer

_LEASE_S = 10.0


class RocketStage(Protocol):
    """A topic, a group, and what is done to them. A queue is its number."""

    clock: Clock

    def member(self, name: str) -> Witness: ...

    def close(self, member: Witness) -> None: ...

    def produce(self, number: int, count: int) -> None: ...

    def make_again(self) -> None:
        """The topic is deleted, and made with as many queues."""
        ...

    def committed(self, number: int) -> int | None:
        """As the broker has it."""
        ...

    def commit(self, number: int, offset: int) -> bool:
        """Of nobody: a zombie's, that comes late. False = answered well, and ignored."""
        ...

    def reset(self, number: int, offset: int) -> None:
        """As an operator does."""
        ...


class Model:
    def __init__(self, scheduler: Scheduler, queues: int) -> None:
        self._scheduler, self._queues = scheduler, queues
        server = scheduler.process("rocketmq", preempted=False).runtime
        self._broker = RocketBroker(server, orders=queues)
        self._groups = MemoryCoordinator(runtime=server)
        self.clock = Clock(scheduler.process("script").runtime)

    def member(self, name: str) -> Witness:
        runtime = self._scheduler.process(name).runtime
        groups = self._groups.elsewhere(runtime)
        source = RocketSource(self._broker, coordinator=groups, runtime=runtime, name=name, lease_s=_LEASE_S)
        made = Witness(source, "orders", runtime)
        self.clock.members.append(made)
        return made

    def close(self, member: Witness) -> None:
        self.clock.members.remove(member)
        member.close()

    def produce(self, number: int, count: int) -> None:
        self._broker.produce("orders", number, *"x" * count)

    def make_again(self) -> None:
        self._broker.delete("orders")

    def committed(self, number: int) -> int | None:
        with self._broker.changed:
            return self._broker.offsets.get(("g", Partition("orders", number)))

    def commit(self, number: int, offset: int) -> bool:
        with self._broker.changed:
            return self._broker.commit("g", Partition("orders", number), offset)

    def reset(self, number: int, offset: int) -> None:
        self._broker.reset("g", Partition("orders", number), offset)


def on_model(script: Callable[[RocketStage], Seen], queues: int) -> Seen:
    """What the script sees there, in no time."""
    return in_no_time(lambda scheduler: Model(scheduler, queues), script)


class Server:
    def __init__(self, server: RocketMQServer, queues: int) -> None:
        self._namesrv, self._count = server.namesrv, queues
        name = secrets.token_hex(4)
        self._topic, self._group = f"twins-{name}", f"twins-{name}"
        self._groups = MemoryCoordinator()
        self.clock = Clock(MACHINE)
        self._stack = ExitStack()
        self._client = self._stack.enter_context(client_of(server.namesrv))
        self._admin, self._sender = Admin(self._client), Sender(self._client)
        self._admin.create_topic(self._topic, self._deadline(), queues=queues)
        self._admin.create_group(self._group, self._deadline())  # else with its first heartbeat

    def _deadline(self) -> Deadline:
        return Deadline(PATIENCE_S, MACHINE)

    def _queue(self, number: int) -> Partition:
        return Partition(self._topic, number, "broker-a")

    def member(self, name: str) -> Witness:
        source = RocketMQSource(
            self._namesrv,
            self._group,
            coordinator=self._groups,
            instance_name=name,
            lease_s=_LEASE_S,
            poll_name_server_interval_s=0.2,
        )
        made = Witness(source, self._topic, MACHINE, broker="broker-a")
        self.clock.members.append(made)
        return made

    def close(self, member: Witness) -> None:
        self.clock.members.remove(member)
        member.close()

    def end(self) -> None:
        for each in list(self.clock.members):
            each.on_revoked = lambda _: None
            self.close(each)
        self._stack.close()

    def produce(self, number: int, count: int) -> None:
        for _ in range(count):
            self._sender.send(self._queue(number), Message(self._topic, b"x"), self._deadline())

    def make_again(self) -> None:
        self._admin.delete_topic(self._topic, self._deadline())
        self._admin.create_topic(self._topic, self._deadline(), queues=self._count)

    def committed(self, number: int) -> int | None:
        return self._client.query_offset(self._queue(number), self._group, self._deadline())

    def commit(self, number: int, offset: int) -> bool:
        try:
            self._client.commit_offset(self._queue(number), self._group, offset, self._deadline())
        except CommitIgnored:
            return False
        return True

    def reset(self, number: int, offset: int) -> None:
        self._admin.reset(self._group, self._queue(number), offset, self._deadline())


def on_server(rocketmq: RocketMQServer, script: Callable[[RocketStage], Seen], queues: int) -> Seen:
    """What it sees on a real broker."""
    stage = Server(rocketmq, queues)
    try:
        return deepcopy(script(stage))  # members are told of their end as well
    finally:
        stage.end()
