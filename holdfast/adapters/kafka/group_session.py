"""A group's session timeout under the consumer protocol, which only the broker knows: read from it, once.

It is consumer.session.timeout.ms of the group, or the broker's default for it (group.consumer.session.timeout.ms), read
by DescribeConfigs of the group. Needs DESCRIBE_CONFIGS on the group, which READ does not include.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from holdfast.adapters.kafka._client import ResourceType
from holdfast.errors import SourceError
from holdfast.timing import SYSTEM_CLOCK, Deadline

if TYPE_CHECKING:
    from holdfast.adapters.kafka.admin import Admin

_log = logging.getLogger("holdfast.kafka")

_NAME = "consumer.session.timeout.ms"
#: How long the start waits for the answer. Without an answer only the takeover after a crash may take longer.
_ASK_S = 3.0


class GroupSession:
    """The session timeout of one group. One thread."""

    def __init__(self, group: str, admin: Admin) -> None:
        self._group, self._admin = group, admin
        self._answered = False
        self._timeout_s: float | None = None

    @property
    def timeout_s(self) -> float | None:
        """Seconds of silence after which a member's partitions go to others; None = the broker does not tell, or not
        now.

        Blocks for three seconds at most, in each call until a broker was reached once. Raises SettingError: librdkafka
        refuses the configuration.
        """
        if not self._answered:
            self._ask(Deadline(_ASK_S, SYSTEM_CLOCK))
        return self._timeout_s

    def _ask(self, deadline: Deadline) -> None:
        try:
            mock = self._admin.is_mock(deadline)
        except SourceError as error:  # the join meets the same error, and waits longer
            _log.debug("how long the broker waits for members of %s cannot be asked: %s", self._group, error)
            return
        self._answered = True
        if mock:
            return
        kind, what = ResourceType.GROUP, "asking for the session of {}"
        [found] = self._admin.configs(kind, [self._group], deadline, what).values()
        if isinstance(found, SourceError):
            _log.info("how long the broker waits for members of %s is not known: %s", self._group, found)
        elif (said := found.get(_NAME)) is not None:
            self._timeout_s = int(said) / 1000
