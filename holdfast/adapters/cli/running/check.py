"""One check of an app, and its exit code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

Result = Literal["ok", "skipped", "warning", "error"]
#: As of `holdfast doctor`.
_CODES: dict[Result, int] = {"ok": 0, "skipped": 0, "warning": 4, "error": 1}
_WORST: tuple[Result, ...] = ("error", "warning")


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    check: str
    result: Result
    detail: str


def code_of(results: Iterable[Result]) -> int:
    """The exit code: the worst decides."""
    seen = set(results)
    return next((_CODES[each] for each in _WORST if each in seen), 0)
