"""Repeats a step of the start until name servers, brokers or a proxy answer, and logs what it waits for."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.remoting import NotTrusted
from holdfast.errors import SourceUnavailable, UnknownTopic
from holdfast.plugin.folding import EVERY_S
from holdfast.plugin.listening import refusal, unreached
from holdfast.timing import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from holdfast.errors import SourceError
    from holdfast.timing import Deadline

_log = logging.getLogger("holdfast.rocketmq")
_AGAIN_S = 0.5


def reach(
    step: Callable[[], object], servers: str, deadline: Deadline, may_come: Callable[[], bool] = lambda: False
) -> None:
    """Do as `insist` does. If no server listens at any of the addresses, the error says so."""
    try:
        insist(step, servers, deadline, may_come)
    except SourceUnavailable:
        if (why := refusal(servers, None)) is None:
            raise
        raise unreached(why) from None


def insist(
    step: Callable[[], object], servers: str, deadline: Deadline, may_come: Callable[[], bool] = lambda: False
) -> None:
    """Repeat a step of the start until servers answer. The reason for waiting is logged at once, and then every 30 s.

    Args:
        step: raises SourceError.
        servers: their addresses.
        deadline: until when to repeat it.
        may_come: whether a topic that is not known may be known soon.

    Raises:
        SourceError: the error of the last try, or one that no waiting cures.
    """
    waited_for: SourceError | None = None
    told_at = -math.inf
    while True:
        try:
            step()
        except (SourceUnavailable, UnknownTopic) as error:
            if isinstance(error, NotTrusted):
                raise
            if deadline.passed:  # the last try had no time left, so an earlier error says more
                raise (waited_for or error) from None
            if isinstance(error, UnknownTopic) and not may_come():
                raise
            waited_for = error
            if SYSTEM_CLOCK.now() - told_at >= EVERY_S:
                told_at = SYSTEM_CLOCK.now()
                _log.warning("%s; trying for another %.0f s", refusal(servers, None) or error, deadline.left_s())
            SYSTEM_CLOCK.sleep(deadline.left_s(_AGAIN_S))
        else:
            return


def look_for_all(topics: Iterable[str], look: Callable[[str], object]) -> None:
    """Call `look` for each topic. Raises UnknownTopic, which names all missing topics, or any other error of `look`."""
    missing = list[UnknownTopic]()
    for topic in topics:
        try:
            look(topic)
        except UnknownTopic as error:
            missing.append(error)
    if missing:
        raise missing[0] if len(missing) == 1 else UnknownTopic("; ".join(map(str, missing)))
