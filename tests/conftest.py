"""Servers for all tests, started once a run. A server that cannot start fails what asks for it; nothing skips."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.servers.kafka import KafkaServer
from tests.servers.redis import redis_server, redis_url

if TYPE_CHECKING:
    from collections.abc import Iterator


__all__ = ["kafka", "redis_server", "redis_url"]


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaServer]:
    """A real broker."""
    with KafkaServer() as server:
        yield server
