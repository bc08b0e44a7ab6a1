"""Errors of redis-py as StoreErrors: "no answer now", or "refused". The types and the protocol's codes decide."""

from __future__ import annotations

import re
import ssl
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from redis import exceptions

from holdfast.dedup.interrupts import codes_of, raised_by_handler
from holdfast.errors import AccessRefused, StoreError, StoreLockedOut, StoreRefused, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_NO_ACCESS = (
    exceptions.AuthenticationError,
    exceptions.AuthenticationWrongNumberOfArgsError,
    exceptions.AuthorizationError,
    exceptions.NoPermissionError,
)
#: Raised by redis-py, the system and its sockets if there is no answer; the last three also by a connection that
#: another thread has closed.
_NO_ANSWER = (
    *(StoreError, exceptions.RedisError, exceptions.RedisClusterException),
    *(OSError, AttributeError, TypeError, ValueError),
)
#: A credential provider may raise other errors; it is the only foreign code that runs while a Redis is asked.
_PROVIDER = frozenset({"get_credentials", "get_credentials_async"})
#: An error reply of the server, or arguments that redis-py refuses to send.
_ANSWERS = (exceptions.ResponseError, exceptions.DataError)
#: Error codes (the first word of an error reply) of conditions that pass by themselves or that an operator ends.
_PASSING = frozenset(
    {
        "BUSY",
        "CLUSTERDOWN",
        "LOADING",
        "MASTERDOWN",
        "MISCONF",
        "NOREPLICAS",
        "READONLY",
        "TRYAGAIN",
        "UNBLOCKED",  # from its WAIT: a primary has become a replica
        "UNKILLABLE",
    }
)
#: Texts that stand for NOPERM inside a script: up to Redis 7.0, and from 7.2 on.
_NOPERM_IN_SCRIPTS = ("The user executing the script can't", "ACL failure in script")
_PASSING_TYPES = (
    exceptions.BusyLoadingError,
    exceptions.ReadOnlyError,
    exceptions.MasterDownError,
    exceptions.ClusterDownError,
    exceptions.TryAgainError,
    exceptions.AskError,  # and MOVED: a slot that goes on moving while it is asked for
)


def codes(text: str) -> set[str]:
    """The codes in an error reply: its first word, and the code of an error inside a script. Redis 6.2 has that one in
    the middle of a longer text ("Error running script (call to f_...): @user_script:1: -READONLY You can't ..."). No
    version has a code for a user who may not run a command of a script: its text is recognised, as NOPERM."""
    inner = re.findall(r": -([A-Z]+) ", text) if text.startswith(("Error running script", "ERR Error running")) else []
    if any(said in text for said in _NOPERM_IN_SCRIPTS):
        inner.append("NOPERM")
    return {text.split(" ", 1)[0], *inner}


@contextmanager
def asking(where: object, to_error: Callable[[Exception, object], StoreError] | None = None) -> Iterator[None]:
    """Around calls of redis-py: raises a chained StoreError if there is no answer, or a refusal. An error that has
    interrupted the call from outside is raised as it is.

    Args:
        where: the server, for texts.
        to_error: makes the StoreError. Default: `store_error`.
    """
    handled = sys.exc_info()[1]
    try:
        yield
    except StoreError:
        raise
    except Exception as error:
        by = interruption(error, handled)
        if by is error:
            raise
        if by is not None:
            raise by from by.__cause__
        raised = (to_error or store_error)(error, where)
        # Keep only the text of the cause: redis-py's stack and the socket's errors below it are 60 lines of a
        # traceback.
        error.__cause__ = error.__context__ = None
        raise raised from error.with_traceback(None)


def interruption(error: BaseException, handled: BaseException | None) -> BaseException | None:
    """Find the error that has interrupted a call of redis-py: raised by a signal's handler, or into the thread by other
    means. None: nothing has interrupted the call; there is no answer.

    Args:
        error: what the call has raised.
        handled: the exception that was being handled when the call began; it is not of this call.
    """
    raised = raised_by_handler(error, handled)
    if raised is not None:
        return raised
    if isinstance(error, _NO_ANSWER) or any(code.co_name in _PROVIDER for code in codes_of(error)):
        return None
    return error


@contextmanager
def once_let_in(*, before: bool) -> Iterator[None]:
    """Around calls of a process whose credentials the store has accepted `before`: a refusal then counts as an outage,
    until an operator corrects it. Raises StoreLockedOut in place of AccessRefused."""
    try:
        yield
    except AccessRefused as error:
        if not before:
            raise
        raise StoreLockedOut(
            f"{error}. This process was let in before; it continues when the store lets it in again"
        ) from error


def store_error(error: Exception, where: object) -> StoreError:
    """The error to raise `from` this one.

    Args:
        error: what a call of redis-py raised. Its texts name hosts and commands, never a password: it does not put
            arguments into them.
        where: host, port and database: a text, or an object whose `str` is one.
    """
    text = " ".join(str(error).split())[:200].rstrip(".")
    refused = _access_refused(error, text, where)
    if refused is not None:
        return refused
    why = _why_not_now(error, text)
    if why:
        return StoreUnavailable(f"the Redis at {where} {why}")
    if isinstance(error, _ANSWERS):
        return StoreRefused(f"the Redis at {where} refuses a call ({text})")
    what = text if isinstance(error, exceptions.RedisError) else f"{type(error).__name__}: {text}"
    return StoreUnavailable(
        f"no answer from the Redis at {where} ({what}): check the address, that Redis is running, and firewalls between"
    )


def _access_refused(error: Exception, text: str, where: object) -> AccessRefused | None:
    if isinstance(error, _NO_ACCESS) or "NOPERM" in codes(text):
        return AccessRefused(
            f"the Redis at {where} refuses these credentials ({text}): "
            "check user and password, and that the user may run scripts, INFO and the keys {hf:*"
        )
    if _unverified(error):
        return AccessRefused(
            f"the certificate of the Redis at {where} cannot be verified ({text}): name the authority that has signed "
            "it (ssl_ca_certs), and connect by a host name that it contains"
        )
    return None


def _why_not_now(error: Exception, text: str) -> str:
    """The reason, if the condition passes by itself or an operator ends it; "" = it is another error."""
    if isinstance(error, exceptions.OutOfMemoryError) or "OOM" in codes(text):
        return (
            "is out of memory and takes no new claims: raise maxmemory, or shorten window_s; what is claimed can still "
            "be finished (Redis 7 and later)"
        )
    if isinstance(error, _PASSING_TYPES) or codes(text) & _PASSING:
        return f"takes no calls now ({text})"
    if isinstance(error, exceptions.MaxConnectionsError):
        return (
            "is not asked, since all connections of the client are in use: give its pool a max_connections above the "
            "number of threads"
        )
    return ""


def _unverified(error: BaseException) -> bool:
    """Whether TLS has failed because of the server's certificate: redis-py has that error as a cause of its own."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ssl.SSLCertVerificationError):
            return True
        seen = seen.__cause__ or seen.__context__
    return False
