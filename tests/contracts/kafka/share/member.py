"""A member: `python -m tests.contracts.kafka.share.member --json '<MemberConfig>'`. SIGTERM ends it."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast import Holdfast, RedisClaims, Settings
from holdfast.adapters.kafka import ShareSource
from tests.harness.group.ledger import Ledger, Where

if TYPE_CHECKING:
    from holdfast.records import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberConfig:
    """What a member's process is told."""

    name: str
    bootstrap: str
    group: str
    topic: str
    letters: str
    redis_url: str
    ledger: str
    #: How long each handler takes.
    work_s: float
    workers: int = 2

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def run(config: MemberConfig) -> None:
    """Consume until SIGTERM."""
    ledger = Ledger(Path(config.ledger), config.name)
    app = Holdfast(
        ShareSource({"bootstrap.servers": config.bootstrap, "group.id": config.group}),
        claims=RedisClaims.from_url(config.redis_url, namespace=config.group, lease_s=2.0),
        settings=Settings(
            workers=config.workers,
            ramp=None,
            handler_timeout_s=3.0,
            handler_grace_s=0.5,
            startup_timeout_s=90,
            drain_timeout_s=20.0,
        ),
    )

    @app.handler(config.topic, dead_letter=config.letters)
    def handle(record: Record) -> None:
        where, value = Where(record.topic, record.partition.number, record.offset), (record.value or b"").decode()
        ledger.note("start", where, value, value, 0)
        time.sleep(config.work_s)
        ledger.note("end", where, value, value, 0)

    app.run()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", required=True)
    run(MemberConfig(**json.loads(parser.parse_args().json)))
