"""Joining a group: makes a client of librdkafka, looks for its topics, subscribes; and tells whether it was let in."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, cast

from holdfast.adapters.kafka import faults
from holdfast.adapters.kafka._client import Consumer, KafkaError, KafkaException
from holdfast.adapters.kafka.admin import CALL_S, Wait, request_s
from holdfast.adapters.kafka.callbacks import client_log
from holdfast.adapters.kafka.config import GroupProtocol
from holdfast.errors import NotAuthorised, SourceError, SourceUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.adapters.kafka.callbacks import Callbacks
    from holdfast.adapters.kafka.emission import ClientConfig
    from holdfast.adapters.kafka.quirks.shielding import Shield
    from holdfast.timing import Deadline

#: Callbacks that the client's own configuration may have.
_THEIRS = ("stats_cb", "throttle_cb")
#: The timeout of the first request; after it the log says that the broker is waited for.
_FIRST_TRY_S = 1.0
#: The beginning of a group's metadata as librdkafka writes it. Then come the epoch, four bytes in the machine's order,
#: and names.
_METADATA = b"CGMDv2:"


def consumer_of(client: ClientConfig, callbacks: Callbacks, *, begins_by_itself: bool, name: str) -> Consumer:
    """Make a client; it has no topics yet. Raises SourceError.

    Args:
        client: its configuration.
        callbacks: its callbacks.
        begins_by_itself: whether the configuration tells where a group without an offset begins.
        name: its client.id, unless the configuration has one.
    """
    callbacks.clients += 1
    own = {
        "on_commit": callbacks.of_this_client(callbacks.on_commit, 2),
        "error_cb": callbacks.of_this_client(callbacks.on_error, 1),
        # holdfast finds the group's beginning itself, once. Later this setting applies to a client whose offset is
        # outside of the log (retention was quicker, the log was cut): "latest" would skip records that exist.
        "auto.offset.reset": "earliest" if begins_by_itself else "error",
        "enable.partition.eof": True,  # its offset also counts transaction markers at a log's end
        "logger": client_log(client.conf, callbacks.shield),
    }
    theirs: dict[str, Callable[..., object]] = {
        name: callbacks.shield.around(callbacks.applications(name, call), 1)
        for name in _THEIRS
        if callable(call := client.conf.get(name))
    }
    token, raised = client.conf.get("oauth_cb"), list[Exception]()
    if callable(token):
        asks_with = client.conf.get("sasl.oauthbearer.config")
        theirs["oauth_cb"] = callbacks.shield.around_answer(_kept(token, raised, callbacks.shield), asks_with)
    try:
        return Consumer({"client.id": name, **client.conf, **own, **theirs})
    except KafkaException as error:
        refused = error
    except:  # noqa: E722 - without a token the client calls error_cb while it raises: the result is a SystemError, or a
        # KafkaError, which is no exception of Python's and may not be the context of another one.
        unlike: object = sys.exc_info()[1]
        if not callable(token) or (isinstance(unlike, BaseException) and not isinstance(unlike, SystemError)):
            raise
        refused = KafkaException(KafkaError(KafkaError.SASL_AUTHENTICATION_FAILED, "OAuth token not set"))
    callbacks.shield.raise_kept()
    raise _refusal(refused, raised) from refused


def _refusal(refused: KafkaException, raised: Sequence[Exception]) -> SourceError:
    """The error about a client that was not made; chained to the last exception of oauth_cb, if that is the cause."""
    error = refused.args[0]
    if error.code() != KafkaError.SASL_AUTHENTICATION_FAILED:
        return SourceError(f"librdkafka refuses this configuration: {error.str()}")
    why = "no answer"
    if raised:
        refused.__cause__, why = raised[-1], repr(raised[-1])
    return NotAuthorised(f"oauth_cb has given no token ({why}), and brokers are not asked without: see that it can")


def _kept(call: Callable[[str], object], raised: list[Exception], shield: Shield) -> Callable[[str], object]:
    """Wrap a callback to keep its last exception: the client reports only that there was one."""

    def told(asked: str) -> object:
        try:
            return call(asked)
        except Exception as error:
            raised[:] = [error]
            raise
        except BaseException as error:
            shield.keep(error)
            raise RuntimeError("interrupted") from error

    return told


def join(consumer: Consumer, topics: Sequence[str], callbacks: Callbacks) -> None:
    """Subscribe; the assignment follows in later polls. Raises SourceError."""
    try:
        consumer.subscribe(
            list(topics),
            on_assign=callbacks.of_this_client(callbacks.on_assign, 2),
            on_revoke=callbacks.of_this_client(callbacks.on_revoke, 2),
            on_lost=callbacks.of_this_client(callbacks.on_lost, 2),
        )
    except KafkaException as error:
        raise SourceError(f"librdkafka refuses to subscribe to {topics}: {error.args[0].str()}") from error


def look_for_topics(
    consumer: Consumer, topics: Sequence[str], callbacks: Callbacks, bootstrap: str, deadline: Deadline
) -> None:
    """Check that topics which are named exist: the client itself would wait for them silently. Raises SourceError."""
    wait = Wait(f"reaching Kafka at {bootstrap}", deadline, bootstrap)
    known, missing = _list_topics(consumer, None, callbacks, wait, deadline), []
    for topic in topics:
        if topic.startswith("^") or topic in known:
            continue
        error = _list_topics(consumer, topic, callbacks, wait, deadline)[topic].error
        if error is not None and error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise faults.as_source_error(error, f"subscribing to {topic}")
        if error is not None:
            missing.append(topic)
    if missing:
        raise faults.unknown_topics(missing, bootstrap, known=known)


def _list_topics(
    consumer: Consumer, topic: str | None, callbacks: Callbacks, wait: Wait, deadline: Deadline
) -> Mapping[str, Any]:
    """List topics by repeated short calls, because a signal's handler does not run inside of a call of the client."""
    call_s = _FIRST_TRY_S
    while True:
        timeout_s = request_s(deadline, at_most=call_s)
        try:
            found = consumer.list_topics(timeout=timeout_s) if topic is None else consumer.list_topics(topic, timeout_s)
        except KafkaException as error:
            consumer.poll(0)  # serves error_cb, which gets a refused password; this call only times out
            callbacks.shield.raise_kept()
            trouble = callbacks.take_trouble()
            over = deadline.passed or faults.cure_of(error.args[0]) is not faults.Cure.CLIENT
            if isinstance(trouble, SourceUnavailable):  # all brokers are down: the wait is for them
                trouble = None
            if trouble is not None or over:
                raise trouble or faults.as_source_error(error.args[0], wait.what) from error
            wait.log_once()
            call_s = CALL_S
        else:
            return cast("Mapping[str, Any]", found.topics)


def is_member(consumer: Consumer) -> bool | None:
    """Whether the client has an epoch of its group: then the coordinator has accepted it as a member. Read from the
    client's state, without a request. None: the format is not the known one
    (rd_kafka_consumer_group_metadata_write)."""
    told = consumer.consumer_group_metadata()
    at = len(_METADATA)
    if not isinstance(told, bytes) or not told.startswith(_METADATA) or len(told) < at + 4:
        return None
    return int.from_bytes(told[at : at + 4], sys.byteorder, signed=True) >= 0


def never_let_in(client: ClientConfig, callbacks: Callbacks) -> bool:
    """Whether the broker advertises the consumer protocol, and has never let this client in by it.

    A broker with group.coordinator.rebalance.protocols=classic in its configuration advertises it all the same (seen on
    4.3.1). A static member may have been refused for its id instead, and tries again.
    """
    return not callbacks.assignments and client.protocol is GroupProtocol.CONSUMER and client.static_id is None
