"""Stories whose members tell what they do, and one audit of all that they told."""

from __future__ import annotations

from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from holdfast.adapters.cli import main
from holdfast.tools.audit_report import tables as t
from tests.harness.group.agreement import Account, disagreements

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from tests.harness.group.config import Kind
    from tests.harness.group.outcome import Outcome
    from tests.harness.group.story import Story

#: rocketmq-client-python's own consumer has nobody who tells.
TELL: tuple[Kind, ...] = ("holdfast", "loop", "careful", "default")
_COMPARED = (t.SUMMARY, t.MEMBERS, t.COVERAGE, t.DUPLICATES, t.GAPS)


class Audited:
    """Events of many stories in one folder, and what their ledgers have."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events = folder / "events"
        self.tables = folder / "tables"
        self.accounts: list[Account] = []

    def telling(self, story: Story) -> Story:
        """The same, its members telling."""
        return replace(story, config={**story.config, "audit": str(self.events)})

    def add(self, outcome: Outcome) -> Account:
        """What the ledger has; what more there is of the outcome is not kept."""
        self.accounts.append(Account.of(outcome))
        return self.accounts[-1]

    def judge(self) -> dict[str, list[str]]:
        """Group -> where audit and ledger do not say the same. Leaves the audit's tables and its page in the folder. By
        the command that users have."""
        told = ["audit", str(self.events), "--output", str(self.tables), "--html", str(self.folder / "audit.html")]
        with redirect_stdout(StringIO()):
            code = main(told)
        assert code in (0, 1, 4), f"holdfast audit ended with {code}"
        rows: Mapping[str, Iterable[Mapping[str, Any]]] = {
            each.name: pq.read_table(self.tables / each.name).to_pylist() for each in _COMPARED
        }
        return {account.group: disagreements(account, rows) for account in self.accounts}
