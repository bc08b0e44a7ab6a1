"""kafka-python's sticky assignor, in a process of its own: a group as JSON on standard input, milliseconds come out."""

from __future__ import annotations

import importlib
import json
import sys
import time
from typing import Any


class _Cluster:
    def __init__(self, sizes: dict[str, int]) -> None:
        self._sizes = sizes

    def topics(self) -> set[str]:
        return set(self._sizes)

    def partitions_for_topic(self, topic: str) -> set[int]:
        return set(range(self._sizes[topic]))


def main() -> None:
    group = json.load(sys.stdin)
    # Not an import: the package is where PYTHONPATH says, and only here.
    found: Any = importlib.import_module("kafka.coordinator.assignors.sticky.sticky_assignor")
    members = {
        member: found.StickyAssignorMemberMetadataV1(subscription=topics, partitions=[], generation=-1)
        for member, topics in group["members"].items()
    }
    began = time.process_time()
    executor = found.StickyAssignmentExecutor(_Cluster(group["topics"]), members)
    executor.perform_initial_assignment()
    executor.balance()
    took_ms = (time.process_time() - began) * 1000
    given = sum(len(numbers) for member in members for _, numbers in executor.get_final_assignment(member))
    if given != sum(group["topics"].values()):
        sys.exit(f"it gave {given} partitions")
    print(took_ms)


if __name__ == "__main__":
    main()
