"""A client that has forgotten all its brokers: holdfast notices it, and gives it up without waiting for its `close`.

- What the client does: a broker that its controller has fenced (it was silent for longer than its session, or it has
  just started) answers Metadata with topics and without brokers. librdkafka believes that since 2.13 (issue 5301) and
  drops every broker that it knows. It then begins anew with its bootstrap servers, unless
  `metadata.recovery.strategy` is "none", or an answer of that kind comes between the decision and its execution, which
  cancels it for good (issue 5605). Such a client gives nothing up, fetches nothing, commits nothing, reports nothing,
  and its `close` may hang.
- Seen in 3 of 4 groups of bare clients, after their only broker was stopped two to seven times for 10 to 16 s
  (Kafka 4.3.1, librdkafka 2.16).
- What holdfast does: when a client has brought nothing for a while, it is asked about one topic. If it does not answer
  and another client with the same configuration does, the next client is made. The question stands behind a fetch that
  waits for records (fetch.wait.max.ms), so it can take half a second.
- It can go when both issues are closed in the oldest client that is allowed.
- Tests: tests/contracts/kafka/test_forgotten_brokers.py, tests/unit/test_kafka_forgotten.py.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from holdfast.adapters.kafka._client import KafkaException
from holdfast.adapters.kafka.admin import SOME_TOPIC
from holdfast.adapters.kafka.properties import DEFAULT_PORT, as_int
from holdfast.errors import SourceError, SourceFatal
from holdfast.plugin.listening import refusal
from holdfast.plugin.observe.source_state import Silence
from holdfast.timing import SYSTEM_CLOCK, Deadline

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.adapters.kafka._client import Consumer
    from holdfast.adapters.kafka.admin import Admin

_log = logging.getLogger("holdfast.kafka")

#: A client that has brought nothing for this time is asked whether it still has its brokers.
_SILENT_S: Final = 20.0
#: The time between two questions after one without an answer, in addition to the time in which a client reconnects.
_AGAIN_S: Final = 2.0
#: How long one question may take, in addition to the fetch that it stands behind.
_ASK_S: Final = 1.5
#: A client that was silent for longer is asked before it is closed.
_CLOSE_S: Final = 5.0
#: A client counts as lost after this many questions without an answer, while another client gets one.
_ENOUGH: Final = 2


class Brokers:
    """Whether one client still has its brokers. One thread, the one that polls.

    Args:
        admin: another client with the same configuration.
        conf: the client's.
    """

    def __init__(self, admin: Admin, conf: Mapping[str, object]) -> None:
        self._bootstrap = str(conf["bootstrap.servers"])
        self._admin, self._name = admin, f"Kafka at {self._bootstrap}"
        # A client reconnects up to half later than this property says.
        self._again_s = 1.5 * _seconds(conf, "reconnect.backoff.max.ms", 10_000) + _AGAIN_S
        self._ask_s = _seconds(conf, "fetch.wait.max.ms", 500) + _ASK_S
        self.heard()

    def heard(self) -> None:
        """Note that something came from a broker."""
        self._heard_at, self._missed, self._unanswered = SYSTEM_CLOCK.now(), 0, False
        self._look_at = self._heard_at + _SILENT_S

    def forgotten(self, consumer: Consumer) -> bool:
        """Whether the client has no brokers any more. Asks from time to time, which blocks for some seconds."""
        if SYSTEM_CLOCK.now() < self._look_at:
            return False
        if self._answers(consumer):
            self.heard()
            return False
        self._unanswered = True
        self._missed = self._missed + 1 if self._others_answer() else 0  # 0: other clients get no answer either
        self._look_at = SYSTEM_CLOCK.now() + self._again_s
        return self._missed >= _ENOUGH

    def lost_at(self, at: float) -> bool:
        """Whether all brokers are gone: nothing has come since `at`, when the client had lost all connections, and none
        of the configured addresses takes a connection now."""
        return at > self._heard_at and refusal(self._bootstrap, DEFAULT_PORT) is not None

    @property
    def silence(self) -> Silence | None:
        """The silence, if a question had no answer since then; None = the brokers answer."""
        return Silence(source=self._name, for_s=SYSTEM_CLOCK.now() - self._heard_at) if self._unanswered else None

    def may_hang(self, consumer: Consumer) -> bool:
        """Whether `close` may not return: the client was silent, and does not answer now."""
        return SYSTEM_CLOCK.now() - self._heard_at > _CLOSE_S and not self._answers(consumer)

    def _answers(self, consumer: Consumer) -> bool:
        try:
            consumer.list_topics(SOME_TOPIC, timeout=self._ask_s)
        except KafkaException as error:
            _log.debug("the client has no answer from its brokers: %s", error.args[0])
            return False
        return True

    def _others_answer(self) -> bool:
        for _ in range(2):  # an admin client that has forgotten its brokers too is replaced for the second try
            with suppress(SourceError):
                self._admin.reach(Deadline(_ASK_S))
                return True
        return False


def forgotten_error(group: str, wait_s: float) -> SourceFatal:
    """The error about a client that has forgotten its brokers."""
    return SourceFatal(
        f"member of {group}: the client has forgotten its brokers and reaches none of them, though they answer others "
        "(librdkafka issue 5301: a broker that is just starting names none); its partitions are given up, and a "
        f"new client is made in {wait_s:.1f} s"
    )


def give_up(consumer: Consumer, deadline: Deadline | None = None) -> None:
    """Close a client whose `close` may hang, in a thread of its own. Waits for it until the deadline."""
    closing = threading.Thread(target=_close, args=(consumer,), name="holdfast-kafka-close", daemon=True)
    closing.start()
    if deadline is not None:
        closing.join(deadline.left_s())
        if closing.is_alive():
            _log.warning(
                "the Kafka client did not close in time, since its brokers do not answer; it ends with the process"
            )


def _close(consumer: Consumer) -> None:
    try:
        consumer.close()
    except Exception as error:  # noqa: BLE001 - no caller waits for it
        _log.info("the Kafka client that was given up failed to close: %s", error)


def _seconds(conf: Mapping[str, object], name: str, otherwise_ms: int) -> float:
    return as_int(name, conf.get(name, otherwise_ms)) / 1000
