"""What `make test` leaves to `make test-all`: marked `full`, by hand or by these rules. And who runs what, and when."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from tests.harness.group.config import KAFKA

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.harness.group.config import Protocol

#: Fixtures that start servers or Java programs beside those that the run shares.
_SERVERS_OF_ITS_OWN = frozenset(
    {"classic_only", "patient", "setters", "two_brokers", "cluster", "java", "java_group", "own_rocketmq", "postgres"}
)


_SPARK = "tests/spark/"
#: Of Spark's, in `make test-all`, what another JVM has: half of its minutes.
_SPARK_TOO = ("tests/spark/audit/", "tests/spark/test_zombies.py")
_STORIES = "tests/stories/"
#: Who begins when: the longest first, so that nobody is waited for alone at the end.
_ORDER = tuple(
    f"tests/{part}"
    for part in (
        "spark/",
        "stories/",
        "docs/test_under_load.py",
        "simulation/",
        "cli/",
        "contracts/",
        "properties/",
        "unit/engine/",
        "docs/",
    )
)
#: What computes nearly all of its time. Of the others most wait for servers, processes and leases.
_COMPUTES = (_SPARK, "tests/simulation/", "tests/properties/", "tests/docs/", "tests/golden/", "tests/unit/")
_WAITS = ("tests/unit/engine/", "tests/docs/test_under_load.py")


def scheduler(config: pytest.Config, log: Any) -> object:
    """pytest-xdist's, a file a process, but that all of Spark's files are one process's, for one JVM (two's in
    `make test-all`: one would be waited for at the end), and that each story is for whoever comes next. A third of the
    processes computes as long as there is what computes, the others wait: so the cores are in use from the first minute
    to the last, and no more than these want them at any time."""
    from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]  # noqa: PLC0415 - not every environment has it

    two_sparks = not config.option.markexpr

    class Shares(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            if nodeid.startswith(_STORIES) and "_brokers.py" not in nodeid:  # those share servers of their own
                return nodeid
            if two_sparks and nodeid.startswith(_SPARK_TOO):
                return _SPARK_TOO[0]
            return _SPARK if nodeid.startswith(_SPARK) else super()._split_scope(nodeid)

        def _assign_work_unit(self, node: Any) -> None:
            computes = int(node.gateway.id.removeprefix("gw")) % 3 == 0
            fits = (scope for scope in self.workqueue if _computes(scope) == computes)
            if (scope := next(fits, None)) is not None:
                self.workqueue.move_to_end(scope, last=False)
            super()._assign_work_unit(node)

        def remove_node(self, node: Any) -> str | None:
            """What a process had that died is no other's: a test that hung would hang there as well."""
            units = self.assigned_work.pop(node)
            return next((test for unit in units.values() for test, over in unit.items() if not over), None)

    return Shares(config, log)


def _computes(scope: str) -> bool:
    return scope.startswith(_COMPUTES) and not scope.startswith(_WAITS)


def order(items: list[pytest.Item]) -> None:
    """As in `_ORDER`; what is not in it comes last, as it was found."""
    items.sort(key=lambda item: next((n for n, part in enumerate(_ORDER) if item.nodeid.startswith(part)), len(_ORDER)))


def mark(items: Iterable[pytest.Item], seed: int) -> None:
    """Mark what starts servers of its own, and what is played on each protocol of Kafka, but on one, which `seed` moves
    on."""
    for item in items:
        if not isinstance(item, pytest.Function):
            continue
        drawn = item.callspec.params if hasattr(item, "callspec") else {}
        protocol = drawn.get("protocol")
        if _SERVERS_OF_ITS_OWN.intersection(item.fixturenames) or (
            protocol in KAFKA and _has_all(item) and protocol != chosen(item.nodeid, seed)
        ):
            item.add_marker(pytest.mark.full)


def _has_all(item: pytest.Function) -> bool:
    """Whether the test is there for each protocol: one that was given others keeps them."""
    given = (mark.args[1] for mark in item.iter_markers("parametrize") if "protocol" in str(mark.args[0]))
    return all(tuple(protocols) == KAFKA for protocols in given)


def chosen(nodeid: str, seed: int) -> Protocol:
    """Which protocol of Kafka a test is played on where it is played on one."""
    # Not hash(): that differs between the processes of one run.
    test = nodeid.partition("[")[0]
    return KAFKA[(zlib.crc32(test.encode()) + seed) % len(KAFKA)]


def first_and_full(values: Iterable[object], count: int) -> list[object]:
    """The first `count` values of a test's parameter for `make test`, the others for `make test-all`."""
    return [value if n < count else pytest.param(value, marks=pytest.mark.full) for n, value in enumerate(values)]


def examples(count: int) -> int:
    """How many examples of a property are drawn: so many where they are other ones each time (`make test-all`), a third
    where they are the same in each run."""
    profile = settings.default
    return max(1, count // 3) if profile is not None and profile.derandomize else count
