"""What can go wrong between us and a broker, typed by its answer's code. Nothing is decided by a remark's text."""

from __future__ import annotations

from holdfast.adapters.rocketmq.remoting import codes
from holdfast.errors import NotAuthorised, SourceError, SourceUnavailable, UnknownTopic

_NOT_NOW = frozenset({codes.SYSTEM_BUSY, codes.SERVICE_NOT_AVAILABLE, codes.FLOW_CONTROL, codes.GO_AWAY})
_REMARK_CHARACTERS = 300  # a broker may put a whole stack trace there


class NoAnswer(SourceUnavailable):
    """The time is over. It says nothing about what was asked: that may have been done, or may yet be done."""


class NotTrusted(SourceUnavailable):
    """The server's certificate is none that we trust. It may be that one server's alone; where it is all of them, no
    waiting cures it."""


class BrokerBusy(SourceUnavailable):
    """The broker answers that it cannot do it now (overload, shutting down, flow control)."""

    def __init__(self, message: str, code: int, remark: str) -> None:
        super().__init__(message)
        self.code, self.remark = code, remark


class BrokerRefused(SourceError):
    """The broker answers no.

    Attributes:
        code: of `codes`; 1 is what brokers say where they have nothing more exact.
        remark: the broker's own words, for people.
    """

    def __init__(self, message: str, code: int, remark: str) -> None:
        super().__init__(message)
        self.code, self.remark = code, remark


class CommitIgnored(SourceError):
    """The broker has been told to reset this queue's offset, and ignores commits until the group's next pull there."""


class Malformed(SourceError):
    """These bytes are none that a RocketMQ server sends."""


def refusal(what: str, address: str, code: int, remark: str | None) -> SourceError:
    """The error that an answer other than 0 stands for.

    Args:
        what: the request, for people.
        address: who answered.
        code: the answer's.
        remark: the answer's; a stack trace is cut.
    """
    words = (remark or "").strip()[:_REMARK_CHARACTERS]
    said = f"{what} at {address}: code {code}" + (f", {words!r}" if words else "")
    if code in _NOT_NOW:
        return BrokerBusy(f"{said}; the broker cannot do it now: try again", code, words)
    if code == codes.TOPIC_NOT_EXIST:
        return UnknownTopic(f"{said}; create the topic, or mend its name")
    if code == codes.NO_PERMISSION:
        return NotAuthorised(f"{said}; check the credentials, and the permissions of the topic and the group")
    return BrokerRefused(said, code, words)
