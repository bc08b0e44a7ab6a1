"""Figures and health of a KafkaConsumer, for exporters and probes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.dedup.claims import ClaimStore
    from holdfast.plugin.observe.health import Health
    from holdfast.plugin.observe.snapshot import Snapshot
    from holdfast.plugin.own_loop.driven import Driven
    from holdfast.plugin.own_loop.loop_health import LoopHealth


class LoopSeen:
    """The part of a `KafkaConsumer` that `serve`, `write_health` and the exporters call."""

    _driven: Driven
    _health: LoopHealth
    #: The consumer's store; None = it has none.
    claims: ClaimStore | None

    def snapshot(self) -> Snapshot:
        """The consumer's figures at one moment, as `Holdfast.snapshot`. Any thread, before, while and after the loop
        runs. Returns within about a second, even while the loop is inside of `poll`."""
        return self._driven.snapshot()

    def health(self, *, stall_s: float = 300.0, silent_s: float = 60.0) -> Health:
        """Whether the loop lives and its consumer is ready, as `Holdfast.health`. Any thread but that of an event loop.

        A loop that has not polled for longer than `max.poll.interval.ms` (and `silent_s`) is not live: the broker has
        given its partitions to other members.
        """
        return self._health.judge(stall_s=stall_s, silent_s=silent_s)
