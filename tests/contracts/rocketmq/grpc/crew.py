"""Member processes of one story, and what their handlers did, read from a ledger that is not theirs."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tests.contracts.rocketmq.grpc.lab import LEASE_S, PATIENCE_S
from tests.contracts.rocketmq.grpc.member import MemberConfig
from tests.harness.group.ledger import Reader
from tests.harness.processes import end, spawn
from tests.harness.waiting import until

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterable

    from tests.contracts.rocketmq.grpc.lab import Field
    from tests.harness.group.ledger import Entry

_ROOT = Path(__file__).parents[4]
_LOOK_S = 0.05


class Member:
    """One process."""

    def __init__(self, config: MemberConfig, folder: Path) -> None:
        self.name, self.log, self.home = config.name, folder / f"{config.name}.log", folder / f"{config.name}-home"
        self.home.mkdir()
        command = [sys.executable, "-m", "tests.contracts.rocketmq.grpc.member", "--json", config.to_json()]
        environment = os.environ | {"HOME": str(self.home)}
        self.process: subprocess.Popen[bytes] = spawn(command, self.log, cwd=_ROOT, environment=environment)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def leave(self) -> None:
        """SIGTERM, and wait for its end, which is a good one."""
        self.signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE_S) == 0, self.log.read_text()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Crew:
    """The end of the block ends them all."""

    def __init__(self, field: Field) -> None:
        self.field = field
        self._folder = field.lab.folder / field.group
        self._folder.mkdir()
        self._ledger = self._folder / "ledger"
        self._reader = Reader(self._ledger)
        self.members: list[Member] = []
        self.fed: list[str] = []

    def join(self, name: str, *, claims: bool = True, **given: Any) -> Member:
        config = MemberConfig(
            name=name,
            endpoints=self.field.lab.endpoints,
            group=self.field.group,
            topic=self.field.topic,
            redis_url=self.field.lab.redis_url,
            namespace=self.field.group if claims else "",
            ledger=str(self._ledger),
            **{"invisible_s": LEASE_S} | given,
        )
        self.members.append(Member(config, self._folder))
        return self.members[-1]

    # ---- what the handlers did
    def entries(self, what: str) -> list[Entry]:
        return [entry for entry in self._reader.read() if entry.what == what]

    def of(self, member: Member, what: str) -> list[str]:
        return [entry.key for entry in self.entries(what) if entry.member == member.name]

    def in_hand(self, member: Member) -> set[str]:
        """What it has started and not ended."""
        return set(self.of(member, "start")) - set(self.of(member, "end"))

    @property
    def twice(self) -> set[str]:
        """What was started more than once."""
        times = Counter(entry.key for entry in self.entries("start"))
        return {key for key, count in times.items() if count > 1}

    def wait(self, over: Callable[[], object]) -> None:
        until(over, lambda: [member.log.read_text() for member in self.members], patience_s=PATIENCE_S)

    def feed(self, over: Callable[[], object]) -> None:
        """Send messages until then, never more than 300 that are not handled."""

        def fed() -> bool:
            if over():
                return True
            if len(self.fed) - len(self.entries("end")) < 200:
                values = [f"fed{number}" for number in range(len(self.fed), len(self.fed) + 100)]
                self.field.fill(*values)
                self.fed += values
            return False

        self.wait(fed)

    def wait_for(self, values: Iterable[str]) -> None:
        """Until all of these have ended somewhere."""
        wanted = set(values)
        self.wait(lambda: wanted <= {entry.key for entry in self.entries("end")})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members:
            end(member.process, 5.0)
