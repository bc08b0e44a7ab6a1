"""Settings: what a user may tune, frozen, validated at birth, units in the names."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Literal, get_args, get_origin, get_type_hints

from holdfast.errors import SettingError
from holdfast.plugin.budget import DEFAULT_DRAIN_S, fitting_drain_s
from holdfast.plugin.overrides import of_environment, of_file
from holdfast.plugin.ramp import Ramp
from holdfast.plugin.setting_names import check_number, known

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Ordering = Literal["key", "partition", "none"]

_RAMP = Ramp()


@known
@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How one app consumes.

    Raises:
        SettingError: a value that cannot work; names the field, the value and the remedy.
    """

    #: Plain handlers that run at the same time, each in a thread. 0: one after the other in the thread that polls, for
    #: quick functions: nothing is handed between threads, and membership depends on the handler, which may not take as
    #: long as `max.poll.interval.ms`; no timeout can end it.
    workers: int = 8
    #: `async def` handlers that run at the same time, as tasks of one event loop; batch handlers count by themselves.
    async_workers: int = 256
    #: What is handled strictly one after the other: records of one key, of one partition, or nothing.
    ordering: Ordering = "key"
    #: Records that one poll takes at most.
    poll_batch: int = 500
    #: Records that may be in the process at once (queued, running, not yet marked); then the intake pauses. Each
    #: partition may have 64 in any case, so that one whose records all wait does not stop the others. What a loop of
    #: one's own has got, and commits together, is not counted: it may gather more.
    max_in_flight: int = 4_000
    #: The same in bytes of keys, values and headers; one poll may overshoot it.
    max_in_flight_bytes: int = 64 * 1024 * 1024
    #: How many offsets a partition may be read beyond its lowest record that is not done. What is done there has to be
    #: remembered, here and in the store: some megabytes for ten million. Beyond it the partition delivers nothing until
    #: that record ends, and an event and `health` name it.
    max_ahead: int = 10_000_000
    #: Records that may have ended without the store's acknowledgement. With `workers` (and `async_workers`, where there
    #: are `async def` handlers) it bounds what a crash repeats.
    mark_batch: int = 500
    #: How long a hand-over waits for handlers that run. What takes longer keeps its claim: the next owner waits for it.
    #: It is a second where partitions that stay would stand still, since nothing is read inside a rebalance. None = 10,
    #: or less where a source has to be polled sooner than that (`fitted`).
    drain_timeout_s: float | None = None
    #: How long one call of a handler may run until `record.cancelled` says so and an `async def` is cancelled. None =
    #: however long. A handler of its own: `timeout_s`.
    handler_timeout_s: float | None = None
    #: How long a call that was cancelled may take to end by itself; then it is given up, and its result ignored.
    handler_grace_s: float = 5.0
    #: What becomes of a record whose call was given up: "dead_letter" (where the handler has none: "stop"), or "stop":
    #: everything else is drained and committed below it, and `run()` raises HandlerHung.
    on_handler_timeout: Literal["dead_letter", "stop"] = "dead_letter"
    #: How long the process stays, after it has left the group, for handlers that outlived the drain.
    linger_timeout_s: float = 30.0
    #: How often offsets are committed while nothing moves. At a hand-over they are committed in any case.
    commit_interval_s: float = 1.0
    #: An offset that does not move is committed again after that time, lest the broker forgets it. The group's is read
    #: first: a higher one of another program stands, and what lies below it counts as done; a lower one is replaced.
    commit_refresh_s: float = 300.0
    #: How long the broker and the store may take to answer at the start before `run()` gives up.
    startup_timeout_s: float = 30.0
    #: How often a line in the log says how the app is doing; 0 = never.
    status_interval_s: float = 60.0
    #: A record without a business key where the handler asks for one: "error" = as a handler that fails for good
    #: (dead letter, or stop); "position" = it is handled, protected by its position alone.
    missing_key: Literal["error", "position"] = "error"
    #: While the store gives no answer: "pause" keeps membership and handles nothing new; "open" goes on without
    #: protection, counted: records may then run twice.
    store_down: Literal["pause", "open"] = "pause"
    #: How the intake grows after an assignment; None = it takes what there is at once.
    ramp: Ramp | None = _RAMP

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for field in fields(self):
            value, hint = getattr(self, field.name), hints[field.name]
            if get_origin(hint) is Literal:
                if value not in get_args(hint):
                    raise SettingError(field.name, value, f"use one of {', '.join(map(repr, get_args(hint)))}")
                continue
            if field.name == "ramp":
                if not isinstance(value, Ramp | None):
                    raise SettingError("ramp", value, "use Ramp(...), or None to do without")
                continue
            if value is None and hint == float | None:
                continue
            least = 0.0 if field.name in _MAY_BE_ZERO else math.ulp(0.0)
            check_number(field.name, value, least, "use a value above 0", whole=hint is int, endless=True)
        self._hold_together()

    @property
    def drain_s(self) -> float:
        """`drain_timeout_s`, or its default."""
        return DEFAULT_DRAIN_S if self.drain_timeout_s is None else self.drain_timeout_s

    def fitted(self, max_poll_interval_s: float) -> Settings:
        """Make the drain fit between two polls, where nobody has set it by hand."""
        if self.drain_timeout_s is not None:
            return self
        return replace(self, drain_timeout_s=fitting_drain_s(max_poll_interval_s))

    @classmethod
    def from_environment(
        cls,
        defaults: Settings | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        file: str | Path | None = None,
    ) -> Settings:
        """Read settings from the environment: HOLDFAST_WORKERS=16 is `workers=16`, HOLDFAST_RAMP_HEADROOM=1.2 is
        `ramp=Ramp(headroom=1.2)`, and `none` is None. Nothing else of holdfast's library reads the environment.

        The environment wins over the file, and the file over `defaults`: code says what the program was written for, a
        file what this deployment needs, and a variable what an operator wants now.

        Args:
            defaults: what the program says; None: `Settings()`.
            environment: None: that of this process.
            file: TOML; of a pyproject.toml the table [tool.holdfast]. None: no file.

        Raises:
            SettingError: a name that is no setting's, with the nearest, or a value that cannot work, by its name there.
        """
        overrides = of_environment(cls, os.environ if environment is None else environment)
        if file is not None:
            overrides = of_file(cls, file).under(overrides)
        return overrides.over(defaults or cls())

    def _hold_together(self) -> None:
        if self.workers == 0 and self.handler_timeout_s is not None:
            raise SettingError(
                "handler_timeout_s",
                self.handler_timeout_s,
                "use workers=1 or more: the thread that polls cannot watch itself",
            )
        if self.max_in_flight < self.workers:
            raise SettingError("max_in_flight", self.max_in_flight, f"use at least workers={self.workers}")


#: A drain of 0 s hands everything that runs over at once; a linger of 0 s ends the process at once; without a grace,
#: what is cancelled is given up at once.
_MAY_BE_ZERO = frozenset({"workers", "drain_timeout_s", "linger_timeout_s", "handler_grace_s", "status_interval_s"})
