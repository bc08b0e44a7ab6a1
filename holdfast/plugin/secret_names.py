"""Which settings are secrets, by their names, and what is shown in their place. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from functools import lru_cache

from holdfast.printable import without_credentials

MASK = "***"

# By parts of the name, not by a list: a property that a later client adds (`...client.secret`) is masked too. `.pem`
# takes in certificates, which are public: a page of base64 tells nobody anything. A Kerberos command, Java's jaas
# configuration, and the free text of sasl.oauthbearer.config may carry anything. A schema registry's user.info is
# name:password.
_SECRET = re.compile(
    r"pass(word|phrase)|secret|\.pem$|^sasl\.oauthbearer\.config$|kinit\.cmd$|^ssl_key$"
    r"|jaas\.config$|keystore\.key$|secret_?key|access_?key|security_?token|auth\.user\.info$|auth\.token$",
    re.IGNORECASE,
)
#: What a part of a name may have been meant to be: `sasl.pasword` is unknown to every client, and its value a password.
_MEANT = ("password", "passphrase", "passwd", "pwd", "secret")
#: How like one it has to be: one letter too many, one missing, two in the wrong order.
_LIKE = 0.75
#: As like, and a word of its own.
_OTHERS = frozenset({"secure"})


@lru_cache(maxsize=4096)
def is_secret(name: str) -> bool:
    """Whether a setting's value must appear in no repr, log or message. Also where the name is misspelled."""
    if _SECRET.search(name) is not None:
        return True
    parts = (part for part in re.split(r"[^a-z]+", name.lower()) if part not in _OTHERS)
    return any(difflib.get_close_matches(part, _MEANT, 1, _LIKE) for part in parts)


def masked(conf: Mapping[str, object]) -> dict[str, object]:
    """This configuration with credentials replaced: fit for a repr, a log line, an error."""
    return {name: shown(name, value) for name, value in conf.items()}


def shown(name: str, value: object) -> object:
    """A setting's value, without what is secret in it: all of it, or the credentials of a URL."""
    if is_secret(name):
        return MASK
    if isinstance(value, str):
        return without_credentials(value)
    if isinstance(value, Mapping):
        return masked(value)
    return value
