"""Two brokers that speak TLS alone and want signed requests; and what whoever may do all has to say to them."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from holdfast.adapters.rocketmq.remoting import Credentials, RemotingClient
from tests.harness.servers.certificates import Certificates
from tests.harness.servers.rocketmq import RocketMQServer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

USER, PASSWORD = "holdfast", "correct horse"
_AUTH = "org.apache.rocketmq.auth"
#: Authentication and authorisation of RocketMQ 5.3 and later.
_SETTINGS = {
    "authenticationEnabled": "true",
    "authenticationProvider": f"{_AUTH}.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": f"{_AUTH}.authentication.provider.LocalAuthenticationMetadataProvider",
    "initAuthenticationUser": json.dumps({"username": USER, "password": PASSWORD}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": USER, "secretKey": PASSWORD}),
    "authorizationEnabled": "true",
    "authorizationProvider": f"{_AUTH}.authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": f"{_AUTH}.authorization.provider.LocalAuthorizationMetadataProvider",
    # A slave lets nobody read from it otherwise, also while there is no master.
    "slaveReadEnable": "true",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The servers, and their certificates."""

    server: RocketMQServer
    certificates: Certificates

    @classmethod
    @contextmanager
    def started(cls, folder: Path) -> Iterator[Self]:
        """Until the end of the context."""
        certificates = Certificates(folder)
        with RocketMQServer(brokers=2, settings=_SETTINGS, certificates=certificates) as server:
            yield cls(server=server, certificates=certificates)

    @property
    def login(self) -> Mapping[str, Any]:
        """What a RocketMQSource is told besides."""
        return {"access_key": USER, "secret_key": PASSWORD, "tls": self.certificates.client()}

    def client(self, credentials: Credentials | None, client_id: str | None = None) -> RemotingClient:
        """Close it."""
        return RemotingClient(
            self.server.namesrv, credentials=credentials, client_id=client_id, tls=self.certificates.client()
        )
