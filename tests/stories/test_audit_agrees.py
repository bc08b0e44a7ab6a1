"""The audit is a referee of its own: stories go through it, and it says the same as their ledgers.

They are played first, one after the other; then all that was told is judged at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.adapters.parquet.tables import ParquetTables
from holdfast.tools.audit_report.pages.build import audit_of
from tests.harness.group.audited import Audited
from tests.stories import stories_crash, stories_graceful

if TYPE_CHECKING:
    from pathlib import Path

    from tests.harness.group.agreement import Account
    from tests.harness.group.config import Kind, Protocol
    from tests.harness.group.story import Story
    from tests.harness.servers.kafka import KafkaServer
    from tests.harness.servers.redis import RedisServer
    from tests.harness.servers.rocketmq import RocketMQServer

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]  # all stories, where the last test is asked for alone

PLAYED: tuple[tuple[Story, Protocol, Kind], ...] = (
    (stories_crash.kill, "cooperative", "holdfast"),
    (stories_crash.kill_under_backlog, "consumer", "default"),
    (stories_crash.stall, "eager", "holdfast"),
    (stories_graceful.leave, "cooperative", "loop"),
    (stories_graceful.join, "rocketmq", "holdfast"),
)
_NAMES = [f"{story.name}-{protocol}-{kind}" for story, protocol, kind in PLAYED]


class Stage:
    """Plays each story once, when it is asked for first."""

    def __init__(self, kafka: KafkaServer, rocketmq: RocketMQServer, redis: RedisServer, folder: Path) -> None:
        self._kafka, self._rocketmq, self._redis = kafka, rocketmq, redis
        self.folder = folder
        self.audited = Audited(folder)
        self._played: dict[int, tuple[Account, list[str]]] = {}

    def played(self, number: int) -> tuple[Account, list[str]]:
        """What its ledger has, and what broke a promise."""
        if number not in self._played:
            story, protocol, kind = PLAYED[number]
            home = self.folder / _NAMES[number]
            home.mkdir()
            server = self._rocketmq if protocol == "rocketmq" else self._kafka
            outcome = self.audited.telling(story).tell(server, self._redis.url, home, protocol, 1, kind)
            self._played[number] = self.audited.add(outcome), story.faults(outcome)
        return self._played[number]


@pytest.fixture(scope="module")
def stage(
    kafka: KafkaServer, rocketmq: RocketMQServer, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Stage:
    return Stage(kafka, rocketmq, redis_server, tmp_path_factory.mktemp("played"))


@pytest.fixture(scope="module")
def judged(stage: Stage) -> dict[str, list[str]]:
    for number in range(len(PLAYED)):
        stage.played(number)
    return stage.audited.judge()


@pytest.mark.parametrize("number", range(len(PLAYED)), ids=_NAMES)
def test_who_tells_what_it_does_keeps_its_promises(stage: Stage, number: int) -> None:
    _, faults = stage.played(number)
    assert not faults or PLAYED[number][2] == "default"  # a loop without holdfast has made none


@pytest.mark.parametrize("number", range(len(PLAYED)), ids=_NAMES)
def test_the_audit_says_the_same_as_the_ledger(stage: Stage, judged: dict[str, list[str]], number: int) -> None:
    account, _ = stage.played(number)
    assert judged[account.group] == [], f"events and tables: {stage.folder}"


def test_the_report_has_them_all(stage: Stage, judged: dict[str, list[str]]) -> None:
    report = audit_of(ParquetTables(stage.audited.tables))
    groups = {each.group: each for each in report.groups}
    for number in range(len(PLAYED)):
        account, _ = stage.played(number)
        group = groups[account.group]
        assert group.detailed
        assert group.lost == 0
        assert group.unknown == 0 or account.any_killed
    page = (stage.folder / "audit.html").read_text(encoding="utf-8")
    assert all(each in page for each in groups)
