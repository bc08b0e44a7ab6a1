"""KafkaEvents: the audit's events as messages of a topic, keyed by the run, so that each run's events keep their
order."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.adapters.kafka._client import KafkaError, KafkaException, Producer
from holdfast.adapters.kafka.admin import refused
from holdfast.adapters.kafka.callbacks import ClientLog
from holdfast.adapters.kafka.faults import Cure, cure_of
from holdfast.adapters.kafka.properties import addresses, for_helpers
from holdfast.errors import SettingError
from holdfast.plugin.secret_names import masked
from holdfast.timing import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.adapters.kafka._client import Message
    from holdfast.timing import Deadline

_log = logging.getLogger("holdfast.audit")

_OWN = {
    "acks": "all",
    # The client then neither duplicates nor reorders events: a hole in a run's numbers is a loss.
    "enable.idempotence": True,
    # Events in the client do not count in the emitter's limit. When the client is full, events wait in the emitter.
    "queue.buffering.max.messages": 10_000,
}
_UNLESS_SAID = {"linger.ms": 100, "logger": ClientLog()}
#: How often lost events are logged, and how often the client is made anew, at most.
_AGAIN_S = 60.0
_REBUILD_S = 5.0


@dataclass(frozen=True, slots=True, repr=False)
class KafkaEvents:
    """A topic for events: `Audit(KafkaEvents(conf, "holdfast-audit"))`.

    The topic has to exist, unless the broker creates topics by itself. It may have any number of partitions. Its
    cleanup.policy has to be delete: a compacted topic would keep only the last event of each run.

    Args:
        conf: of any client, also of a consumer: addresses and credentials are taken from it.
        topic: its name.

    Raises:
        SettingError: no brokers, or no topic.
    """

    conf: Mapping[str, Any]
    topic: str

    def __post_init__(self) -> None:
        conf: object = self.conf
        if not isinstance(conf, Mapping) or not addresses(conf):
            raise SettingError("conf", "...", "give the client's configuration, with bootstrap.servers")
        if not self.topic:
            raise SettingError("topic", self.topic, "name the topic for the events")

    def __repr__(self) -> str:
        return f"KafkaEvents({masked(self.conf)}, {self.topic!r})"

    def open(self, member: str, run: str) -> _Sink:  # noqa: ARG002 - the protocol's signature
        """Open the topic for a run. Raises SettingError: librdkafka refuses the configuration. Does not wait for a
        broker."""
        return _Sink(self)


class _Sink:
    """Sends events by one producer after the other. One thread, the emitter's."""

    def __init__(self, how: KafkaEvents) -> None:
        self._how = how
        self._producer = self._made()
        self._broken = False
        self._rebuild_at = self._tell_at = 0.0
        #: Events that the broker did not take.
        self.lost = 0

    def write(self, lines: Sequence[str], run: str) -> int:
        """Send lines, as many as the client has room for. Returns how many."""
        if self._broken and not self._rebuilt():
            return 0
        taken = 0
        for line in lines:
            try:
                self._producer.produce(self._how.topic, value=line.encode(), key=run, on_delivery=self._told)
            except BufferError:
                break
            except KafkaException as error:
                self._lose(error.args[0])
            taken += 1
        self._serve()
        return taken

    def close(self, deadline: Deadline) -> None:
        """Wait for events under way."""
        try:
            self.lost += self._producer.flush(deadline.left_s())
        except KafkaException as error:
            self._lose(error.args[0])

    # ---- inside
    def _made(self) -> Producer:
        try:
            return Producer({**_UNLESS_SAID, **for_helpers(self._how.conf), **_OWN})
        except KafkaException as error:
            raise refused(error) from error

    def _rebuilt(self) -> bool:
        """Replace a producer that is finished, such as an idempotent one that has lost its sequence. False = not
        yet."""
        now = SYSTEM_CLOCK.now()
        if now < self._rebuild_at:
            self._serve()
            return False
        self._rebuild_at = now + _REBUILD_S
        self._producer.purge()
        self._serve()  # counts its events as lost
        self._producer, self._broken = self._made(), False
        return True

    def _serve(self) -> None:
        """Take the answers that have come."""
        try:
            self._producer.poll(0)
        except Exception:  # noqa: BLE001 - a callback of the application (oauth_cb)
            _log.exception("audit: a callback of the producer failed")

    def _told(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._lose(error)

    def _lose(self, error: KafkaError) -> None:
        self.lost += 1
        self._broken = self._broken or error.fatal() or cure_of(error) is Cure.REBUILD
        now = SYSTEM_CLOCK.now()
        if now >= self._tell_at:
            self._tell_at = now + _AGAIN_S
            _log.warning(
                "audit: events to %s at %s are lost: %s (%s); see that the topic exists and may be written to",
                self._how.topic,
                addresses(self._how.conf),
                error.str(),
                error.name(),
            )
