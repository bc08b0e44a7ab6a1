"""A group's session timeout under the consumer protocol, which only the broker knows: read from it, once.

It is consumer.session.timeout.ms of the group, or the broker's default for it (group.consumer.session.timeout.ms), read
by DescribeConfigs of the group. Needs DESCRIBE_CONFIGS on the group, which READ does not include.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from holdfast.adapters.kafka._client import ConfigResource, ResourceType
from holdfast.errors import SourceError
from holdfast.timing import SYSTEM_CLOCK, Deadline

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.adapters.kafka.admin import Admin

_log = logging.getLogger("holdfast.kafka")

_NAME = "consumer.session.timeout.ms"
#: How long the start waits for the answer. Without an answer only the takeover after a crash may take longer.
_ASK_S = 3.0


class GroupSession:
    """The session timeout of one group. One thread.

    Args:
        group: its name.
        admin: makes the admin client, or returns the existing one.
    """

    def __init__(self, group: str, admin: Callable[[], Admin]) -> None:
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
            self._ask()
        return self._timeout_s

    def _ask(self) -> None:
        admin, deadline = self._admin(), Deadline(_ASK_S, SYSTEM_CLOCK)
        try:
            mock = admin.is_mock(deadline)
        except SourceError as error:  # the join meets the same error, and waits longer
            _log.debug("how long the broker waits for members of %s cannot be asked: %s", self._group, error)
            return
        self._answered = True
        if mock:
            return
        try:
            asked = admin.client.describe_configs(
                [ConfigResource(ResourceType.GROUP, self._group)], request_timeout=_ASK_S
            )
            [future] = asked.values()
            found = admin.answer(future, deadline, f"asking for the session of {self._group}").get(_NAME)
        except SourceError as error:
            _log.info("how long the broker waits for members of %s is not known: %s", self._group, error)
        else:
            self._timeout_s = None if found is None or found.value is None else int(found.value) / 1000
