"""Verdicts: the words in the audit's tables. docs/operations/audit.md explains them."""

from __future__ import annotations

from enum import StrEnum


class Verdict(StrEnum):
    """The verdict on offsets that no span covers."""

    LOST = "lost"  #: all events of its readers are there, and they went past it
    UNKNOWN = "unknown"  #: it may have been done by a run that could not tell
    PENDING = "pending"  #: no member has reported it as done
    LEFT = "left"  #: the group ended cleanly before it, or was told to skip it
    EXPIRED = "expired"  #: the log had deleted it before it was read


class Reason(StrEnum):
    """Why that verdict."""

    PASSED = "passed"  #: lost: its owner's position went past it
    JUMPED = "jumped"  #: lost: the next owner began beyond it
    KILLED = "killed"  #: unknown: its reader ended without a last event, or lives and has not reported it yet
    INCOMPLETE = "incomplete"  #: unknown: events of its reader are missing
    LAG = "lag"  #: pending or left: no member has read so far; lost, if everything had to be consumed
    RESET = "reset"  #: left: the group was told to begin beyond it
    RETENTION = "retention"  #: expired: its reader found that the log begins behind it


class Cause(StrEnum):
    """Why a record was executed again."""

    CRASH = "crash"  #: the member that had executed it was killed
    HAND_OVER = "hand-over"  #: the member that had executed it had given the partition away, or lost it
    REDELIVERY = "redelivery"  #: the same run, in the same ownership
    RESET = "reset"  #: the group was told to read it again


class KeyCause(StrEnum):
    """Why a key was executed again."""

    PRODUCER = "producer"  #: it was sent more than once
    REPEAT = "repeat"  #: one record, executed again: see `duplicates`
    BOTH = "both"


class Ended(StrEnum):
    """How a run ended."""

    CLEAN = "clean"
    UNCLEAN = "unclean"  #: it reported its stop, with an error or with records in hand
    KILLED = "killed"  #: it fell silent
    ALIVE = "alive"  #: its last event is as recent as the others'
