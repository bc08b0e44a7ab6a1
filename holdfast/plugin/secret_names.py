"""Which settings are secrets, by their names, and what is shown in their place. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

MASK = "***"

# By parts of the name, not by a list: a property that a later client adds (`...client.secret`) is masked too. `.pem`
# takes in certificates, which are public: a page of base64 tells nobody anything. A Kerberos command, Java's jaas
# configuration, and the free text of sasl.oauthbearer.config may carry anything.
_SECRET = re.compile(
    r"pass(word|phrase)|secret|\.pem$|^sasl\.oauthbearer\.config$|kinit\.cmd$|^ssl_key$"
    r"|jaas\.config$|keystore\.key$|secret_?key|access_?key|security_?token",
    re.IGNORECASE,
)


def is_secret(name: str) -> bool:
    """Whether a setting's value must appear in no repr, log or message."""
    return _SECRET.search(name) is not None


def masked(conf: Mapping[str, object]) -> dict[str, object]:
    """The same with credentials replaced: fit for a repr, a log line, an error."""
    return {name: MASK if is_secret(name) else value for name, value in conf.items()}
