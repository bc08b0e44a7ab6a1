"""An app for `holdfast run` that needs no server: broker and store are in its own process. What it does stands in the
file SHOP_LEDGER, a line of JSON each."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from holdfast import Holdfast, MemoryClaims, Record, Settings, Unretriable
from holdfast.testing.brokers.kafka import MemoryBroker
from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource
from tests.harness.waiting import until

LEDGER = "SHOP_LEDGER"
#: The handler of the order waits until there is such a file.
GATE = "SHOP_GATE"
#: Processes of these ordinals end as soon as they begin.
DIES = "SHOP_DIES"
#: The handler fails for good.
FAILS = "SHOP_FAILS"


def note(what: str) -> None:
    """Append a line, in one write."""
    process = os.environ.get("HOLDFAST_PROCESS", "")
    line = json.dumps({"what": what, "process": process, "pid": os.getpid(), "at_ns": time.monotonic_ns()})
    with Path(os.environ[LEDGER]).open("ab", buffering=0) as file:
        file.write(line.encode() + b"\n")


def ledger(path: Path) -> list[dict[str, str | int]]:
    """The lines that are whole."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.split("\n")[:-1]]


def make_app() -> Holdfast:
    """One order, which is there from the start."""
    broker = MemoryBroker(orders=1)
    broker.produce("orders", 0, "one")
    app = Holdfast(
        MemoryPartitionedSource(broker, "shop"),
        claims=MemoryClaims(),
        settings=Settings(workers=2, drain_timeout_s=60.0, linger_timeout_s=0.0),
    )

    @app.on_startup
    def begin() -> None:
        if os.environ.get("HOLDFAST_PROCESS", "0") in os.environ.get(DIES, "").split():
            note("dies")
            os._exit(7)

    @app.handler("orders", name="bill")
    def bill(record: Record) -> None:
        note("begins")
        if gate := os.environ.get(GATE):
            until(Path(gate).exists)
        if FAILS in os.environ:
            raise Unretriable("no money")
        note("billed")

    @app.on_shutdown
    def end() -> None:
        note("left")

    return app


app = make_app()
