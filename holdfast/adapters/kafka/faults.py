"""Kafka's error codes, typed: what each means for a client and for a commit. Decided by code, never by text.

The first question about any group may create the coordinator's topic; until it exists the answer is NOT_COORDINATOR.
"""
# ruff: noqa: SLF001 - the binding's public names of librdkafka's own codes begin with an underscore

from __future__ import annotations

import difflib
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from holdfast.adapters.kafka._client import KafkaError
from holdfast.errors import NotAuthorised, SourceError, SourceFatal, SourceUnavailable, UnknownTopic

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: How similar a name has to be to be suggested in place of a missing one.
_CLOSE = 0.8


class Cure(Enum):
    """How an error ends."""

    CLIENT = "client"  #: librdkafka goes on by itself; watching is enough
    REBUILD = "rebuild"  #: this client is finished, a new one may work
    PERSON = "person"  #: it lasts until an operator changes something


class Fault(NamedTuple):
    """One line of the table."""

    codes: tuple[int, ...]
    cure: Cure
    error: type[SourceError]
    #: Cause and remedy, after "what was asked: the broker's words; ".
    remedy: str


_E = KafkaError
#: Kafka's numbers of errors that the oldest allowed client has no name for.
_INVALID_REGULAR_EXPRESSION, _REBOOTSTRAP_REQUIRED = 128, 129

# For a code without a line the cure is CLIENT, unless the error is fatal. The type follows the cure: CLIENT is
# SourceUnavailable, REBUILD is SourceFatal, and errors with PERSON are not retriable.
FAULTS = (
    Fault(
        (_E._ALL_BROKERS_DOWN, _E._TRANSPORT, _E._RESOLVE, _E._TIMED_OUT, _E._TIMED_OUT_QUEUE, _E._WAIT_COORD,
         _E.NETWORK_EXCEPTION, _E.REQUEST_TIMED_OUT, _E.BROKER_NOT_AVAILABLE),
        Cure.CLIENT, SourceUnavailable,
        "check the address, that the broker is running, and firewalls between; the client keeps trying",
    ),
    Fault(
        (_E.COORDINATOR_LOAD_IN_PROGRESS, _E.COORDINATOR_NOT_AVAILABLE, _E.NOT_COORDINATOR, _E.LEADER_NOT_AVAILABLE,
         _E.NOT_LEADER_FOR_PARTITION, _E.REPLICA_NOT_AVAILABLE, _E.FENCED_LEADER_EPOCH, _E.UNKNOWN_LEADER_EPOCH,
         _E.OFFSET_NOT_AVAILABLE, _E.UNSTABLE_OFFSET_COMMIT, _E.KAFKA_STORAGE_ERROR, _REBOOTSTRAP_REQUIRED),
        Cure.CLIENT, SourceUnavailable,
        "leadership moves between brokers; the client follows",
    ),
    Fault(
        (_E._PARTITION_EOF, _E._MAX_POLL_EXCEEDED, _E.OFFSET_OUT_OF_RANGE, _E._LOG_TRUNCATION),
        Cure.CLIENT, SourceUnavailable,
        "an event of one partition or member; the client goes on",
    ),
    Fault(
        # Only with auto.offset.reset=error. The partition then stands still until it is assigned again.
        (_E._AUTO_OFFSET_RESET,),
        Cure.PERSON, SourceError,
        "the group has no valid offset there: set it, or let auto.offset.reset be earliest or latest",
    ),
    Fault(
        (_E.REBALANCE_IN_PROGRESS, _E.ILLEGAL_GENERATION, _E.UNKNOWN_MEMBER_ID, _E.STALE_MEMBER_EPOCH,
         _E.FENCED_MEMBER_EPOCH, _E.MEMBER_ID_REQUIRED, _E._ASSIGNMENT_LOST),
        Cure.CLIENT, SourceUnavailable,
        "the group moves on; the client joins again",
    ),
    Fault(
        # Another member has the same static id. The code comes without fatal() set, or as _FATAL in a message.
        (_E.FENCED_INSTANCE_ID, _E._FENCED),
        Cure.REBUILD, SourceFatal,
        "another process has the same group.instance.id: give each member its own",
    ),
    Fault(
        # After kill -9 under the consumer protocol: the dead member's session has to end first.
        (_E.UNRELEASED_INSTANCE_ID,),
        Cure.REBUILD, SourceFatal,
        "a member with this group.instance.id still counts as alive: it ends with its session, or give each its own",
    ),
    Fault(
        # _FATAL hides the code behind it: the binding has no call for it.
        (_E._FATAL, _E._DESTROY, _E._CRIT_SYS_RESOURCE),
        Cure.REBUILD, SourceFatal,
        "this client is finished and a new one is made",
    ),
    Fault(
        (_E.GROUP_ID_NOT_FOUND, _E.GROUP_MAX_SIZE_REACHED),
        Cure.REBUILD, SourceFatal,
        "the broker does not take this member now; see the group at the broker (group.max.size, migration policy)",
    ),
    Fault(
        (_E._AUTHENTICATION, _E.SASL_AUTHENTICATION_FAILED, _E.UNSUPPORTED_SASL_MECHANISM, _E.ILLEGAL_SASL_STATE),
        Cure.PERSON, NotAuthorised,
        "the broker refuses these credentials: check sasl.mechanism, sasl.username and the password",
    ),
    Fault(
        (_E._SSL,),
        Cure.PERSON, NotAuthorised,
        "TLS is not agreed on: check security.protocol, ssl.ca.location and the certificates",
    ),
    Fault(
        (_E.GROUP_AUTHORIZATION_FAILED,),
        Cure.PERSON, NotAuthorised,
        "allow this user READ on the group",
    ),
    Fault(
        (_E.TOPIC_AUTHORIZATION_FAILED,),
        Cure.PERSON, NotAuthorised,
        "allow this user READ on the topic (WRITE on a dead letter topic)",
    ),
    Fault(
        (_E.CLUSTER_AUTHORIZATION_FAILED, _E.SECURITY_DISABLED, _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        Cure.PERSON, NotAuthorised,
        "allow this user the operation on the cluster (for a producer on brokers below 2.8: IDEMPOTENT_WRITE)",
    ),
    Fault(
        (_E.UNKNOWN_TOPIC_OR_PART, _E._UNKNOWN_TOPIC, _E._UNKNOWN_PARTITION, _E.UNKNOWN_TOPIC_ID, _E.TOPIC_EXCEPTION),
        Cure.PERSON, UnknownTopic,
        "create the topic, or correct its name",
    ),
    Fault(
        # librdkafka goes on after records that it could not read, perhaps a whole batch: that would look like a gap.
        (_E._BAD_MSG, _E._BAD_COMPRESSION, _E._NOT_IMPLEMENTED, _E.INVALID_MSG, _E.MSG_SIZE_TOO_LARGE,
         _E.INVALID_MSG_SIZE),
        Cure.PERSON, SourceError,
        "the log holds something that cannot be read: look at the offset, raise the client's limits, or set the group "
        "behind it by hand",
    ),
    Fault(
        (_E.INCONSISTENT_GROUP_PROTOCOL,),
        Cure.PERSON, SourceError,
        "the group's members use another protocol or strategy: let all use the same, or another group.id",
    ),
    Fault(
        (_E.INVALID_SESSION_TIMEOUT,),
        Cure.PERSON, SourceError,
        "session.timeout.ms is outside of the broker's group.min/max.session.timeout.ms",
    ),
    Fault(
        (_E.UNSUPPORTED_VERSION, _E._UNSUPPORTED_FEATURE, _E.UNSUPPORTED_ASSIGNOR, _E.INVALID_REQUEST,
         _E.INVALID_GROUP_ID, _INVALID_REGULAR_EXPRESSION, _E._INVALID_ARG, _E._NOT_CONFIGURED, _E.INVALID_CONFIG),
        Cure.PERSON, SourceError,
        "the broker or the client cannot do what the configuration asks",
    ),
)  # fmt: skip

_BY_CODE = {code: fault for fault in reversed(FAULTS) for code in fault.codes}


def fault_of(error: KafkaError) -> Fault | None:
    """The table's line for an error; None = there is none."""
    fault = _BY_CODE.get(error.code())
    # fatal() overrules the code's line: this client will not recover.
    if error.fatal() and (fault is None or fault.cure is Cure.CLIENT):
        return _BY_CODE[_E._FATAL]
    return fault


def cure_of(error: KafkaError) -> Cure:
    """Look up the cure of an error. For a code without a line it is CLIENT, unless the error is fatal."""
    fault = fault_of(error)
    return Cure.CLIENT if fault is None else fault.cure


def is_about_a_topic(error: KafkaError) -> bool:
    """Whether a topic is missing, or not allowed: the client goes on with the others, and looks for it again."""
    return error.code() == _E.TOPIC_AUTHORIZATION_FAILED or as_source_error(error, "").__class__ is UnknownTopic


def is_about_credentials(error: KafkaError) -> bool:
    """Whether a broker refuses the credentials or the TLS handshake, which come before any other request."""
    return error.code() in (
        _E._AUTHENTICATION,
        _E.SASL_AUTHENTICATION_FAILED,
        _E.UNSUPPORTED_SASL_MECHANISM,
        _E.ILLEGAL_SASL_STATE,
        _E._SSL,
    )


def is_about_rights(error: KafkaError) -> bool:
    """Whether credentials or rights are refused."""
    fault = fault_of(error)
    return fault is not None and fault.error is NotAuthorised


def is_about_static_id(error: KafkaError) -> bool:
    """Whether a static member's client may have ended because of its id. `_FATAL` hides the code behind it, and the
    binding has no call for that; among a classic member's errors only the fence is fatal."""
    return error.code() in (_E._FATAL, _E._FENCED, _E.FENCED_INSTANCE_ID, _E.UNRELEASED_INSTANCE_ID)


def as_source_error(error: KafkaError, what: str) -> SourceError:
    """Make the SourceError of the right type. Args: what: the call that failed ("reading orders at broker-1:9092")."""
    fault = fault_of(error)
    said = f"{what}: {error.str()} ({error.name()})"
    return SourceUnavailable(said) if fault is None else fault.error(f"{said}; {fault.remedy}")


def unknown_topics(
    missing: Sequence[str], where: str, *, known: Iterable[str] = (), they_are: str = "", config: str = ""
) -> UnknownTopic:
    """The error for missing topics, with the commands that create them.

    Args:
        missing: their names.
        where: the brokers' addresses.
        known: the existing topics, as far as known.
        they_are: what the topics are for, in brackets.
        config: more arguments for the commands.
    """
    near = [(each, difflib.get_close_matches(each, known, 1, _CLOSE)) for each in missing]
    meant = "".join(f" (did you mean {found[0]} for {each}?)" for each, found in near if found)
    makes = "; ".join(
        f"kafka-topics.sh --bootstrap-server {where} --create --topic {each} --partitions 6{config}" for each in missing
    )
    these = ("topic", "it, or correct its name") if len(missing) == 1 else ("topics", "them, or correct their names")
    return UnknownTopic(
        f"Kafka at {where} has no {these[0]} {', '.join(missing)}{they_are}{meant} (UNKNOWN_TOPIC_OR_PART): create "
        f"{these[1]}: {makes}"
    )


class CommitFate(Enum):
    """The meaning of a commit's answer for its offset, which only the engine remembers."""

    DONE = "done"  #: the broker has it
    AGAIN = "again"  #: refused for now, or unknown: poll, check that the partition is still owned, send again
    DISCARD = "discard"  #: another member may own the partition: a commit could only harm
    NOTHING = "nothing"  #: there was nothing to commit
    FATAL = "fatal"  #: this client will never commit again: rebuild it, or report the error


class _Commit(NamedTuple):
    codes: tuple[int, ...]
    fate: CommitFate
    why: str


COMMIT_FATES = (
    _Commit(
        # Under cooperative-sticky in a rebalance's second phase, with partitions that stay: succeeded after the next
        # poll on a real 4.3 broker; dropping it there cost 86 repeats in one graceful run.
        (_E.ILLEGAL_GENERATION, _E.REBALANCE_IN_PROGRESS),
        CommitFate.AGAIN, "the group is between two generations; what stays ours can be committed after a poll",
    ),
    _Commit(
        (_E.STALE_MEMBER_EPOCH,),
        CommitFate.AGAIN, "KIP-848: the epoch moved on while the commit was under way; whether it counted is unknown",
    ),
    _Commit(
        (_E.COORDINATOR_LOAD_IN_PROGRESS, _E.COORDINATOR_NOT_AVAILABLE, _E.NOT_COORDINATOR, _E._WAIT_COORD),
        CommitFate.AGAIN, "the coordinator moves; librdkafka has tried for a while, the offset is still right",
    ),
    _Commit(
        (_E._TIMED_OUT, _E._TIMED_OUT_QUEUE, _E._TRANSPORT, _E._ALL_BROKERS_DOWN, _E.REQUEST_TIMED_OUT,
         _E.NETWORK_EXCEPTION, _E._RETRY, _E._IN_PROGRESS, _E._PREV_IN_PROGRESS),
        CommitFate.AGAIN, "no answer: the broker may have it or not, and the same offset twice does no harm",
    ),
    _Commit(
        (_E.UNKNOWN_TOPIC_OR_PART,),
        CommitFate.AGAIN, "a broker that has just started does not know its topics yet; a deleted one is revoked soon",
    ),
    _Commit(
        (_E.UNKNOWN_MEMBER_ID, _E.FENCED_MEMBER_EPOCH, _E._ASSIGNMENT_LOST),
        CommitFate.DISCARD, "the group goes on without this member: another may be further already",
    ),
    _Commit(
        (_E._NO_OFFSET,),
        CommitFate.NOTHING, "librdkafka found no offset to commit",
    ),
    _Commit(
        (_E.FENCED_INSTANCE_ID, _E.UNRELEASED_INSTANCE_ID, _E._FATAL, _E._FENCED, _E._DESTROY, _E._STATE),
        CommitFate.FATAL, "this client has ended",
    ),
    _Commit(
        (_E.GROUP_AUTHORIZATION_FAILED, _E.TOPIC_AUTHORIZATION_FAILED, _E._AUTHENTICATION,
         _E.SASL_AUTHENTICATION_FAILED),
        CommitFate.AGAIN, "who commits was let in before: a right that was taken away comes back, or the group goes on",
    ),
    _Commit(
        (_E.OFFSET_METADATA_TOO_LARGE, _E.INVALID_COMMIT_OFFSET_SIZE, _E.INVALID_GROUP_ID),
        CommitFate.FATAL, "the broker will say the same to every repetition",
    ),
)  # fmt: skip

_FATES = {code: line.fate for line in COMMIT_FATES for code in line.codes}


def commit_fate(error: KafkaError | None) -> CommitFate:
    """Read the answer to a commit, of one partition or of all. After an unknown code the engine commits again."""
    if error is None or error.code() == _E.NO_ERROR:
        return CommitFate.DONE
    fate = _FATES.get(error.code())
    if fate is None:
        return CommitFate.FATAL if error.fatal() else CommitFate.AGAIN
    return fate
