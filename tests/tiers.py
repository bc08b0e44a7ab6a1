"""What `make test` leaves to `make test-all`: marked `full`, by hand or by these rules. And who runs what, and when."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import pytest

from tests.scenarios.config import KAFKA

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Fixtures that start servers or Java programs beside those that the run shares.
_SERVERS_OF_ITS_OWN = frozenset(
    {"classic_only", "patient", "setters", "two_brokers", "cluster", "java", "java_group", "own_rocketmq", "postgres"}
)


_SPARK = "tests/spark/"


def scheduler(config: pytest.Config, log: Any) -> object:
    """pytest-xdist's, a file a process, but that all of Spark's files are one process's: one JVM."""
    from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]  # noqa: PLC0415 - not every environment has it

    class OneSpark(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return _SPARK if nodeid.startswith(_SPARK) else super()._split_scope(nodeid)

    return OneSpark(config, log)


def order(items: list[pytest.Item]) -> None:
    """Spark first: nobody is to wait for that one process at the end."""
    items.sort(key=lambda item: not item.nodeid.startswith(_SPARK))


def mark(items: Iterable[pytest.Item], seed: int) -> None:
    """Mark what starts servers of its own, and each story on all protocols of Kafka but one, which `seed` moves on."""
    for item in items:
        if not isinstance(item, pytest.Function):
            continue
        drawn = item.callspec.params if hasattr(item, "callspec") else {}
        protocol = drawn.get("protocol")
        if _SERVERS_OF_ITS_OWN.intersection(item.fixturenames) or (
            protocol in KAFKA and _has_all(item) and protocol != _chosen(item, seed)
        ):
            item.add_marker(pytest.mark.full)


def _has_all(item: pytest.Function) -> bool:
    """Whether the test is there for each protocol: one that was given one alone keeps it."""
    return not any("protocol" in str(mark.args[0]) for mark in item.iter_markers("parametrize"))


def _chosen(item: pytest.Function, seed: int) -> str:
    # Not hash(): that differs between the processes of one run.
    test = item.nodeid.partition("[")[0]
    return KAFKA[(zlib.crc32(test.encode()) + seed) % len(KAFKA)]
