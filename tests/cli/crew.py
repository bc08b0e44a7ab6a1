"""Plain members of a group on the real broker, polled by the test itself: it decides who takes part in a rebalance."""

from __future__ import annotations

import uuid
from contextlib import ExitStack, closing, suppress
from threading import Thread
from typing import TYPE_CHECKING, Any, Self

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from holdfast.adapters.kafka.tools.groups import KafkaGroupViews
from holdfast.errors import UnknownGroup
from holdfast.timing import Deadline
from tests.cli.bench import holdfast
from tests.harness.waiting import PATIENCE_S, until

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Sequence

    from holdfast.tools.advice.group_view import GroupView
    from tests.cli.conftest import Here
    from tests.harness.servers.kafka import KafkaServer

_LET_GO_S = 5.0


class Crew:
    """A group, its topics and its members; a context."""

    def __init__(self, kafka: KafkaServer, here: Here | None = None, **conf: Any) -> None:
        """Args: here: runs commands, instead of a subprocess; conf: of all members, with _ for dots."""
        name = uuid.uuid4().hex[:6]
        self._run = here or holdfast
        self.kafka, self.group, self.topic = kafka, f"billing-{name}", f"orders-{name}"
        self._conf = {key.replace("_", "."): value for key, value in conf.items()}
        self.members: dict[str, Consumer] = {}
        self._stack = ExitStack()
        self.look = self._stack.enter_context(
            closing(KafkaGroupViews({"bootstrap.servers": kafka.bootstrap}, self.group))
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._let_go()
        for name in list(self.members):
            self.drop(name)
        self._stack.close()

    def _let_go(self) -> None:
        """Who is given up in the middle of a rebalance may never end, and spins on one core until then: see `drop`."""
        for each in self.members.values():
            with suppress(KafkaException):  # thrown out already
                each.unsubscribe()
        ends = Deadline(_LET_GO_S)
        while not ends.passed and any(each.assignment() for each in self.members.values()):
            self._poll()

    def produce(self, count: int, partition: int = 0, topic: str = "") -> None:
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap, "log_level": 0})
        for number in range(count):
            producer.produce(topic or self.topic, str(number), partition=partition)
        assert producer.flush(PATIENCE_S) == 0

    def join(self, name: str, topics: Sequence[str] = (), **conf: Any) -> Consumer:
        """Begin to join; polls do the rest."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.kafka.bootstrap,
                "group.id": self.group,
                "client.id": name,
                "enable.auto.commit": False,
                "log_level": 0,
                **self._conf,
                **{key.replace("_", "."): value for key, value in conf.items()},
            }
        )
        consumer.subscribe(list(topics) or [self.topic])
        self.members[name] = consumer
        return consumer

    def drop(self, name: str) -> None:
        """Without a word to the group.

        Not closed: close() of 2.16 has hung for good now and then, and kept the interpreter's lock. So has, without the
        lock, giving up the last reference: that is another thread's, which is not waited for.
        """
        held = [self.members.pop(name)]
        Thread(target=held.clear, daemon=True).start()

    def leave(self, name: str) -> None:
        """Returns when the group goes on without it. Not by close(): see `drop`."""
        self.members[name].unsubscribe()
        until(
            lambda: name not in [each.client_id for each in self.look.view(Deadline(PATIENCE_S)).members],
            name,
            meanwhile=self._poll,  # the others too: who is on its way in leaves when it has come in
        )
        self.drop(name)

    def _poll(self, *names: str) -> None:
        """These members; none named: all."""
        for name in names or self.members:
            self.members[name].poll(0.05)

    def commit(self, offsets: dict[int, int], by: str) -> None:
        wanted = [TopicPartition(self.topic, number, offset) for number, offset in offsets.items()]
        self.members[by].commit(offsets=wanted, asynchronous=False)

    def until(self, over: Callable[[GroupView], bool], *polled: str) -> GroupView:
        """Poll these members (none named: all) until the group looks like that."""
        seen: list[GroupView] = []

        def look() -> GroupView | None:
            self._poll(*polled)
            seen[:] = [self.look.view(Deadline(PATIENCE_S))]
            return seen[0] if over(seen[0]) else None

        return until(look, seen, despite=(UnknownGroup,))  # nobody has been heard of yet

    def settled(self) -> GroupView:
        """Until all are in, have as many of their one topic, and nothing is on its way.

        A cooperative group is stable for a moment while the last one that came has nothing yet.
        """
        return self.until(
            lambda view: (
                view.state == "stable"
                and len(view.members) == len(self.members)
                and sum(len(each.partitions or ()) for each in view.members) == len(view.partitions)
                and max(len(each.partitions or ()) for each in view.members)
                <= min(len(each.partitions or ()) for each in view.members) + 1
                and all(each.target is None or each.target == each.partitions for each in view.members)
            )
        )

    def run(self, command: str, *more: object, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Run a command about the group."""
        return self._run(command, "--group", self.group, "--bootstrap", self.kafka.bootstrap, *more, code=code)

    def tell(self, command: str, *more: object, code: int = 0) -> str:
        """What it says."""
        return self.run(command, *more, code=code).stdout
