"""Access: the page and the figures may ask for a token. Probes and metrics are open, as their readers expect."""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from http import HTTPStatus
from ipaddress import ip_address
from typing import NamedTuple

from holdfast.errors import SettingError
from holdfast.plugin.secret_names import MASK

_RULE = "use 16 to 200 letters, digits and -._~+/=, for example of `openssl rand -hex 16`"
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{16,200}")
#: A browser asks its user for a password then, and sends it with each request of the page as well.
_ASKS = (("WWW-Authenticate", 'Basic realm="holdfast (any name; the token is the password)"'),)
_CLOSED = (
    "This endpoint listens at an address that others may reach, and has no token: give serve(..., token=...), or "
    "HOLDFAST_RUN_TOKEN to `holdfast run`, and this page asks for it.\n"
)
_WRONG = "Give the token: as the password of any name, or as `Authorization: Bearer TOKEN`.\n"


class Refusal(NamedTuple):
    """The answer to a request that may not read a path."""

    code: HTTPStatus
    why: str
    headers: tuple[tuple[str, str], ...] = ()


class Access:
    """The rules by which a path may be read. Any thread.

    Without a token the page is for the loopback alone; the figures are as open as the port, for `holdfast status`.

    Args:
        token: what the page and the figures ask for; None = there is none.
        address: the IP address that the endpoint listens at.
    """

    def __init__(self, token: str | None, address: str) -> None:
        self._token = None if token is None else token.encode()
        self._is_loopback = ip_address(address).is_loopback

    def refuses(self, path: str, authorization: str) -> Refusal | None:
        """Return why a request may not read a path; None = it may.

        Args:
            path: of the request, without a query.
            authorization: the header of that name; empty = none.
        """
        if self._token is None:
            return Refusal(HTTPStatus.FORBIDDEN, _CLOSED) if path == "/" and not self._is_loopback else None
        if path not in ("/", "/status", "/group") or hmac.compare_digest(_said(authorization), self._token):
            return None
        return Refusal(HTTPStatus.UNAUTHORIZED, _WRONG, _ASKS)


def check_token(token: str | None) -> None:
    """Check that a token is long enough, and can be sent in a header. None = there is none. Raises SettingError."""
    if token is not None and _TOKEN.fullmatch(token) is None:
        raise SettingError("token", MASK, _RULE)


def _said(authorization: str) -> bytes:
    """The token in a header: a bearer's, or the password of a browser's user. Empty = there is none."""
    kind, _, value = authorization.strip().partition(" ")
    if kind.lower() == "bearer":
        return value.strip().encode("utf-8", "replace")
    if kind.lower() == "basic":
        try:
            return base64.b64decode(value.strip(), validate=True).partition(b":")[2]
        except (binascii.Error, ValueError):
            return b""
    return b""
