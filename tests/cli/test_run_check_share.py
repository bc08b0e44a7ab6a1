"""`holdfast run --check` of an app on a share group: what the broker grants, and whether handlers fit."""

from __future__ import annotations

import sys
import uuid
from typing import TYPE_CHECKING

import pytest

from tests.cli.bench import lines

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Here
    from tests.harness.servers.kafka import KafkaServer

APP = """
from holdfast import Holdfast, MemoryClaims, Settings
from holdfast.adapters.kafka import ShareSource

conf = {{"bootstrap.servers": {bootstrap!r}, "group.id": {name!r}}}
app = Holdfast(ShareSource(conf), claims=MemoryClaims(), settings=Settings(handler_timeout_s={timeout_s}))

@app.handler({topic!r}, name="bill", dead_letter={letters!r})
def bill(record): ...
"""


class TestCheck:
    @pytest.fixture(autouse=True)
    def _here(self, here: Here, kafka: KafkaServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.here, self.kafka, self.folder, self.name = here, kafka, tmp_path, f"shop_{uuid.uuid4().hex[:8]}"
        monkeypatch.setattr(sys, "path", [*sys.path])
        kafka.create_topic(self.name, 1)
        kafka.create_topic(f"{self.name}.dlq", 1)

    def checked(self, code: int, timeout_s: float = 10.0, topic: str = "") -> dict[str, tuple[str, str]]:
        """Check -> result and detail, the first of each."""
        module = f"app_{uuid.uuid4().hex}"
        text = APP.format(
            bootstrap=self.kafka.bootstrap,
            name=self.name,
            letters=f"{self.name}.dlq",
            timeout_s=timeout_s,
            topic=topic or self.name,
        )
        (self.folder / f"{module}.py").write_text(text)
        ran = self.here("run", f"{module}:app", "--app-dir", self.folder, "--check", "--json", code=code)
        return {each["check"]: (each["result"], each["detail"]) for each in reversed(lines(ran))}

    def test_it_tells_what_the_group_grants_and_where_a_new_one_begins(self) -> None:
        found = self.checked(code=4)  # by its warning
        assert found["broker"][0] == "ok"
        assert "locks a record for 30 s, and delivers it 5 times" in found["broker"][1]
        assert "share.auto.offset.reset=earliest" in found["configuration"][1]

    def test_a_handler_that_may_outlive_the_lock_fails_the_check(self) -> None:
        result, detail = self.checked(code=1, timeout_s=60)["configuration"]
        assert result == "error"
        assert "lengthen the lock" in detail

    def test_a_pattern_fails_the_check(self) -> None:
        result, detail = self.checked(code=1, topic="^shop_.*")["topic"]
        assert result == "error"
        assert "no patterns" in detail
