"""A group's session under the consumer protocol, which the broker alone knows: asked of it, once.

consumer.session.timeout.ms of the group, or the broker's default for it (group.consumer.session.timeout.ms), by
DescribeConfigs of the group. Needs DESCRIBE_CONFIGS on it, which READ does not include.
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
#: The store waits for the answer, at the start. Without it nothing is wrong but that a crash takes longer.
_ASK_S = 3.0


class GroupSession:
    """One thread.

    Args:
        group: its name.
        admin: makes the admin client, or gives the one that is there.
    """

    def __init__(self, group: str, admin: Callable[[], Admin]) -> None:
        self._group, self._admin = group, admin
        self._answered = False
        self._timeout_s: float | None = None

    @property
    def timeout_s(self) -> float | None:
        """After how long of silence a member's partitions are handed on; None = the broker does not say, or not now.

        Blocks for three seconds at most, until a broker was reached once. Raises SettingError: librdkafka refuses the
        configuration.
        """
        if not self._answered:
            self._ask()
        return self._timeout_s

    def _ask(self) -> None:
        admin, deadline = self._admin(), Deadline(_ASK_S, SYSTEM_CLOCK)
        try:
            mock = admin.is_mock(deadline)
        except SourceError as error:  # who joins meets the same, and waits for longer
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
