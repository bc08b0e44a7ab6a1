"""What the scenarios share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pytest

from tests import tiers

if TYPE_CHECKING:
    from pathlib import Path

    from tests.harness.group.config import Kind
    from tests.harness.group.config import Protocol as GroupProtocol
    from tests.harness.group.story import Story
    from tests.harness.servers.kafka import KafkaServer
    from tests.harness.servers.redis import RedisServer

SEED = 1


class Tell(Protocol):
    """Play a story with holdfast's members and fail the test with every promise that it broke."""

    def __call__(self, story: Story, kind: Kind = "holdfast") -> None: ...


@pytest.fixture
def protocol(request: pytest.FixtureRequest) -> GroupProtocol:
    """One of the three rebalance protocols, which `--seed` moves on; a test that needs another one, or all, says so. A
    member behaves the same in all of them as far as worlds can tell, which draw theirs; `make chaos` plays all."""
    given: GroupProtocol | None = getattr(request, "param", None)
    return given or tiers.chosen(request.node.nodeid, request.config.getoption("--seed"))


@pytest.fixture
def tell(kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path, protocol: GroupProtocol) -> Tell:
    def play(story: Story, kind: Kind = "holdfast") -> None:
        outcome = story.tell(kafka, redis_server.url, tmp_path, protocol, SEED, kind)
        faults = story.faults(outcome)
        assert not faults, "\n".join([*faults, f"{protocol}; ledger, logs and events: {tmp_path}"])

    return play
