"""rocketmq-client-python's PushConsumer with a trivial handler: run by .venv-rocketmq's interpreter.

    classic.py NAMESRV GROUP TOPIC RECORDS

The last line of its output is records, seconds, and seconds of processor time, from the first message to the last.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from typing import Any

from rocketmq.client import ConsumeStatus, PushConsumer


def main(namesrv: str, group: str, topic: str, records: int) -> None:
    """Consume that many messages of a topic with the client's own settings, and end the process."""
    counter, over = itertools.count(1), threading.Event()
    times: list[tuple[float, float]] = []

    def handle(message: Any) -> Any:
        number = next(counter)
        if number == 1:
            times.append((time.perf_counter(), time.process_time()))
        _ = message.body
        if number == records:
            times.append((time.perf_counter(), time.process_time()))
            over.set()
        return ConsumeStatus.CONSUME_SUCCESS

    consumer = PushConsumer(group)
    # The two releases have two names for it.
    set_address = getattr(consumer, "set_namesrv_addr", None) or consumer.set_name_server_address
    set_address(namesrv)
    consumer.subscribe(topic, handle)
    consumer.start()
    over.wait()
    (began, cpu_began), (ended, cpu_ended) = times
    print(records, ended - began, cpu_ended - cpu_began, flush=True)
    os._exit(0)  # its shutdown() waits, and without it the process never ends


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
