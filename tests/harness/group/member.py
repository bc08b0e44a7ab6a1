"""A member with holdfast: `python -m tests.harness.group.member --json '<MemberConfig>'`. SIGTERM ends it in order."""

from __future__ import annotations

import argparse
import dataclasses
import faulthandler
import json
import logging
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast import Holdfast, Ramp, RedisCoordinator, Retry, Settings
from holdfast.adapters.kafka import KafkaSource
from holdfast.adapters.rocketmq import RocketMQSource
from holdfast.adapters.watching import serve
from tests.harness.group.config import MemberConfig
from tests.harness.group.ledger import Ledger, Where
from tests.harness.group.numbers import number_of
from tests.harness.group.orders import work

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast import RedisClaims
    from holdfast.plugin.events import Event
    from holdfast.records import Record


class EventFile:
    """Writes every event of the engine as one JSON line."""

    def __init__(self, path: Path, member: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._member = member

    def on_event(self, event: Event) -> None:
        head = {
            "at_ns": time.monotonic_ns(),
            "member": self._member,
            "pid": os.getpid(),
            "event": type(event).__name__,
        }
        line = json.dumps(dataclasses.asdict(event) | head, default=repr)  # an event may have a member of its own
        os.write(self._file, f"{line}\n".encode())


def _kafka(config: MemberConfig) -> KafkaSource:
    return KafkaSource(config.client(), assignment="sticky" if config.protocol == "consumer" else "keep")


def _rocketmq(config: MemberConfig, store: RedisClaims | None) -> RocketMQSource:
    assert store is not None, "on RocketMQ a group is held together by its store"
    return RocketMQSource(
        namesrv=config.bootstrap,
        group=config.group,
        coordinator=RedisCoordinator(store),
        instance_name=config.name,
        lease_s=config.session_timeout_ms / 1000,
        max_poll_interval_s=config.max_poll_interval_ms / 1000,
        poll_name_server_interval_s=1.0,  # half a minute by default: new queues would be seen then
    )


def run(config: MemberConfig) -> None:
    """Consume until SIGTERM."""
    ledger = Ledger(Path(config.ledger), config.name)
    store = config.claims()
    app = Holdfast(
        _rocketmq(config, store) if config.protocol == "rocketmq" else _kafka(config),
        claims=store,
        settings=Settings(
            workers=config.workers,
            ordering=config.ordering,
            drain_timeout_s=config.drain_timeout_s,
            linger_timeout_s=60,
            handler_timeout_s=config.handler_timeout_s,
            handler_grace_s=config.handler_grace_s,
            ramp=Ramp() if config.ramp else None,
        ),
        observers=[EventFile(Path(config.events), config.name)],
        audit=config.audited(),
    )

    @app.handler(
        list(config.topics),
        key=config.key,
        retry=Retry(attempts=config.attempts, wait_initial_s=0.05, wait_max_s=0.5),
        dead_letter=config.dead_letter,
    )
    def handle(record: Record) -> None:
        where = Where(record.topic, number_of(record.partition), record.offset)
        work(ledger, config.name, where, record.value or b"", record.fence.epoch)

    if config.endpoint is not None:
        Path(config.endpoint).write_text(serve(app, port=0).url, encoding="utf-8")
    config.wait_for_go()
    app.run()


def main(run: Callable[[MemberConfig], None] = run) -> None:
    """Parse the command line, set logging up, run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", required=True, help="a MemberConfig")
    faulthandler.register(signal.SIGUSR1, all_threads=True)  # the field asks where a member hangs
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(threadName)s: %(message)s")
    run(MemberConfig.from_json(parser.parse_args().json))


if __name__ == "__main__":
    main()
