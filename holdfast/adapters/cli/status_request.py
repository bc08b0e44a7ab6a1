"""One question to a process: its apps, by its HTTP endpoint."""

from __future__ import annotations

import json
import os
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from holdfast.errors import HoldfastError, SettingError
from holdfast.plugin.overrides import RUN_PREFIX
from holdfast.plugin.secret_names import MASK

_PORT = 9464
TOKEN = f"{RUN_PREFIX}TOKEN"
App = dict[str, Any]


class NoAnswer(HoldfastError):
    """Nobody answers, or who answers is not holdfast. `why`: in a few words."""

    retriable = True

    def __init__(self, message: str, why: str) -> None:
        super().__init__(message)
        self.why = why


class Request:
    """A question to one process.

    Args:
        said: the address: host, host:port, or a URL.
        token: the endpoint's; None: what the environment has.
        timeout_s: for the answer.

    Raises:
        SettingError: this is no address.
    """

    def __init__(self, said: str, token: str | None, timeout_s: float) -> None:
        try:
            parts = urlsplit(said if "://" in said else f"http://{said}")
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = parts = None
        if parts is None or not host or parts.scheme not in ("http", "https"):
            raise SettingError("url", said, "give http://HOST:PORT, where the process's serve(...) listens")
        self._kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._host, self._port = host, port or (None if "://" in said else _PORT)
        self._path = f"{parts.path.rstrip('/').removesuffix('/status')}/status"
        self._token = token or os.environ.get(TOKEN, "").strip()
        self._timeout_s = timeout_s
        #: host:port, for people.
        self.where = f"{host}:{self._port or self._kind.default_port}"

    def ask(self) -> list[App]:
        """The apps of the process. Raises NoAnswer; SettingError: the token is missing, or another one."""
        asked, where = self._kind(self._host, self._port, timeout=self._timeout_s), self.where
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        try:
            asked.request("GET", self._path, headers=headers)
            with asked.getresponse() as answer:
                wants_token = answer.status == HTTPStatus.UNAUTHORIZED
                found = {"apps": []} if wants_token else json.loads(answer.read())
            apps = [{**each, "partitions": list(each["partitions"])} for each in found["apps"]]
        except OSError as error:
            why = "no answer in time" if isinstance(error, TimeoutError) else error.strerror or str(error)
            raise NoAnswer(
                f"no process answers at {where} ({why}): check the address, that the process runs, and that it calls "
                "holdfast.adapters.watching.serve(app, port=...)",
                why,
            ) from error
        except (HTTPException, ValueError, TypeError, LookupError) as error:
            raise NoAnswer(
                f"the server at {where} is not holdfast's endpoint: name the port that serve(app, port=...) listens at",
                "not holdfast's endpoint",
            ) from error
        finally:
            asked.close()
        if wants_token:
            why = f"{where} asks for its token: give it, or set {TOKEN} in the environment"
            raise SettingError("token", MASK if self._token else None, why)
        return apps
