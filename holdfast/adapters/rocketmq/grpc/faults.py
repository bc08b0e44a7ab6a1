"""Converts answers of the proxy and errors of gRPC into holdfast's errors: by codes and statuses, never by texts."""

from __future__ import annotations

from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.grpc.delivery import Verdict
from holdfast.errors import NotAuthorised, SourceError, SourceUnavailable, UnknownTopic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# apache.rocketmq.v2.Code (definition.proto)
OK = 20000
_MULTIPLE_RESULTS = 30000
_INVALID_RECEIPT_HANDLE = 40013
_MESSAGE_NOT_FOUND = 40401
_TOPIC_NOT_FOUND = 40402
#: Unauthorised, forbidden: missing or wrong credentials, or too few rights.
_NO_ACCESS = frozenset({40100, 40300})
#: The request can never succeed: a setting, a version, a topic that is gone. 40018, "the time remaining is not enough
#: for polling", is not among them: holdfast's polls leave more time, so such a poll was delayed by a busy machine.
_REFUSED = frozenset({40001, 40002, 40003, 40010, 40011, 40015, 40200, 50100, 50500, 50501, 50502})
#: The packages of errors that a call of the client raises. Errors of futures are Python's.
_CLIENTS = frozenset({"builtins", "concurrent", "asyncio", "grpc", "google", "rocketmq"})
#: gRPC's statuses for missing or wrong credentials.
_GRPC_NO_ACCESS = frozenset({"UNAUTHENTICATED", "PERMISSION_DENIED"})


def nothing_there(code: int) -> bool:
    """Whether a long poll has ended without a message."""
    return code == _MESSAGE_NOT_FOUND


def verdict_of(code: int) -> Verdict:
    """The verdict on one delivery, from a status code."""
    if code == OK:
        return Verdict.DONE
    return Verdict.OVER if code == _INVALID_RECEIPT_HANDLE else Verdict.UNKNOWN


def verdicts_of(code: int, entries: Mapping[str, int], receipts: Sequence[str]) -> list[Verdict]:
    """The verdicts on the deliveries of one acknowledgement. If each receipt has an entry with a status, that counts;
    else the status of the whole. Entries may be in another order than the request (with enableBatchAck).

    Args:
        code: the status of the whole acknowledgement.
        entries: receipt -> status.
        receipts: the receipts in the order of the request.
    """
    if code in {OK, _MULTIPLE_RESULTS, _INVALID_RECEIPT_HANDLE} and all(each in entries for each in receipts):
        return [verdict_of(entries[each]) for each in receipts]
    return [verdict_of(code)] * len(receipts)


def refusal(code: int, message: str, what: str) -> SourceError:
    """The error for a status that is not OK."""
    said = f"{what}: the proxy answers {code} ({message})"
    if code in _NO_ACCESS:
        return NotAuthorised(f"{said}: check access_key and secret_key, and what they may do")
    if code == _TOPIC_NOT_FOUND:
        return UnknownTopic(f"{said}: create the topic, or look whether the endpoints are those of its cluster")
    return SourceError(said) if code in _REFUSED else SourceUnavailable(said)


@contextmanager
def as_source_errors(what: str) -> Iterator[None]:
    """Wrap a call of the client: its errors are raised as SourceError. An error that is not the client's, gRPC's or
    Python's was raised by a signal handler, such as a job's time limit, and passes unchanged."""
    try:
        yield
    except SourceError:
        raise
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in _CLIENTS:
            raise
        raise failure(error, what) from error


def failure(error: BaseException, what: str) -> SourceError:
    """The SourceError for an error of the client. gRPC's errors have a `code()`, the client's own a `code`."""
    code = getattr(error, "code", None)
    if callable(code):
        name = getattr(code(), "name", "")
        said = f"{what}: {name} ({getattr(error, 'details', str)() or 'no details'})"
        if name in _GRPC_NO_ACCESS:
            return NotAuthorised(f"{said}: check access_key and secret_key, and what they may do")
        return SourceUnavailable(f"{said}: is the proxy up, and reachable at these endpoints?")
    if isinstance(code, int):
        return refusal(code, str(error), what)
    if isinstance(error, CancelledError):
        return SourceUnavailable(f"{what}: the connection was closed")
    return SourceUnavailable(f"{what}: {type(error).__name__}: {error}")
