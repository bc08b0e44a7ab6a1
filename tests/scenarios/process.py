"""A member's process."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.servers.processes import spawn

if TYPE_CHECKING:
    import signal

    from tests.scenarios.config import Kind, MemberConfig

_ROOT = Path(__file__).parents[2]
_MODULES: dict[Kind, str] = {
    "holdfast": "tests.scenarios.member",
    "careful": "tests.scenarios.plain_member",
    "default": "tests.scenarios.plain_member",
}


class Member:
    """One process. A death that the scenario did not ask for fails it."""

    def __init__(self, config: MemberConfig, log: Path) -> None:
        self.config, self.log = config, log
        self.name = config.name
        self.started_ns = time.monotonic_ns()
        self.may_end = False
        command = [sys.executable, "-m", _MODULES[config.kind], "--json", config.to_json()]
        self.process = spawn(command, log, cwd=_ROOT)

    @property
    def pid(self) -> int:
        return self.process.pid

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)
