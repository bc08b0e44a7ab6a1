"""`python -m tests.servers.run`: a Kafka broker and a Redis for working by hand, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import contextlib
import signal
import sys
import tempfile
from pathlib import Path

from tests.servers.kafka import KafkaServer
from tests.servers.processes import end, free_ports, spawn


def main() -> None:
    """Start both, print where they are, wait."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    [port] = free_ports(1)
    with contextlib.suppress(KeyboardInterrupt), tempfile.TemporaryDirectory(prefix="holdfast-redis-") as home:
        redis = spawn(["redis-server", "--port", str(port), "--dir", home, "--save", ""], Path(home) / "redis.log")
        try:
            with KafkaServer() as kafka:
                sys.stdout.write(f"kafka {kafka.bootstrap}\nredis redis://127.0.0.1:{port}/0\nCtrl-C ends both\n")
                sys.stdout.flush()
                signal.pause()
        finally:
            end(redis, patience_s=5.0)


if __name__ == "__main__":
    main()
