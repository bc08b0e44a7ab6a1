"""One member of a group as a process: `PushSource` or `RocketMQSource` with holdfast, or the client's own PushConsumer.
Ended by SIGTERM.

What it has handled goes to a file that is not holdfast's: one line a record, written in one go.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

from holdfast import Holdfast, RedisClaims, RedisCoordinator, Settings
from holdfast.adapters.rocketmq import PushSource, RocketMQSource
from holdfast.adapters.rocketmq.packages import load_classic


def main(kind: str, namesrv: str, topic: str, group: str, redis_url: str, ledger: str, handler_s: float) -> None:
    book = os.open(ledger, os.O_WRONLY | os.O_APPEND)

    def handle(value: bytes) -> None:
        time.sleep(handler_s)
        os.write(book, b"%d %.3f %s\n" % (os.getpid(), time.time(), value))

    def handle_or_fail(value: bytes) -> None:
        if value.startswith(b"late") and kind == "pull-failing":
            raise RuntimeError(value)
        handle(value)

    if kind in {"holdfast", "pull", "pull-failing"}:
        claims = RedisClaims.from_url(redis_url, namespace=group)
        source = (
            PushSource(namesrv=namesrv, group=group)
            if kind == "holdfast"
            else RocketMQSource(namesrv, group, coordinator=RedisCoordinator(claims), retry="broker")
        )
        settings = Settings(workers=8, ramp=None, startup_timeout_s=60.0)
        app = Holdfast(source, claims=claims, settings=settings)
        app.handler(topic, name="handle")(lambda record: handle_or_fail(record.value or b""))
        app.run()
        return
    package, stop = load_classic(), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    consumer = package.PushConsumer(group)
    consumer.set_namesrv_addr(namesrv)
    consumer.set_thread_count(8)

    def call_back(message: object) -> object:
        handle(message.body)  # type: ignore[attr-defined]
        return package.ConsumeStatus.CONSUME_SUCCESS

    consumer.subscribe(topic, call_back)
    consumer.start()
    stop.wait()
    if kind == "plain":
        consumer.shutdown()  # without it ("careless") the process does not end


if __name__ == "__main__":
    kind, namesrv, topic, group, redis_url, ledger, handler_s = sys.argv[1:]
    assert Path(ledger).exists()
    main(kind, namesrv, topic, group, redis_url, ledger, float(handler_s))
