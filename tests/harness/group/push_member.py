"""A member without holdfast, for comparison: `python -m tests.harness.group.push_member --json '<MemberConfig>'`.

rocketmq-client-python's PushConsumer as its documentation has it: a callback, SUCCESS where the work is done, and
`shutdown` at SIGTERM. Runs in the environment of the extra `rocketmq`.
"""

from __future__ import annotations

import argparse
import faulthandler
import logging
import os
import signal
import threading
from pathlib import Path
from typing import Any

from rocketmq.client import ConsumeStatus, PushConsumer

from holdfast import LoopAudit
from holdfast.plugin.audit.schema import Outcome
from holdfast.timing import wall_ms
from tests.harness.group.config import MemberConfig
from tests.harness.group.ledger import Ledger, Where
from tests.harness.group.orders import Order, OrderFailed, work


def run(config: MemberConfig) -> None:
    """Consume until SIGTERM."""
    ledger, stopping = Ledger(Path(config.ledger), config.name), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    audit = config.audited()
    told = LoopAudit(audit, config.group, source=config.kind) if audit is not None else None

    def handle(message: Any) -> ConsumeStatus:
        # One broker: the client does not tell which one a message is from.
        where = Where(message.topic, message.queue_id, message.queue_offset)
        outcome, began_ms = Outcome.HANDLED, wall_ms()
        try:
            work(ledger, config.name, where, message.body, 0)
        except OrderFailed:
            outcome = Outcome.SENT_BACK
        if told is not None:
            key = f"s:{Order.decode(message.body).order_id}"
            told.handled(*where, key=key, began_ms=began_ms, outcome=outcome)
        return ConsumeStatus.CONSUME_SUCCESS if outcome is Outcome.HANDLED else ConsumeStatus.RECONSUME_LATER

    consumer = PushConsumer(config.group)
    consumer.set_namesrv_addr(config.bootstrap)
    consumer.set_instance_name(f"{config.name}-{os.getpid()}")
    consumer.set_thread_count(config.workers)
    for topic in config.topics:
        consumer.subscribe(topic, handle)
    consumer.start()
    stopping.wait()
    consumer.shutdown()
    if told is not None:
        told.stopped()


def main() -> None:
    """Parse the command line and run until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", required=True, help="a MemberConfig")
    config = MemberConfig.from_json(parser.parse_args().json)
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    run(config)


if __name__ == "__main__":
    main()
