"""Member processes of one story, and what their handlers did, read from a ledger that is not theirs."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tests.contracts.kafka.share.member import MemberConfig
from tests.harness.group.ledger import Reader
from tests.harness.processes import end, spawn
from tests.harness.waiting import until

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterable

    from tests.contracts.kafka.share.lab import Field
    from tests.harness.group.ledger import Entry

_ROOT = Path(__file__).parents[4]
_PATIENCE_S = 240.0


class Member:
    """One process."""

    def __init__(self, config: MemberConfig, folder: Path) -> None:
        self.name, self.workers, self.log = config.name, config.workers, folder / f"{config.name}.log"
        command = [sys.executable, "-m", "tests.contracts.kafka.share.member", "--json", config.to_json()]
        self.process: subprocess.Popen[bytes] = spawn(command, self.log, cwd=_ROOT, environment=dict(os.environ))

    def leave(self) -> None:
        """SIGTERM, and wait for its end, which is a good one."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(_PATIENCE_S) == 0, self.log.read_text()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        self.process.send_signal(signal.SIGCONT)


class Crew:
    """The end of the block ends them all."""

    def __init__(self, field: Field, redis_url: str, folder: Path) -> None:
        self.field, self._redis_url, self._folder = field, redis_url, folder
        self._ledger = folder / "ledger"
        self._reader = Reader(self._ledger)
        self.members: list[Member] = []
        self.fed: list[str] = []

    def join(self, name: str, work_s: float = 0.02) -> Member:
        config = MemberConfig(
            name=name,
            bootstrap=self.field.kafka.bootstrap,
            group=self.field.group,
            topic=self.field.topic,
            letters=self.field.letters,
            redis_url=self._redis_url,
            ledger=str(self._ledger),
            work_s=work_s,
        )
        self.members.append(Member(config, self._folder))
        return self.members[-1]

    def feed(self, count: int, *, batch: int = 1) -> None:
        """Send so many more."""
        values = [f"x{number}" for number in range(len(self.fed), len(self.fed) + count)]
        self.field.fill(values, batch=batch)
        self.fed += values

    def feed_until(self, over: Callable[[], object]) -> None:
        """Send until then, never more than 100 that are not handled."""

        def fed() -> bool | None:
            if over():
                return True
            if len(self.fed) - len(self.entries("end")) < 60:
                self.feed(40)
            return None

        self.wait(fed)

    # ---- what the handlers did
    def entries(self, what: str) -> list[Entry]:
        return [entry for entry in self._reader.read() if entry.what == what]

    def of(self, member: Member, what: str) -> list[str]:
        return [entry.key for entry in self.entries(what) if entry.member == member.name]

    def in_hand(self, member: Member) -> set[str]:
        """What it has started, and whose end the store may not know: what runs, and the last of each worker."""
        running = set(self.of(member, "start")) - set(self.of(member, "end"))
        return running | set(self.of(member, "end")[-2 * member.workers :])

    @property
    def twice(self) -> set[str]:
        """What was started more than once."""
        times = Counter(entry.key for entry in self.entries("start"))
        return {key for key, count in times.items() if count > 1}

    def wait(self, over: Callable[[], object]) -> None:
        until(
            lambda: bool(over()) or None,
            lambda: [member.log.read_text()[-2000:] for member in self.members],
            patience_s=_PATIENCE_S,
        )

    def wait_for_all(self, but: Iterable[str] = ()) -> None:
        """Until all that was sent has ended somewhere."""
        wanted = set(self.fed) - set(but)
        self.wait(lambda: wanted <= {entry.key for entry in self.entries("end")})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members:
            end(member.process, 5.0)
