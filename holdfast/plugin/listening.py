"""Checks whether a server listens at the brokers' addresses: clients retry, and report the cause only at the end."""

from __future__ import annotations

import logging
import re
import socket

from holdfast.errors import SourceUnavailable
from holdfast.timing import SYSTEM_CLOCK, Deadline

_log = logging.getLogger("holdfast")
#: The time that a starting broker may need until it listens.
PATIENCE_S = 5.0
_CONNECT_S = 1.0
_AGAIN_S = 0.2
_ADDRESS = re.compile(r"(?:\w+://)?(?:\[(?P<six>[^\]]+)\]|(?P<host>[^:/\s]+))(?::(?P<port>\d{1,5}))?")


def await_listener(addresses: str, default_port: int | None, timeout_s: float) -> None:
    """Return once a server accepts a connection, or if that cannot be decided here; the client finds out then.

    Args:
        addresses: the client's setting, with commas or semicolons.
        default_port: for addresses without a port; None: the client requires one, and has its own error.
        timeout_s: the command's time; at most PATIENCE_S of it are used.

    Raises:
        SourceUnavailable: all servers refuse, or have unknown host names. The cause is logged at once.
    """
    patience_s = min(PATIENCE_S, timeout_s)
    deadline, logged = Deadline(patience_s), False
    while (why := refusal(addresses, default_port)) is not None:
        if deadline.passed:
            raise unreached(why)
        if not logged:
            _log.warning("%s; trying for another %g s", why, patience_s)
            logged = True
        SYSTEM_CLOCK.sleep(deadline.left_s(_AGAIN_S))


def refusal(addresses: str, default_port: int | None) -> str | None:
    """Why no server accepts a connection, in words; None: one does, or it cannot be decided. A server without an answer
    takes a second."""
    places = [_ADDRESS.fullmatch(each.strip()) for each in re.split("[,;]", addresses) if each.strip()]
    causes = []
    for place in places:
        port = None if place is None else place["port"] or default_port
        cause = None if place is None or port is None else _refusal(place["six"] or place["host"], int(port))
        if cause is None:
            return None
        causes.append(cause)
    return "; ".join(causes) or None


def unreached(why: str) -> SourceUnavailable:
    """The error for this reason."""
    return SourceUnavailable(f"{why}: check the address, and that the server runs")


def _refusal(host: str, port: int) -> str | None:
    try:
        socket.create_connection((host, port), _CONNECT_S).close()
    except ConnectionRefusedError:
        return f"{host}:{port} refuses connections: nothing listens there"
    except socket.gaierror as error:
        return f"{host} is no host that is known here ({error.strerror})"
    except (OSError, OverflowError):
        return None
    return None
