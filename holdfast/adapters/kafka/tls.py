"""The consumer's TLS properties as a context of Python's ssl, for requests that are sent without librdkafka."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from holdfast.adapters.kafka.properties import as_bool

if TYPE_CHECKING:
    from collections.abc import Mapping

# Python's ssl has no way to use these: a keystore, an engine, a key that is not in a file (we would have to write it).
_CANNOT = (
    "ssl.keystore.location",
    "ssl.key.pem",
    "ssl_key",
    "ssl.engine.location",
    "ssl.providers",
    "ssl.ca.certificate.stores",
)


class CannotSay(Exception):
    """Python's ssl has no way to do what the configuration asks; the message names the property."""


def uses_tls(conf: Mapping[str, object]) -> bool:
    """Whether the connections to brokers use TLS."""
    return str(conf.get("security.protocol", "plaintext")).strip().lower() in ("ssl", "sasl_ssl")


def context(conf: Mapping[str, object]) -> ssl.SSLContext:
    """Make the TLS context that librdkafka would make, in Python. Reads the configured files. Raises CannotSay,
    OSError."""
    for name in _CANNOT:
        if conf.get(name):
            raise CannotSay(f"{name} is known to librdkafka only")
    made = ssl.create_default_context()
    authorities, inline = conf.get("ssl.ca.location"), conf.get("ssl.ca.pem")
    if inline:
        made = ssl.create_default_context(cadata=str(inline))
    elif authorities and authorities != "probe":
        made = _trusting(str(authorities))
    if conf.get("ssl.certificate.location"):
        key, password = conf.get("ssl.key.location"), conf.get("ssl.key.password")
        made.load_cert_chain(
            str(conf["ssl.certificate.location"]),
            str(key) if key else None,
            # An empty password instead of none: without one, OpenSSL would ask at the terminal.
            lambda: str(password or ""),
        )
    if str(conf.get("ssl.endpoint.identification.algorithm", "https")).lower() == "none":
        made.check_hostname = False
    name = "enable.ssl.certificate.verification"
    if not as_bool(name, conf.get(name, True)):
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE  # the user's setting; no secret is sent over this connection
    return made


def _trusting(location: str) -> ssl.SSLContext:
    """A context that trusts `ssl.ca.location`, a file or a folder."""
    try:
        return ssl.create_default_context(cafile=location)
    except IsADirectoryError:
        return ssl.create_default_context(capath=location)
