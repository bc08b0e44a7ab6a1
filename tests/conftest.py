"""Servers for all tests, started once a run. A server that cannot start fails what asks for it; nothing skips."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.servers.kafka import KafkaServer

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaServer]:
    """A real broker."""
    with KafkaServer() as server:
        yield server
