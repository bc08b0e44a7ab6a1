"""The same as `before`, but for the handler: what it has done is known in Redis, under the keys that `after` looks for.

To run it: python -m examples.rocketmq_move.bridge
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

from rocketmq.client import ConsumeStatus, PushConsumer

from examples.rocketmq.shop import parser
from holdfast import RedisClaims, idempotent
from holdfast.adapters.rocketmq import identity_of

if TYPE_CHECKING:
    from rocketmq.client import RecvMessage


def bill(order: dict[str, str]) -> None:
    """What takes its time."""
    time.sleep(0.02)
    # A line, whole: threads of a pool call this, and `print` writes the end of a line by itself.
    sys.stdout.write(f"billed {order['order_id']}\n")
    sys.stdout.flush()


def identity(message: RecvMessage) -> str:
    """What `after` knows the message by."""
    return identity_of(message.id, message.body)


def main() -> None:
    """Consume until SIGTERM or Ctrl-C."""
    asked = parser(__doc__).parse_args()

    claims = RedisClaims.from_url(asked.redis)

    @idempotent(claims, key=identity, name=f"{asked.group}/{asked.topic}", on_done="marker")
    def handle(message: RecvMessage) -> None:
        bill(json.loads(message.body))

    def callback(message: RecvMessage) -> ConsumeStatus:
        try:
            handle(message)
        except Exception as error:  # noqa: BLE001 - what leaves the callback has no defined result
            print(f"trouble: {error!r}", flush=True)
            return ConsumeStatus.RECONSUME_LATER
        return ConsumeStatus.CONSUME_SUCCESS

    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    consumer = PushConsumer(asked.group)
    consumer.set_namesrv_addr(asked.namesrv)
    consumer.subscribe(asked.topic, callback)
    consumer.start()
    stopping.wait()
    # Waits for the batches that run, and writes the offsets to the brokers. Without it they are up to 5 s old.
    consumer.shutdown()


if __name__ == "__main__":
    main()
