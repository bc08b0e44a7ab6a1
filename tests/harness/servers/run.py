"""`make servers`: Kafka on localhost:9092 with the topics of the quick start, and Redis on localhost:6379.

For working by hand, until Ctrl-C or SIGTERM. Then their data is gone.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
from typing import TYPE_CHECKING

from tests.harness.processes import is_free
from tests.harness.servers.kafka import KafkaServer
from tests.harness.servers.redis import RedisServer

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Those of `docker compose up`.
TOPICS = ("orders", "orders.dlq")
_PARTITIONS = 4


def main(args: Sequence[str] | None = None) -> int:
    """Start both, print where they are, wait."""
    parser = argparse.ArgumentParser(prog="python -m tests.harness.servers.run", description=__doc__)
    parser.add_argument("--kafka-port", type=int, default=9092, help="%(default)s")
    parser.add_argument("--redis-port", type=int, default=6379, help="%(default)s")
    options = parser.parse_args(args)
    for name, port in (("kafka", options.kafka_port), ("redis", options.redis_port)):
        if not is_free(port):
            sys.stderr.write(f"port {port} is taken: stop what runs there, or choose another by --{name}-port\n")
            return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with (
        contextlib.suppress(KeyboardInterrupt),
        RedisServer(port=options.redis_port),
        KafkaServer(port=options.kafka_port) as kafka,
    ):
        for topic in TOPICS:
            kafka.create_topic(topic, _PARTITIONS)
        sys.stdout.write(
            f"Kafka: localhost:{options.kafka_port}, with the topics {', '.join(TOPICS)}\n"
            f"Redis: redis://localhost:{options.redis_port}/0\nCtrl-C ends both, and their data is gone\n"
        )
        sys.stdout.flush()
        signal.pause()
    return 0


if __name__ == "__main__":
    sys.exit(main())
