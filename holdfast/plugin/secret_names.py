"""Recognises secret settings by their names, and masks their values. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from functools import lru_cache

from holdfast.printable import without_credentials

MASK = "***"

# Parts of the name decide, not a list: a property that a later client adds (`...client.secret`) is masked too. `.pem`
# includes certificates, which are public, but useless in a log. A Kerberos command, Java's jaas configuration and the
# free text of sasl.oauthbearer.config may have any secret in them. A schema registry's user.info is name:password.
_SECRET = re.compile(
    r"pass(word|phrase)|secret|\.pem$|^sasl\.oauthbearer\.config$|kinit\.cmd$|^ssl_key$"
    r"|jaas\.config$|keystore\.key$|secret_?key|access_?key|security_?token|auth\.user\.info$|auth\.token$",
    re.IGNORECASE,
)
#: Words that a misspelled part of a name may mean: no client knows `sasl.pasword`, but its value is a password.
_MEANT = ("password", "passphrase", "passwd", "pwd", "secret")
#: The similarity that counts: one letter too many, one missing, or two swapped.
_LIKE = 0.75
#: Words that are similar to these, but not meant so.
_OTHERS = frozenset({"secure"})


@lru_cache(maxsize=4096)
def is_secret(name: str) -> bool:
    """Whether a setting's value must not appear in a repr, log or message. Also for misspelled names."""
    if _SECRET.search(name) is not None:
        return True
    parts = (part for part in re.split(r"[^a-z]+", name.lower()) if part not in _OTHERS)
    return any(difflib.get_close_matches(part, _MEANT, 1, _LIKE) for part in parts)


def masked(conf: Mapping[str, object]) -> dict[str, object]:
    """The configuration with masked credentials, for a repr, a log line or an error."""
    return {name: shown(name, value) for name, value in conf.items()}


def shown(name: str, value: object) -> object:
    """A setting's value without secrets: masked as a whole, or without the credentials of a URL."""
    if is_secret(name):
        return MASK
    if isinstance(value, str):
        return without_credentials(value)
    if isinstance(value, Mapping):
        return masked(value)
    return value
