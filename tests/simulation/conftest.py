"""What all tests that play worlds need."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from tests.simulation.search import quiet

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logger = logging.getLogger("holdfast")
    before = logger.level
    quiet()
    yield
    logger.setLevel(before)  # other tests of this process look at what is logged
