"""Plain confluent-kafka, as most start: poll, handle, and leave committing to the library."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

from confluent_kafka import Consumer

from examples.lab.member import Till, assignment_from_command_line, order_in

if TYPE_CHECKING:
    from types import FrameType


def main() -> None:
    """Consume until SIGTERM."""
    assignment = assignment_from_command_line()
    till = Till(assignment, loop=True)
    running = True

    def stop(_signal: int, _frame: FrameType | None) -> None:
        nonlocal running
        running = False

    signal.signal(signal.SIGTERM, stop)

    consumer = Consumer(assignment.client_configuration())
    consumer.subscribe([assignment.topic], on_assign=till.came, on_revoke=till.went)
    try:
        while running:
            message = consumer.poll(0.1)
            if message is None:
                continue
            if message.error():
                print(message.error(), file=sys.stderr)
                continue
            till.charge(*order_in(message))
    finally:
        consumer.close()


if __name__ == "__main__":
    main()
