"""A member of such a group, a process: `python -m tests.harness.transactions.member <JSON of Told>`."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import signal
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from holdfast import BatchFailed, BatchOf, Holdfast, Outputs, Retry, Settings
from holdfast.adapters.kafka import KafkaSource, Transactions, transactional_producer

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast import Record

Kind: TypeAlias = Literal["plain", "coroutine", "batch"]
KINDS: tuple[Kind, ...] = ("plain", "coroutine", "batch")
#: Where in a transaction a member kills itself: before that call of its producer, or behind the last one.
POINTS = ("produce", "send_offsets_to_transaction", "commit_transaction", "after")


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a member is told."""

    bootstrap: str
    group: str
    source: str
    target: str
    letters: str
    kind: Kind
    protocol: dict[str, Any] = field(default_factory=dict)
    static_id: str | None = None
    #: The point at which it kills itself, and at which transaction.
    dies: tuple[str, int] | None = None
    #: Seconds that a handler may take.
    work_s: float = 0.01
    #: More settings of the source.
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def as_json(self) -> str:
        """For its command line."""
        return json.dumps(asdict(self))


def app_of(told: Told) -> Holdfast:
    """The app: a record becomes one of the target, with its key; "never" becomes a dead letter, "once" fails first."""
    conf = {"bootstrap.servers": told.bootstrap, "group.id": told.group, **told.protocol}
    source = KafkaSource(
        conf, assignment="keep", static_id=told.static_id, transactions=Transactions(interval_s=0.05), **told.more
    )
    app = Holdfast(source, claims=None, settings=Settings(workers=4, drain_timeout_s=2.0, ramp=None))
    batch = BatchOf(records=20, wait_s=0.02) if told.kind == "batch" else None
    retry = Retry(attempts=2, wait_initial_s=0.01)
    app.handler(told.source, name="make", batch=batch, retry=retry, dead_letter=told.letters)(handler_of(told))
    return app


def handler_of(told: Told) -> Callable[..., Any]:
    """A handler of that kind."""
    failed = set[tuple[int, int]]()

    def make(record: Record, out: Outputs) -> None:
        value = json.loads(record.value or b"")
        out.send(told.target, key=record.key, value=record.value)
        place = record.partition.number, record.offset
        if value["how"] == "never" or (value["how"] == "once" and place not in failed):
            failed.add(place)
            raise ValueError("not now")

    def plain(record: Record, *, out: Outputs) -> None:
        time.sleep(random.uniform(0.0, told.work_s))
        make(record, out)

    async def coroutine(record: Record, *, out: Outputs) -> None:
        await asyncio.sleep(random.uniform(0.0, told.work_s))
        make(record, out)

    def batch(records: list[Record], *, out: Outputs) -> None:
        time.sleep(random.uniform(0.0, told.work_s))
        failures: dict[int, Exception] = {}
        for number, record in enumerate(records):
            try:
                make(record, out)
            except ValueError as error:
                failures[number] = error
        if failures:
            raise BatchFailed(failures)

    kinds: dict[Kind, Callable[..., Any]] = {"plain": plain, "coroutine": coroutine, "batch": batch}
    return kinds[told.kind]


def die(point: str, at: int) -> None:
    """Have this process killed at that point of its `at`-th transaction that writes something."""
    made: Callable[..., Any] = vars(transactional_producer)["Producer"]
    seen = 0

    class Dying:
        def __init__(self, conf: dict[str, Any]) -> None:
            self._real = made(conf)
            self._wrote = False

        def __getattr__(self, name: str) -> Any:
            return getattr(self._real, name)

        def produce(self, *args: Any, **kwargs: Any) -> None:
            self._wrote = True
            self._real.produce(*args, **kwargs)
            self._real.poll(0)
            if point == "produce" and seen + 1 >= at:
                time.sleep(0.02)  # some of it is at the broker
                os.kill(os.getpid(), signal.SIGKILL)

        def send_offsets_to_transaction(self, *args: Any) -> None:
            self._dies("send_offsets_to_transaction")
            self._real.send_offsets_to_transaction(*args)

        def commit_transaction(self, *args: Any) -> None:
            nonlocal seen
            self._dies("commit_transaction")
            self._real.commit_transaction(*args)
            self._dies("after")
            seen, self._wrote = seen + self._wrote, False

        def _dies(self, here: str) -> None:
            if point == here and self._wrote and seen + 1 >= at:
                os.kill(os.getpid(), signal.SIGKILL)

    vars(transactional_producer)["Producer"] = Dying


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    logging.getLogger("holdfast.kafka").setLevel(logging.DEBUG)
    said = json.loads(sys.argv[1])
    told = Told(**said)
    if told.dies is not None:
        die(*told.dies)
    app_of(told).run()
