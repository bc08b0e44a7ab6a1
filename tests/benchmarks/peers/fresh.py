"""Fresh records beside a backlog, in a peer.

python -m tests.benchmarks.peers.fresh sentry_arroyo | quix_streams PLAN
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

from tests.benchmarks.fair.fresh import Fresh, Plan, tell

if TYPE_CHECKING:
    from tests.benchmarks.fair.fresh import Waits


def main(peer: str, plan: Plan) -> None:
    """Measure, print what was seen, and end the process."""

    def over(waits: Waits) -> None:
        print(tell(waits), flush=True)
        os._exit(0)

    fresh = Fresh(plan, over)
    consumer: Any = importlib.import_module(f"tests.benchmarks.peers.{peer}")
    if peer == "sentry_arroyo":
        consumer.consume(
            plan.bootstrap,
            plan.topic,
            plan.group,
            lambda message: fresh.handle(message.payload.value),
            threads=plan.workers,
        )
    else:
        consumer.consume(plan.bootstrap, plan.topic, plan.group, fresh.handle)


if __name__ == "__main__":
    main(sys.argv[1], Plan.from_json(sys.argv[2]))
