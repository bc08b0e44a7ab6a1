"""No partition waits for another's backlog: fresh records beside one, and what else a backlog may keep waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.benchmarks.fair import beside, fetched, joins, shares, topics
from tests.benchmarks.registry import benchmark

if TYPE_CHECKING:
    from tests.benchmarks.lab import Lab
    from tests.benchmarks.registry import Row


@benchmark("fair", by_name_alone=True)
def fair(lab: Lab) -> list[Row]:
    """Records of 100 bytes. A record whose handler has not started at the end has waited until then at least."""
    return [row for part in (beside, shares, topics, fetched, joins) for row in part.rows(lab)]
