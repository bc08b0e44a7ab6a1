"""The signature of requests (AclClientRPCHook): HMAC-SHA1 over the fields' values, in the order of their names, and
the body."""

from __future__ import annotations

import base64
import hmac
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Mapping


def credentials_of(access_key: str | None, secret_key: str | None) -> Credentials | None:
    """Of both keys; None where they are not given. Raises SettingError: a key is empty."""
    if access_key is None or secret_key is None:
        return None
    return Credentials(access_key=access_key, secret_key=secret_key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Who we are. Neither key is ever shown.

    Raises:
        SettingError: a key is empty.
    """

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name in ("access_key", "secret_key"):
            if not getattr(self, name):
                raise SettingError(name, "", "both keys are needed, as the broker knows them; without ACL give none")

    def __repr__(self) -> str:
        return "Credentials(***)"

    def sign(self, fields: Mapping[str, str], body: bytes) -> dict[str, str]:
        """The fields with the signature among them. Any thread."""
        signed = {**fields, "AccessKey": self.access_key}
        if self.security_token is not None:
            signed["SecurityToken"] = self.security_token
        content = "".join(signed[name] for name in sorted(signed) if name != "Signature").encode() + body
        digest = hmac.digest(self.secret_key.encode(), content, "sha1")
        signed["Signature"] = base64.b64encode(digest).decode()
        return signed
