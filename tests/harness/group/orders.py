"""What is produced, and the work that it asks of a handler. The record itself says how long it takes and who fails on
it, so that all members agree, whatever their configuration."""

from __future__ import annotations

import ctypes
import json
import threading
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

    from tests.harness.group.ledger import Ledger, Where

LANES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A record's value. Its Kafka key is `lane`: 200 customers over all partitions."""

    order_id: str
    lane: str
    work_ms: float = 3.0
    #: Members whose handlers fail on it; "*" = all.
    fail_at: tuple[str, ...] = ()
    #: Members whose handlers never come back from it; "*" = all.
    hang_at: tuple[str, ...] = ()
    #: Before its work, the handler keeps the interpreter lock for so long, as a C extension may: no other thread of
    #: Python runs meanwhile.
    lock_ms: int = 0
    #: The same with Python's own code: the interpreter takes the lock from it every few milliseconds.
    spin_ms: int = 0
    #: Only who runs it first keeps the lock.
    lock_once: bool = False

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def decode(value: bytes) -> Order:
        fields = json.loads(value)
        return Order(**{**fields, "fail_at": tuple(fields["fail_at"]), "hang_at": tuple(fields["hang_at"])})


class OrderFailed(Exception):
    """What a handler raises on an order that it was told to fail on."""


def draw(random: random.Random, number: int, work_ms: float) -> Order:
    """The order of that number: a customer by chance, work of 0.5 to 1.5 times `work_ms`."""
    lane = f"c{random.randrange(LANES)}"
    return Order(order_id=f"o{number}", lane=lane, work_ms=round(work_ms * random.uniform(0.5, 1.5), 2))


def work(ledger: Ledger, member: str, where: Where, value: bytes, epoch: int) -> None:
    """The handler of every member in the scenarios. Raises OrderFailed."""
    order = Order.decode(value)
    ledger.note("start", where, order.lane, order.order_id, epoch)
    if member in order.hang_at or "*" in order.hang_at:
        threading.Event().wait()
    if order.lock_ms and (not order.lock_once or ledger.first(order.order_id)):
        ctypes.PyDLL(None).usleep(order.lock_ms * 1_000)
    spins_until = time.monotonic() + order.spin_ms / 1000
    while time.monotonic() < spins_until:
        pass
    time.sleep(order.work_ms / 1000)
    if member in order.fail_at or "*" in order.fail_at:
        ledger.note("fail", where, order.lane, order.order_id, epoch)
        msg = f"{member} was told to fail on {order.order_id}"
        raise OrderFailed(msg)
    ledger.note("end", where, order.lane, order.order_id, epoch)
