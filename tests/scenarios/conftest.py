"""What the scenarios share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pytest

from tests.scenarios.config import PROTOCOLS
from tests.scenarios.config import Protocol as GroupProtocol
from tests.scenarios.store import OwnRedis
from tests.scenarios.story import Story

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.servers.kafka import KafkaServer

SEED = 1


class Tell(Protocol):
    """Play a story with holdfast's members and fail the test with every promise that it broke."""

    def __call__(self, story: Story) -> None: ...


@pytest.fixture(scope="session")
def store_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One Redis for all scenarios that do not stop theirs; each has its own namespace."""
    with OwnRedis(tmp_path_factory.mktemp("redis")) as store:
        yield store.url


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> GroupProtocol:
    """Each of the three rebalance protocols."""
    chosen: GroupProtocol = request.param
    return chosen


@pytest.fixture
def tell(kafka: KafkaServer, store_url: str, tmp_path: Path, protocol: GroupProtocol) -> Tell:
    def play(story: Story) -> None:
        outcome = story.tell(kafka, store_url, tmp_path, protocol, SEED)
        faults = story.faults(outcome)
        assert not faults, "\n".join([*faults, f"ledger, logs and events: {tmp_path}"])

    return play
