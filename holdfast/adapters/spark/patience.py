"""Asked until it is answered: on the driver and on executors."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from tenacity import (
    RetryError,
    Retrying,
    retry_if_exception_type,
    retry_if_result,
    stop_after_delay,
    wait_random_exponential,
)

from holdfast.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def patiently(patience_s: float, ask: Callable[[], T], again: Callable[[T], bool] = lambda _: False) -> T:
    """Ask until the store answers, and the answer is none that has to be asked for `again`; the last one, in any case.

    Raises:
        StoreUnavailable: no answer in time.
        StoreRefused: at once.
    """
    retrying = Retrying(
        retry=retry_if_exception_type(StoreUnavailable) | retry_if_result(again),
        stop=stop_after_delay(patience_s),
        wait=wait_random_exponential(multiplier=0.05, max=1.0),
    )
    try:
        return retrying(ask)
    except RetryError as error:
        if error.last_attempt.failed:
            error.reraise()
        answer: T = error.last_attempt.result()
        return answer
