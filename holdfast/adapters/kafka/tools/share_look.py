"""ShareSourceLook: checks what a ShareSource would find, without joining its group: before a deployment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.adapters.kafka.share import limits as grants
from holdfast.adapters.kafka.tools.look import TopicsLook
from holdfast.errors import SourceError
from holdfast.tools.ports import Configured

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.adapters.kafka.share.source import ShareSource
    from holdfast.timing import Deadline


def conf_of(source: ShareSource) -> dict[str, object]:
    """The client's properties as the program has them, with credentials: for tools that ask the same brokers."""
    return dict(source._config.conf)  # noqa: SLF001 - the same package


class ShareSourceLook(TopicsLook):
    """`tools.ports.SourceLook`. One thread.

    Args:
        source: the source to check; it need not be open.

    Raises:
        SettingError: librdkafka refuses its configuration.
    """

    def __init__(self, source: ShareSource) -> None:
        self._source = source
        super().__init__(source._config.conf)  # noqa: SLF001 - the same package; private because it has credentials
        self._limits: grants.Limits | None = None

    def reach(self, deadline: Deadline) -> str:
        """Log in at one broker, and read what it grants the group. Raises SourceError."""
        cluster, group = self._admin.reach(deadline), self._source.group
        self._limits = limits = grants.read(self._admin, group, deadline)
        return (
            f"Kafka at {self.addresses} answers (cluster {cluster}); {group} locks a record for {limits.lock_s:g} s, "
            f"and delivers it {limits.deliveries} times"
        )

    def configuration(self) -> Configured:
        """Compare the handlers with what the group grants. Raises SettingError: one may outlive its lock."""
        if self._limits is None:
            return Configured()
        self._source.check_times(self._limits)
        said = grants.beginning(self._source.group, self._limits)
        return Configured(warnings={} if said is None else {grants.BEGINS: said})

    def matching(self, pattern: str, deadline: Deadline) -> Sequence[str]:  # noqa: ARG002 - as it is called
        """Raises SourceError: patterns are not supported."""
        raise SourceError(f"{pattern}: share groups know no patterns: name the topics")
