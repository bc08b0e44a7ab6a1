r"""A member whose handler fails until a record comes of its last retry topic: a process for `test_retry_topics.py`.

python -m tests.contracts.kafka.retrying_member <JSON: bootstrap, redis_url, topic, group, delays, ledger, protocol>

It writes a line for each call, `<value>\t<topic>\t<milliseconds since the record's timestamp>\t<how>`, in one write.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from holdfast import Holdfast, RedisClaims, Retry, Settings, record_key
from holdfast.adapters.kafka import KafkaSource

if TYPE_CHECKING:
    from holdfast import Record


def app_of(told: dict[str, Any]) -> Holdfast:
    """The app of one member."""
    conf = {"bootstrap.servers": told["bootstrap"], "group.id": told["group"], **told["protocol"]}
    claims = RedisClaims.from_url(told["redis_url"], namespace=told["group"], lease_s=3.0)
    app = Holdfast(
        KafkaSource(conf, assignment="keep"), claims=claims, settings=Settings(ramp=None, commit_interval_s=0.1)
    )
    ledger = os.open(told["ledger"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    last = told["delays"][-1]

    @app.handler(
        told["topic"],
        name="bill",
        key=record_key(),
        retry=Retry(attempts=1, topics=told["delays"]),
        dead_letter=f"{told['topic']}.dlq",
    )
    def bill(record: Record) -> None:
        value = record.text()
        fails = value == "never" or not record.topic.endswith(last)
        waited_ms = round(time.time() * 1000) - record.timestamp_ms
        line = f"{value}\t{record.topic}\t{waited_ms}\t{'failed' if fails else 'done'}\n"
        os.write(ledger, line.encode())
        if fails:
            raise ValueError("not now")

    return app


if __name__ == "__main__":
    app_of(json.loads(sys.argv[1])).run()
