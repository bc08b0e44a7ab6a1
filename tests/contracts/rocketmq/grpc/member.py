"""A member: `python -m tests.contracts.rocketmq.grpc.member --json '<Member>'`. SIGTERM ends it. It says nothing."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast import Holdfast, RedisClaims, Settings
from holdfast.adapters.rocketmq import LeasedSource
from tests.harness.group.ledger import Ledger, Where

if TYPE_CHECKING:
    from holdfast.records import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberConfig:
    """What a member's process is told."""

    name: str
    endpoints: str
    group: str
    topic: str
    redis_url: str
    #: Claims' namespace; empty: without a store.
    namespace: str
    ledger: str
    invisible_s: int
    workers: int = 8
    in_flight: int = 128
    #: How long each handler takes.
    work_s: float = 0.0
    drain_timeout_s: float = 30.0

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def run(config: MemberConfig) -> None:
    """Consume until SIGTERM."""
    ledger = Ledger(Path(config.ledger), config.name)
    source = LeasedSource(config.endpoints, config.group, invisible_s=config.invisible_s, in_flight=config.in_flight)
    app = Holdfast(
        source,
        claims=RedisClaims.from_url(config.redis_url, namespace=config.namespace) if config.namespace else None,
        settings=Settings(
            workers=config.workers, drain_timeout_s=config.drain_timeout_s, ramp=None, startup_timeout_s=90
        ),
    )

    @app.handler(config.topic)
    def handle(record: Record) -> None:
        where, value = Where(record.topic, 0, record.offset), (record.value or b"").decode()
        ledger.note("start", where, value, value, 0)
        time.sleep(config.work_s)
        ledger.note("end", where, value, value, 0)

    app.run()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", required=True)
    run(MemberConfig(**json.loads(parser.parse_args().json)))
