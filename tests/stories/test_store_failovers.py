"""A store that Sentinel fails over, under load, to a replica that lacks what was acknowledged last."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.harness.group.field import Field
from tests.harness.group.referee import IN_HAND_NS
from tests.harness.servers.sentinels import Sentinels
from tests.stories import stories_crash as stories
from tests.stories.conftest import SEED

if TYPE_CHECKING:
    from pathlib import Path

    from tests.harness.group.config import Protocol
    from tests.harness.servers.kafka import KafkaServer
    from tests.stories.conftest import Tell

#: Longer than a failover takes: what is lost is what was acknowledged, and no session.
_SESSION_MS = 30_000


@pytest.mark.full
def test_members_that_live_repeat_nothing(tell: Tell) -> None:
    tell(stories.store_fails_over)


@pytest.mark.full
def test_of_a_member_that_dies_with_the_master_at_most_the_lost_time_is_repeated(
    kafka: KafkaServer, tmp_path: Path, protocol: Protocol
) -> None:
    config = {"session_timeout_ms": _SESSION_MS}
    with (
        Sentinels() as store,
        Field(kafka, store.url(), tmp_path, protocol=protocol, seed=SEED, config=config) as field,
    ):
        a, b = field.start("a"), field.start("b")
        field.flow()
        field.until_spread(a, b)
        store.cut_replicas()
        cut_ns = time.monotonic_ns()
        field.until_handled(300)
        field.kill(b)
        store.fail_over()
        field.until_spread(a)
        outcome = field.finish()
    assert not outcome.lost
    assert not [fault for fault in outcome.faults(may_repeat=True) if "repeats" not in fault]
    first = {each.where: each for each in reversed(outcome.ran)}
    for again in outcome.repeats:
        before = first[again.where]
        assert before.pid == b.pid, f"{again.where} was handled by who lives"
        assert (before.end_ns or cut_ns) > cut_ns - IN_HAND_NS, f"{again.where} was acknowledged before the lost time"
