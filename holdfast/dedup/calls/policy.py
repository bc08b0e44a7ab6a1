"""What an idempotent function does about keys that are done, busy or taken over: frozen, checked at decoration."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Literal, get_args

from holdfast.errors import SettingError

if TYPE_CHECKING:
    from typing import TypeAlias

OnDone: TypeAlias = Literal["result", "marker"]
OnBusy: TypeAlias = Literal["wait", "raise", "skip"]
RaiseOrReturn: TypeAlias = Literal["raise", "return"]
StoreDown: TypeAlias = Literal["raise", "open"]


class Skipped(Enum):
    """What a call returns whose body was not run."""

    DONE = "done"  #: it has been run for this key; with on_done="marker"
    BUSY = "busy"  #: another call is running it for this key; with on_busy="skip"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPolicy:
    """The choices of one function; `idempotent` says what they mean.

    Raises:
        SettingError: a value that cannot work.
    """

    on_done: OnDone
    on_busy: OnBusy
    wait_s: float
    on_fenced: RaiseOrReturn
    on_unconfirmed: RaiseOrReturn
    store_down: StoreDown

    def __post_init__(self) -> None:
        _check("on_done", self.on_done, get_args(OnDone))
        _check("on_busy", self.on_busy, get_args(OnBusy))
        _check("on_fenced", self.on_fenced, get_args(RaiseOrReturn))
        _check("on_unconfirmed", self.on_unconfirmed, get_args(RaiseOrReturn))
        _check("store_down", self.store_down, get_args(StoreDown))
        if not 0 <= self.wait_s < math.inf:
            raise SettingError("wait_s", self.wait_s, "give a number of seconds, 0 or more")


def _check(field: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise SettingError(field, value, "give one of " + ", ".join(map(repr, allowed)))
