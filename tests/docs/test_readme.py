"""The README's examples run as they stand, but for the addresses."""

from __future__ import annotations

import json
import re
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from tests.docs.test_pages import accept
from tests.harness.processes import spawn
from tests.harness.waiting import until

if TYPE_CHECKING:
    from tests.harness.servers.kafka import KafkaServer

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
_BLOCK = re.compile(r"(<!-- test: run -->\n)?```python\n(.*?)```", re.DOTALL)
BLOCKS = [(bool(mark), code) for mark, code in _BLOCK.findall(README)]


def test_the_readme_has_examples_of_both_kinds() -> None:
    assert [runs for runs, _ in BLOCKS].count(True) == 1
    assert len(BLOCKS) >= 3


@pytest.mark.parametrize("code", [code for runs, code in BLOCKS if not runs])
def test_an_example_is_accepted_as_it_stands(code: str, tmp_path: Path) -> None:
    accept(code, tmp_path)


def test_the_quick_start_handles_what_is_sent_and_leaves_on_sigterm(
    kafka: KafkaServer, redis_url: str, tmp_path: Path
) -> None:
    code = next(code for runs, code in BLOCKS if runs)
    kafka.create_topic("orders", 2)
    kafka.create_topic("orders.dlq", 1)
    script = tmp_path / "quick_start.py"
    script.write_text(
        code.replace("localhost:9092", kafka.bootstrap).replace("redis://localhost:6379/0", redis_url), encoding="utf-8"
    )
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    for number in (1, 2, 2, 3):  # one of them sent twice
        producer.produce("orders", key=f"customer-{number}", value=json.dumps({"order_id": number}))
    assert producer.flush(20) == 0
    log = tmp_path / "log"
    with spawn([sys.executable, "-W", "error", str(script)], log, cwd=ROOT) as process:
        until(lambda: len(_orders(log)) == 3, log.read_text)
        # The second copy of order 2 waits for the first: stopped now, it would be left to the next start.
        try:
            until(lambda: sum(kafka.committed("billing", "orders").values()) >= 4)
        finally:
            process.send_signal(signal.SIGTERM)
    assert process.returncode == 0, log.read_text(encoding="utf-8")
    assert "Traceback" not in log.read_text(encoding="utf-8")
    assert sorted(_orders(log)) == ["1", "2", "3"]
    assert sum(kafka.committed("billing", "orders").values()) == 4


def _orders(log: Path) -> list[str]:
    return re.findall(r'"order_id": (\d)', log.read_text(encoding="utf-8"))
