"""The brokers' own Java classes, asked line by line: what a Python implementation of them is held against."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tests.harness.processes import ServerFailed, die_with_parent

if TYPE_CHECKING:
    from collections.abc import Sequence

_HERE = Path(__file__).parent
_SERVERS = Path(__file__).parents[2] / ".servers"
#: The jars of a broker: what `make setup` fetches, or where a variable says that they are.
KAFKA_LIB = Path(os.environ.get("HOLDFAST_KAFKA_LIB", _SERVERS / "kafka" / "lib"))
ROCKETMQ_LIB = Path(os.environ.get("HOLDFAST_ROCKETMQ_LIB", _SERVERS / "rocketmq" / "lib"))

# As for the brokers: quick to start, and next to nothing beside the tests. A benchmark gives its own.
_QUICK = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class Oracle:
    """A process that runs one Java file of this folder from its source, and answers each line with one line.

    A line that begins with `error` is an answer too: `ask` raises it. What the file writes to standard error, and what
    its compiler says, is shown with the failure.

    Args:
        source: the file's name in this folder.
        lib: the folder of jars that it needs.
        options: of the JVM.

    Raises:
        ServerFailed: it does not start, or has died.
    """

    def __init__(self, source: str, lib: Path, *, options: Sequence[str] = _QUICK) -> None:
        java = shutil.which("java")
        if java is None or not any(lib.glob("*.jar")):
            missing = "no java on PATH" if java is None else f"no jars in {lib}"
            msg = f"{missing}: run `make setup` (it needs a JDK, 17 or later, and Maven)"
            raise ServerFailed(msg)
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed in close()
        self._process = subprocess.Popen(
            [java, *options, "-cp", f"{lib}/*", str(_HERE / source)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            encoding="utf-8",
            start_new_session=True,
            preexec_fn=die_with_parent,
        )

    def ask(self, line: str) -> str:
        """Send a line, wait for its answer; as long as that takes, which the test's own timeout bounds.

        Raises:
            ServerFailed: it has died.
            ValueError: it answered with an error.
        """
        return self._read(line, self._answer(line))

    def close(self) -> None:
        """End the process. Idempotent."""
        self._process.kill()
        self._process.wait()
        for each in (self._process.stdin, self._process.stdout, self._said):
            if each is not None:
                each.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _answer(self, line: str) -> str:
        """As it comes, an error too."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(f"{line}\n")
            process.stdin.flush()
        except BrokenPipeError:
            raise self._failed() from None
        answer = process.stdout.readline()
        if not answer.endswith("\n"):
            raise self._failed()
        return answer.removesuffix("\n")

    def _read(self, line: str, answer: str) -> str:
        if answer.startswith("error"):
            msg = f"asked {line!r}, the oracle says: {answer}"
            raise ValueError(msg)
        return answer

    def _failed(self) -> ServerFailed:
        code = self._process.wait()
        self._said.seek(0)
        return ServerFailed(f"the oracle ended with {code}:\n{self._said.read()[-4_000:]}")
