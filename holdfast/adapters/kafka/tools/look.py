"""Checks what a KafkaSource would find, without joining its group: before a deployment."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from holdfast.adapters.kafka import broker_features, faults
from holdfast.adapters.kafka._client import KafkaException
from holdfast.adapters.kafka.admin import Admin, request_s
from holdfast.adapters.kafka.broker_features import NOT_ASKED
from holdfast.adapters.kafka.config import STATIC_ID
from holdfast.adapters.kafka.emission import emit, needs_answer
from holdfast.adapters.kafka.properties import addresses
from holdfast.adapters.kafka.topic_keeping import flaws, keeping_of
from holdfast.errors import SourceError
from holdfast.plugin.secret_names import masked
from holdfast.process_name import process_name
from holdfast.tools.ports import Configured

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from holdfast.adapters.kafka.source import KafkaSource
    from holdfast.plugin.retrying.keeping import Flaw
    from holdfast.timing import Deadline


def fixed_static_id(source: KafkaSource) -> str | None:
    """The static id in the source's configuration; None: there is none."""
    static_id = source._checked.conf.get(STATIC_ID)  # noqa: SLF001 - the same package
    return None if static_id is None else str(static_id)


def conf_of(source: KafkaSource) -> dict[str, object]:
    """The client's properties as the program has them, with credentials: for tools that ask the same brokers."""
    return dict(source._checked.conf)  # noqa: SLF001 - the same package


def settings_of(source: KafkaSource) -> Iterator[tuple[str, object, str]]:
    """The client's effective properties: name, value, and origin of the value. Credentials are masked.

    If they depend on the broker's features, only those that the program has set. Raises SettingError.
    """
    checked = source._checked  # noqa: SLF001 - the same package
    asks = needs_answer(checked)
    said = "the broker decides, asked at the start" if asks else "code"
    yield "assignment", checked.assignment or "none", said if checked.assignment else "default"
    conf = checked.conf if asks else emit(checked, NOT_ASKED).conf
    conf = {"client.id": process_name(), **conf}
    for name, value in sorted(masked(conf).items()):
        yield name, value, "code" if name in checked.conf and checked.conf[name] == conf[name] else "holdfast"


class TopicsLook:
    """The part of `tools.ports.SourceLook` that is about topics. One thread."""

    default_port = 9092

    def __init__(self, conf: Mapping[str, object]) -> None:
        """Raises SettingError: librdkafka refuses the configuration."""
        self.addresses = addresses(conf)
        self._admin = Admin(conf)
        self._admin.check()

    def partitions(self, topic: str, deadline: Deadline) -> int:
        """The number of a topic's partitions, if all have a leader. Raises UnknownTopic and other SourceErrors."""
        leaders = self._admin.leaders([topic], deadline)
        for found in leaders.values():
            if isinstance(found, SourceError):
                raise found
        return len(leaders)

    def matching(self, pattern: str, deadline: Deadline) -> Sequence[str]:
        """The topics that a pattern (^...) matches now. Raises SourceError."""
        try:
            topics = self._admin.client.list_topics(timeout=request_s(deadline)).topics
        except KafkaException as error:
            raise faults.as_source_error(error.args[0], f"listing the topics at {self.addresses}") from error
        return sorted(each for each in topics if re.match(pattern, each))

    def flaws(self, topic: str, delay_s: float | None, deadline: Deadline) -> Sequence[Flaw]:
        """Find the flaws of a retry topic or a dead letter topic. Raises SourceError: the broker does not tell."""
        told = keeping_of(self._admin, [topic], deadline)[topic]
        if isinstance(told, SourceError):
            raise told
        return list(flaws(topic, delay_s, told))

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


class KafkaSourceLook(TopicsLook):
    """`tools.ports.SourceLook`. One thread.

    Args:
        source: the source to check; it need not be open.

    Raises:
        SettingError: librdkafka refuses its configuration.
    """

    def __init__(self, source: KafkaSource) -> None:
        self._checked = source._checked  # noqa: SLF001 - the same package; private because it has credentials
        super().__init__(self._checked.conf)
        self._features = NOT_ASKED

    def reach(self, deadline: Deadline) -> str:
        """Log in at one broker, and ask for its features. Raises SourceError."""
        cluster = self._admin.reach(deadline)
        if needs_answer(self._checked):
            self._features = broker_features.ask(self._checked.conf, deadline)
        return f"Kafka at {self.addresses} answers (cluster {cluster})"

    def configuration(self) -> Configured:
        """Make the client's configuration with the known features of the broker. Raises SettingError: the broker does
        not support it."""
        client = emit(self._checked, self._features)
        # Without the finding that the broker was not asked.
        findings = client.findings if self._features is not NOT_ASKED else self._checked.findings
        return Configured(client.conf, {each.field: str(each) for each in findings})
