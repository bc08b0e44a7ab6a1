"""examples/http: a service that fails is asked again; what it refuses is a dead letter."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from tests.examples.bench import ROOT
from tests.harness.kafka_brokers import all_of
from tests.harness.processes import end, spawn
from tests.harness.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.examples.bench import Shop


class Service:
    def __init__(self, url: str, log: Path) -> None:
        self.url, self._log = url, log

    def answers(self) -> dict[str, list[int]]:
        """Order -> the statuses that it got, in order."""
        got: dict[str, list[int]] = {}
        for line in self._log.read_text().splitlines()[1:]:
            order_id, status = line.split()
            got.setdefault(order_id, []).append(int(status))
        return got


@contextmanager
def service(log: Path, *arguments: object) -> Iterator[Service]:
    command = [sys.executable, "-W", "error", "-m", "examples.http.service", "--port", "0", *map(str, arguments)]
    process = spawn(command, log, cwd=ROOT)

    def told() -> str | None:
        if (said := log.read_text()).endswith("\n"):
            return said
        assert process.poll() is None, said
        return None

    try:
        yield Service(until(told, "the service does not start").split()[1], log)
    finally:
        end(process, patience_s=5.0)


def test_what_fails_is_tried_again_and_what_is_refused_is_a_dead_letter(shop: Shop, tmp_path: Path) -> None:
    ids = [f"order-{number}" for number in range(12)]
    shop.send(*ids)
    with service(tmp_path / "log", "--fail-first", 2, "--refuse", "order-7") as billing:
        billed = shop.run("examples.http.orders", "--service", billing.url, "--once", handler_fails=True)
        assert sorted(billed) == sorted(f"billed {one}" for one in ids if one != "order-7")
        assert billing.answers() == {one: [422] if one == "order-7" else [503, 503, 201] for one in ids}
        shop.send("order-12")
        assert shop.run("examples.http.orders", "--service", billing.url, "--once", handler_fails=True) == [
            "billed order-12"
        ]
        assert len(billing.answers()) == 13
    [letter] = all_of(shop.kafka.bootstrap, f"{shop.topic}.dlq", 1)
    assert b"order-7" in (letter.value() or b"")
    headers = dict(cast("list[tuple[str, bytes]]", letter.headers()))
    assert headers["holdfast-origin-topic"] == shop.topic.encode()
    assert b"422" in headers["holdfast-error-message"]
