"""Servers that several of these tests share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contracts.rocketmq.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two brokers with TLS and access control."""
    with Cluster.started(tmp_path_factory.mktemp("certificates")) as made:
        yield made
