"""KafkaConsumer: which key belongs to which topic."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

import pytest

from holdfast.adapters.kafka import KafkaConsumer

if TYPE_CHECKING:
    from collections.abc import Mapping

#: With a strategy of its own no broker is asked anything before the loop subscribes.
CONF = {
    "bootstrap.servers": "127.0.0.1:1",
    "group.id": "g",
    "partition.assignment.strategy": "cooperative-sticky",
    "log_level": 0,
}


@pytest.mark.parametrize("key", [{}, {"orders": "id"}, {"loop": "id"}, MappingProxyType({"orders": "id", "^a": "id"})])
def test_keys_by_topic_are_any_mapping_of_any_topics(key: Mapping[str, str]) -> None:
    KafkaConsumer(CONF, claims=None, key=key).close()
