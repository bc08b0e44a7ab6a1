"""The workload of a group as a user describes it: how long work takes, and how members restart."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal, get_args

from holdfast.errors import SettingError
from holdfast.plugin.budget import PollBudget

Restarts = Literal["rolling", "crash"]

#: A name as brokers take it, or one that is filled in when a member starts: ${POD_NAME}.
_STATIC_ID = re.compile(r"[a-zA-Z0-9._-]*(\$\{\w+\})?[a-zA-Z0-9._-]*")

#: A session has to outlast a restart on a bad day too.
_SLACK = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One group's work, in a member's terms.

    Raises:
        SettingError: a value that cannot be.
    """

    #: The longest that one record takes.
    handler_s: float
    #: Records that one member handles at the same time.
    workers: int = 1
    #: Records that it takes at a time; None = as its client does by itself (Kafka 500, RocketMQ 1).
    batch: int | None = None
    #: How long a hand-over or a shutdown waits for what runs.
    drain_s: float = 10.0
    #: The client is polled while handlers run, as holdfast does.
    polls_meanwhile: bool = False
    #: How long the group may wait for a member that does not come back from its work: the longest poll interval.
    patience_s: float = 300.0
    #: How members end as a rule: stopped one after the other, or killed.
    restarts: Restarts = "rolling"
    #: From a member's end until it is back, at the longest.
    restart_s: float = 30.0
    #: Each member's own name, the same after a restart, such as "${POD_NAME}" of a StatefulSet. None: there is none.
    static_id: str | None = None

    def __post_init__(self) -> None:
        for name in ("patience_s", "restart_s"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
                raise SettingError(name, value, "use a number of seconds above 0")
        if self.restarts not in get_args(Restarts):
            raise SettingError("restarts", self.restarts, "use 'rolling' or 'crash'")
        if self.static_id is not None and not (self.static_id and _STATIC_ID.fullmatch(self.static_id)):
            raise SettingError(
                "static_id",
                self.static_id,
                "use letters, digits, '.', '_' and '-', or a variable that the deployment fills in, such as "
                "${POD_NAME}",
            )
        self.turn(1)

    def turn(self, default_batch: int) -> PollBudget:
        """The work between two polls of a client that returns this many records in one poll."""
        return PollBudget(
            handler_s=self.handler_s,
            workers=self.workers,
            batch=default_batch if self.batch is None else self.batch,
            drain_s=self.drain_s,
            polls_meanwhile=self.polls_meanwhile,
        )

    @property
    def static_session_ms(self) -> int:
        """A session that outlasts a restart by half of it, in whole seconds."""
        return math.ceil(self.restart_s * _SLACK) * 1000
