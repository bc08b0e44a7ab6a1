"""`python -m tests.harness.servers.run`: a Kafka broker and a Redis for working by hand, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import contextlib
import signal
import sys

from tests.harness.servers.kafka import KafkaServer
from tests.harness.servers.redis import RedisServer


def main() -> None:
    """Start both, print where they are, wait."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt), RedisServer() as redis, KafkaServer() as kafka:
        sys.stdout.write(f"kafka {kafka.bootstrap}\nredis {redis.url}\nCtrl-C ends both\n")
        sys.stdout.flush()
        signal.pause()


if __name__ == "__main__":
    main()
