"""Reports a batch: log line, observer, `on_skip`; and finds holdfast's sentence in Spark's errors."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from holdfast.adapters.spark.values import BatchRefused, BatchReport
from holdfast.dedup.not_run import check_returns, name_of_call
from holdfast.errors import HoldfastError, SettingError

log = logging.getLogger("holdfast.spark")

OnSkip = Literal["warn", "raise"] | Callable[[BatchReport], None]
Observer = Callable[[BatchReport], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Telling:
    """Reports to the log, the observer and `on_skip`. On the driver."""

    on_skip: OnSkip = "warn"
    observer: Observer | None = None

    def __post_init__(self) -> None:
        if self.on_skip not in ("warn", "raise") and not callable(self.on_skip):
            raise SettingError("on_skip", self.on_skip, "give 'warn', 'raise' or a function of the report")
        for setting, function in (("on_skip", self.on_skip), ("observer", self.observer)):
            if callable(function):
                check_returns(setting, function, name_of_call(function))

    def skipped(self, report: BatchReport) -> None:
        """Report that an earlier attempt has finished the batch. Raises BatchRefused: on_skip="raise"."""
        if self.on_skip == "raise":
            raise BatchRefused(
                f"batch {report.batch} of sink {report.sink!r} was skipped: attempt {report.attempt} has finished it, "
                "and on_skip='raise'; 'warn' goes on after it"
            )
        log.warning(
            "batch %s of sink %s is skipped: query %s has finished it by attempt %s, and did not come to its commit",
            report.batch,
            report.sink,
            report.query,
            report.attempt,
        )
        if callable(self.on_skip):
            self.on_skip(report)
        self._call_observer(report)

    def written(self, report: BatchReport) -> None:
        """Report that this attempt has finished the batch."""
        log.info(
            "batch: sink=%s query=%s batch=%s attempt=%s rows=%s owned=%s skipped=%s copies=%s bad=%s taken_over=%s",
            report.sink,
            report.query,
            report.batch,
            report.attempt,
            report.rows,
            report.owned,
            report.skipped,
            report.copies,
            report.bad,
            report.taken_over,
        )
        if report.bad:
            log.warning(
                "%s of %s rows of batch %s of sink %s have no key, and went where bad_rows says",
                report.bad,
                report.rows,
                report.batch,
                report.sink,
            )
        self._call_observer(report)

    def failed(self, sink: str, error: HoldfastError) -> None:
        """Log the error that ends the query: Spark puts it between a trace and a plan; see `reason`."""
        log.error("sink %s: %s", sink, error)

    def _call_observer(self, report: BatchReport) -> None:
        if self.observer is None:
            return
        try:
            self.observer(report)
        except Exception:  # an observer is the application's code, and the batch is finished
            log.exception("the observer failed on %s", report)


_SAID = re.compile(r"^holdfast(?:\.\w+)+: (.+)$", re.MULTILINE)  # the last line of a Python trace


def reason(error: BaseException | None) -> str | None:
    """Find holdfast's sentence in the `StreamingQueryException` of a query that the sink has ended:
    `reason(query.exception())`. None: there is none.

    Spark has the sentence only as text, between a trace and a plan. It is for people and logs; do not parse it.
    """
    if isinstance(error, HoldfastError):
        return str(error)
    said = _SAID.findall(str(error)) if error is not None else []
    return said[-1] if said else None
