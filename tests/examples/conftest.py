"""A shop for each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.examples.bench import Shop
from tests.harness.servers.postgres import postgres

if TYPE_CHECKING:
    from tests.harness.servers.kafka import KafkaServer

__all__ = ["postgres"]


@pytest.fixture
def shop(kafka: KafkaServer, redis_url: str) -> Shop:
    """A topic of its own, and a Redis that knows nothing of it."""
    return Shop(kafka, redis_url)
