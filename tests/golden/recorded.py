"""What the brokers' own Java classes have answered, kept in tests/golden: `make test` asks those files instead of Java.

A question that nobody has recorded is asked of Java then and there, so a new test needs no new file at once; `make
oracles` records what all tests ask now, and `make test-all` asks Java everything and compares.
"""

from __future__ import annotations

import hashlib
import json
import lzma
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tests.golden.oracle import Oracle

if TYPE_CHECKING:
    from collections.abc import Callable

_GOLDEN = Path(__file__).parent
#: Recorded answers first; Java alone, and what is recorded has to be the same; Java alone, and its answers are kept.
Mode = Literal["recorded", "live", "record"]


class Recorded(Oracle):
    """An oracle with a memory. Java starts with the first question that needs it.

    Args:
        source: the Java file, by which its answers are kept.
        lib: the folder of jars that it needs.
        mode: see `Mode`.
        comparable: what of an answer has to be the same each time; None = an answer is never compared.

    Raises:
        ServerFailed: Java does not start, or has died.
    """

    def __init__(self, source: str, lib: Path, mode: Mode, comparable: Callable[[str], object] = str) -> None:
        self._source, self._lib, self._mode, self._comparable = source, lib, mode, comparable
        self._file = _GOLDEN / f"{Path(source).stem}.json.xz"
        self._kept: dict[str, str] = {}
        if mode != "record" and self._file.exists():
            self._kept = json.loads(lzma.decompress(self._file.read_bytes()))
        self._started = False

    def ask(self, line: str) -> str:
        """As of an `Oracle`."""
        key = hashlib.sha256(line.encode()).hexdigest()[:20]
        kept = self._kept.get(key)
        if self._mode == "recorded" and kept is not None:
            return self._read(line, kept)
        if not self._started:
            super().__init__(self._source, self._lib)
            self._started = True
        answer = self._answer(line)
        if self._mode == "record":
            self._kept[key] = answer
        elif kept is not None and self._comparable(kept) != self._comparable(answer):
            msg = f"Java answers otherwise than tests/golden has it: run `make oracles`, and see why\nasked {line}"
            raise AssertionError(msg)
        return self._read(line, answer)

    def close(self) -> None:
        """End Java, where it runs, and keep what was recorded."""
        if self._started:
            super().close()
            self._started = False
        if self._mode == "record":
            self._file.parent.mkdir(exist_ok=True)
            text = json.dumps(self._kept, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
            self._file.write_bytes(lzma.compress(text.encode(), preset=9))


def plan_of(answer: str) -> object:
    """Of an answer of Kafka's assignors what is no time."""
    return json.loads(answer)["plan"] if answer.startswith("{") else answer
