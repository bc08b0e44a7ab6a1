"""A member's process."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING

from tests.harness.forks import fork
from tests.harness.processes import spawn

if TYPE_CHECKING:
    import signal
    import subprocess

    from tests.harness.forks import Forked
    from tests.harness.group.config import Kind, MemberConfig

_ROOT = Path(__file__).parents[3]
_MODULES: dict[Kind, str] = {
    "holdfast": "tests.harness.group.member",
    "loop": "tests.harness.group.loop_member",
    "careful": "tests.harness.group.plain_member",
    "default": "tests.harness.group.plain_member",
    "push": "tests.harness.group.push_member",
}


def python_of(kind: Kind) -> str:
    """The interpreter for members of that kind: rocketmq-client-python has an environment of its own."""
    if kind != "push":
        return sys.executable
    return os.environ.get("HOLDFAST_ROCKETMQ_PYTHON", str(_ROOT / ".venv-rocketmq/bin/python"))


class Member:
    """One process. A death that the scenario did not ask for fails it."""

    def __init__(self, config: MemberConfig, log: Path) -> None:
        self.config, self.log = config, log
        self.name = config.name
        self.started_ns = time.monotonic_ns()
        self.may_end = False
        module, arguments = _MODULES[config.kind], ("--json", config.to_json())
        self.process: subprocess.Popen[bytes] | Forked
        if config.kind == "push":
            # The native client of RocketMQ writes logs under the user's home.
            environment = os.environ | {"HOME": str(log.parent)}
            command = [python_of(config.kind), "-m", module, *arguments]
            self.process = spawn(command, log, cwd=_ROOT, environment=environment)
            return
        with log.open("ab") as out:
            self.process = fork(module, *arguments, out=out.fileno(), err=out.fileno())

    @property
    def pid(self) -> int:
        return self.process.pid

    def probe(self, path: str) -> tuple[int, list[str]]:
        """Ask its endpoint, where its configuration names a file for it: the answer's code, and the reasons."""
        assert self.config.endpoint is not None
        with closing(HTTPConnection(Path(self.config.endpoint).read_text().removeprefix("http://"))) as asked:
            asked.request("GET", path)
            answer = asked.getresponse()
            return answer.status, json.loads(answer.read())["reasons"]

    @property
    def stopped(self) -> bool:
        """Whether SIGSTOP has taken effect (proc(5): the state follows the name in brackets)."""
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)
