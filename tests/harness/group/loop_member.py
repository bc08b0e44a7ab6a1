"""A member with a loop of its own: `python -m tests.harness.group.loop_member --json '<MemberConfig>'`.

`KafkaConsumer` in the loop of any tutorial: poll, handle, until SIGTERM.
"""

from __future__ import annotations

import logging
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.adapters.kafka import KafkaConsumer
from tests.harness.group.ledger import Ledger, Where
from tests.harness.group.member import EventFile, main
from tests.harness.group.orders import work

if TYPE_CHECKING:
    from tests.harness.group.config import MemberConfig

_log = logging.getLogger(__name__)


def run(config: MemberConfig) -> None:
    """Consume until SIGTERM."""
    ledger, stopping = Ledger(Path(config.ledger), config.name), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    consumer = KafkaConsumer(
        config.client(),
        claims=config.claims(),
        key=config.key,
        observers=[EventFile(Path(config.events), config.name)],
        audit=config.audited(),
    )
    config.wait_for_go()
    consumer.subscribe(list(config.topics))
    while not stopping.is_set():
        message = consumer.poll(0.1)
        if message is None:
            continue
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if message.error() is not None or topic is None or partition is None or offset is None:
            _log.warning("%s", message.error())
            continue
        work(ledger, config.name, Where(topic, partition, offset), message.value() or b"", 0)
    consumer.done()
    consumer.close()


if __name__ == "__main__":
    main(run)
