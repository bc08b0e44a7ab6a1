"""Members with effects in PostgreSQL that are killed, frozen and cut off: SQL finds each effect once, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.harness.effects.field import play
from tests.harness.effects.member import KINDS, Kind
from tests.harness.servers.postgres import PostgresServer, postgres
from tests.harness.transactions.field import PROTOCOLS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.harness.servers.kafka import KafkaServer

__all__ = ["postgres"]


@pytest.mark.parametrize("kind", KINDS)
def test_each_effect_is_there_once(
    kind: Kind, kafka: KafkaServer, postgres: PostgresServer, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    number = request.config.getoption("--seed") * len(KINDS) + KINDS.index(kind)
    protocol = list(PROTOCOLS)[number % len(PROTOCOLS)]
    played = play(kafka, postgres.database(), tmp_path, number, protocol=protocol, kind=kind, kills=2)
    assert played.found.is_right, played
