"""Settings: all that a user may tune. Frozen, validated at construction, units in the names."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Literal, get_args, get_origin, get_type_hints

from holdfast.errors import SettingError
from holdfast.plugin.budget import DEFAULT_DRAIN_S, fitting_drain_s
from holdfast.plugin.setting_names import check_number, known

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Ordering = Literal["key", "partition", "none"]


@known
@dataclass(frozen=True, slots=True, kw_only=True)
class Ramp:
    """How the intake grows after this process has got partitions: step by step, instead of the whole backlog at once.

    *Intake* is the rate of records admitted to handlers, in records a second, measured over a second. The *steady*
    intake is the rate at which producers send to the partitions that this process owns now.

    For `over_s`, or until the lag is worked off, the limit is `headroom` times the steady intake. Then the limit
    doubles four times a second as long as handlers keep up, and after another `over_s` it ends. If next to nothing is
    produced, there is no steady intake: the limit begins at `floor_per_s` and doubles at once.

    The ramp is for takeovers. It does not limit partitions in which the group has no committed offset, nor the few
    seconds of records that an orderly hand-over leaves behind. It does not limit a backlog of two minutes or more while
    this process has no steady intake yet: no consumer can have had records of that age in hand, so the whole group
    starts.

    Raises:
        SettingError: a value that cannot work.
    """

    #: Records a second that pass in any case, also from newly assigned partitions.
    floor_per_s: float = 50.0
    #: The limit as a multiple of the steady intake: the part above 1 works the backlog off.
    headroom: float = 1.4
    #: Seconds that the limit lasts, and then at most the seconds that it doubles.
    over_s: float = 30.0

    def __post_init__(self) -> None:
        for name, least in (("floor_per_s", 0.0), ("headroom", 1.0), ("over_s", 0.0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not least < value < math.inf:
                raise SettingError(f"ramp.{name}", value, f"use a number above {least:g}; ramp=None does without")


_RAMP = Ramp()


@known
@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one app. A field's unit is in its name: `_s` is seconds.

    Raises:
        SettingError: a value that cannot work; names the field, the value and the remedy.
    """

    #: Plain handlers that run at the same time, each in a thread. 0: one after the other in the thread that polls, for
    #: quick functions. That saves the hand-over between threads, but a handler that takes as long as
    #: `max.poll.interval.ms` costs the membership, and no timeout can end it.
    workers: int = 8
    #: `async def` handlers that run at the same time, as tasks of one event loop; batch handlers count apart.
    async_workers: int = 256
    #: Which records are handled strictly one after the other: those of one key, of one partition, or none.
    ordering: Ordering = "key"
    #: Records of one poll, at most.
    poll_batch: int = 500
    #: Records that may be admitted at once (queued, running, not yet marked). Partitions share it evenly,
    #: and each may have 64 in any case. What was polled beyond that waits for its partition's turn. Records that a loop
    #: of one's own has received and commits together do not count: it may gather more. Nor do those that stand behind
    #: 16 others of their own key, up to as many again.
    max_in_flight: int = 4_000
    #: The same limit in bytes of keys, values and headers; one poll may exceed it. Half as much may wait besides (a
    #: waiting record counts 512 bytes more): a partition of which more than its part waits is paused.
    max_in_flight_bytes: int = 64 * 1024 * 1024
    #: How many offsets a partition may be read beyond its lowest record that is not done. This process and the store
    #: must remember which records there are done: some megabytes for ten million. Beyond it the partition delivers
    #: nothing until that record ends, and an event and `health` name the record.
    max_ahead: int = 10_000_000
    #: Records that may have ended without the store's acknowledgement. Together with `workers` (and `async_workers` for
    #: `async def` handlers) it bounds how many records a crash repeats.
    mark_batch: int = 500
    #: How long a hand-over waits for running handlers. A handler that takes longer keeps its claim, and the next owner
    #: waits for it. The wait is one second if partitions that stay would run dry, since nothing is read inside a
    #: rebalance. None: 10, or less if the source must be polled sooner than that (`fitted`).
    drain_timeout_s: float | None = None
    #: How long one call of a handler may run. Then `record.cancelled` becomes true, and an `async def` is cancelled.
    #: None: no limit. A handler's own `timeout_s` takes its place.
    handler_timeout_s: float | None = None
    #: How long a cancelled call may take to end by itself. Then it is given up, and its result ignored.
    handler_grace_s: float = 5.0
    #: For a record whose call was given up. "dead_letter": it becomes a dead letter; a handler without a dead letter
    #: topic stops the app. "stop": the app drains all other records, commits below it, and `run()` raises HandlerHung.
    on_handler_timeout: Literal["dead_letter", "stop"] = "dead_letter"
    #: How long the process stays, after it has left the group, for handlers that outlived the drain.
    linger_timeout_s: float = 30.0
    #: How often offsets are committed between rebalances. A hand-over commits them in any case.
    commit_interval_s: float = 1.0
    #: An offset that does not move is committed again after that time, so that the broker does not expire it. The
    #: group's committed offset is read first: if another program has committed a higher one, it stands, and records
    #: below it count as done; a lower one is replaced.
    commit_refresh_s: float = 300.0
    #: How long the broker and the store may take to answer at the start before `run()` gives up.
    startup_timeout_s: float = 30.0
    #: How often a log line states how the app is doing; 0: never.
    status_interval_s: float = 60.0
    #: For a record without a business key whose handler asks for one. "error": it fails for good (dead letter, or the
    #: app stops). "position": it is handled, protected by its position alone.
    missing_key: Literal["error", "position"] = "error"
    #: While the store gives no answer. "pause": the member stays in the group and handles nothing new. "open": it goes
    #: on without protection, and records may run twice; they are counted.
    store_down: Literal["pause", "open"] = "pause"
    #: How the intake grows after an assignment; None: without a limit.
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
        """`drain_timeout_s`, or its default, in seconds."""
        return DEFAULT_DRAIN_S if self.drain_timeout_s is None else self.drain_timeout_s

    def fitted(self, max_poll_interval_s: float) -> Settings:
        """Return settings whose drain fits between two polls. An explicit `drain_timeout_s` stays."""
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
        `ramp=Ramp(headroom=1.2)`, and `none` is None. Nothing else in holdfast's library reads the environment.

        The environment wins over the file, and the file over `defaults`: the code has the program's values, the file
        those of this deployment, and a variable the one that an operator wants now.

        Args:
            defaults: the program's settings; None: `Settings()`.
            environment: None: the environment of this process.
            file: a TOML file; in a pyproject.toml, the table [tool.holdfast]. None: no file.

        Raises:
            SettingError: an unknown name (the message has the nearest setting), or a value that cannot work; it names
                the variable, or the file and the key.
        """
        from holdfast.plugin.overrides import of_environment, of_file  # noqa: PLC0415 - most programs set all in code

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


#: A drain of 0 s hands over without waiting for running handlers; a linger of 0 s ends the process at once; with a
#: grace of 0 s a cancelled call is given up at once.
_MAY_BE_ZERO = frozenset({"workers", "drain_timeout_s", "linger_timeout_s", "handler_grace_s", "status_interval_s"})
