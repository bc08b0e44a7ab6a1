"""What an error of redis-py means for a caller: no answer now, or a no. Decided by types and the protocol's codes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from redis import exceptions

from holdfast.errors import StoreError, StoreRefused, StoreUnavailable

if TYPE_CHECKING:
    from redis.exceptions import RedisError

_NO_ACCESS = (exceptions.AuthenticationError, exceptions.AuthorizationError, exceptions.NoPermissionError)
_NO_ANSWER = (exceptions.ConnectionError, exceptions.TimeoutError, exceptions.InvalidResponse)
#: Error codes (the first word of an error reply) of what passes by itself or by an operator's hand.
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
        "UNKILLABLE",
    }
)
_PASSING_TYPES = (
    exceptions.BusyLoadingError,
    exceptions.ReadOnlyError,
    exceptions.MasterDownError,
    exceptions.ClusterDownError,
    exceptions.TryAgainError,
)


def codes(text: str) -> set[str]:
    """The code of an error reply: its first word. Redis 6.2 hides the code of an error inside a script in the middle of
    a text of its own ("Error running script (call to f_...): @user_script:1: -READONLY You can't ...")."""
    inner = re.findall(r": -([A-Z]+) ", text) if text.startswith(("Error running script", "ERR Error running")) else []
    return {text.split(" ", 1)[0], *inner}


def store_error(error: RedisError, where: str) -> StoreError:
    """The error to raise `from` this one.

    Args:
        error: of redis-py. Its texts name hosts and commands, never a password: it does not put arguments into them.
        where: host, port and database.
    """
    text = " ".join(str(error).split())[:200].rstrip(".")
    if isinstance(error, _NO_ACCESS):
        return StoreRefused(
            f"the Redis at {where} refuses these credentials ({text}): "
            "check user and password, and that the user may run scripts, INFO and the keys {hf:*"
        )
    if isinstance(error, exceptions.OutOfMemoryError) or "OOM" in codes(text):
        return StoreUnavailable(
            f"the Redis at {where} is out of memory and takes no new claims: raise maxmemory, or shorten window_s; "
            "what is claimed can still be finished (Redis 7 and later)"
        )
    if isinstance(error, _PASSING_TYPES) or codes(text) & _PASSING:
        return StoreUnavailable(f"the Redis at {where} takes no calls now ({text})")
    if isinstance(error, _NO_ANSWER):
        return StoreUnavailable(
            f"no answer from the Redis at {where} ({text}): check the address, that it runs, and what is between"
        )
    return StoreRefused(f"the Redis at {where} refuses a call ({text})")
