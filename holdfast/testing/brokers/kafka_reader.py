"""Where a member of a Kafka group stands in its partitions."""

from __future__ import annotations


class Reader:
    """Where a member stands in a partition."""

    __slots__ = ("paused", "position", "told_end", "too_far")

    def __init__(self, position: int, *, paused: bool) -> None:
        self.position = position
        self.paused = paused
        self.told_end = -1
        #: The client takes the next record for one that it has given.
        self.too_far = False
