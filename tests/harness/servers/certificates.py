"""A certificate authority and a server's certificate for loopback, made by openssl in a folder of their own."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from typing import TYPE_CHECKING

from tests.harness.processes import ServerFailed

if TYPE_CHECKING:
    from pathlib import Path

_KEY = ("-x509", "-days", "30", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Certificates:
    """Raises ServerFailed: there is no openssl, or it cannot."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._make("ca", *_with("keyUsage=critical,keyCertSign"), "-subj", "/CN=holdfast tests")
        self.renew()

    def renew(self) -> None:
        """Another certificate and key for the server, by the same authority."""
        signed = ("-CA", str(self.ca_file), "-CAkey", str(self._folder / "ca.key"))
        names = _with("subjectAltName=IP:127.0.0.1,DNS:localhost", "keyUsage=critical,digitalSignature,keyCertSign")
        self._make("server", *signed, *names, "-subj", "/CN=localhost")
        both = (self._folder / "server.key").read_text() + (self._folder / "server.pem").read_text()
        self.server_file.write_text(both)

    @property
    def server_file(self) -> Path:
        """The server's key and certificate, PEM."""
        return self._folder / "server-both.pem"

    @property
    def ca_file(self) -> Path:
        """Whom to trust, PEM."""
        return self._folder / "ca.pem"

    def client(self) -> ssl.SSLContext:
        """Trusts this authority alone, and looks at names."""
        return ssl.create_default_context(cafile=str(self.ca_file))

    def java(self) -> list[str]:
        """What makes a RocketMQ server speak TLS alone, with others and with its own kind (TlsSystemConfig)."""
        values = {
            "tls.enable": "true",
            "tls.server.mode": "enforcing",
            "tls.test.mode.enable": "false",
            "tls.server.keyPath": self._folder / "server.key",
            "tls.server.certPath": self._folder / "server.pem",
            "tls.client.authServer": "true",
            "tls.client.trustCertPath": self.ca_file,
        }
        return [f"-D{name}={value}" for name, value in values.items()]

    def redis(self, port: int) -> list[str]:
        """What makes a Redis speak TLS alone, at that port."""
        return ["--port", "0", *self.redis_too(port)]

    def redis_too(self, port: int) -> list[str]:
        """What makes a Redis speak TLS at that port as well."""
        return [
            *("--tls-port", str(port), "--tls-auth-clients", "no"),
            *("--tls-cert-file", str(self._folder / "server.pem"), "--tls-key-file", str(self._folder / "server.key")),
            *("--tls-ca-cert-file", str(self.ca_file)),
        ]

    def _make(self, name: str, *how: str) -> None:
        openssl = shutil.which("openssl")
        if openssl is None:
            msg = "no openssl on PATH: it makes the certificates of servers that speak TLS"
            raise ServerFailed(msg)
        files = ("-keyout", str(self._folder / f"{name}.key"), "-out", str(self._folder / f"{name}.pem"))
        ran = subprocess.run([openssl, "req", *_KEY, *how, *files], capture_output=True, text=True, check=False)
        if ran.returncode:
            msg = f"openssl cannot make {name}.pem: {ran.stderr}"
            raise ServerFailed(msg)


def _with(*extensions: str) -> list[str]:
    return [each for extension in extensions for each in ("-addext", extension)]
