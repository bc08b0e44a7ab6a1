"""Where a query stands still, to be killed there."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from holdfast.adapters.spark import BatchReport, BatchWrite
    from holdfast.adapters.spark.values import Safe, Writer
    from holdfast.dedup.spark_batches import Attempt

#: In their order: nothing is claimed yet; claims are made and nothing is written; written and not finished; finished
#: and without a mark; all is done but Spark's commit. A sink without our help has two of them:
#: before its write, and after it.
PHASES = ("begun", "claimed", "written", "finished", "settled")
#: Not a phase: there is nothing left to read.
DRAINED = "drained"


class Gate:
    """A query's way through its phases, noted in FOLDER/passed; it stops at one of them until there is FOLDER/../go.

    Args:
        folder: of the query.
        phase: where it stops; any other word: nowhere.
        after: phases of that name that it lets pass before.
    """

    def __init__(self, folder: Path, phase: str, after: int = 0) -> None:
        self.folder = folder
        self._phase = phase
        self._after = after
        for old in (self.stands, self.go):
            old.unlink(missing_ok=True)

    @property
    def stands(self) -> Path:
        """Is there when the query stands, or has nothing left to read."""
        return self.folder / "stands"

    @property
    def go(self) -> Path:
        """Make it, and all queries beside this one go on."""
        return self.folder.parent / "go"

    def at(self, phase: str, batch: int) -> None:
        """Called by the query."""
        with (self.folder / "passed").open("a") as passed:
            passed.write(f"{phase} {batch}\n")
        if phase == self._phase:
            self._after -= 1
            if self._after < 0:
                self.stand(phase, batch)
                while not self.go.exists():
                    time.sleep(0.01)

    def stand(self, phase: str, batch: int) -> None:
        """Say so."""
        partial = self.folder / "stands.new"
        partial.write_text(f"{phase} {batch}")
        partial.rename(self.stands)


class GatedWriter:
    """A writer of ours, and where its sink stands still. `observe` is to be the sink's observer."""

    def __init__(self, writer: Writer, gate: Gate) -> None:
        self._writer = writer
        self._gate = gate
        self._begun = -1

    @property
    def safe(self) -> Safe:
        return self._writer.safe

    def finished(self, spark: SparkSession, batch: BatchWrite) -> bool:
        self._begun = batch.batch
        self._gate.at("begun", batch.batch)
        return self._writer.finished(spark, batch)

    def write(self, rows: DataFrame, batch: BatchWrite) -> None:
        self._gate.at("claimed", batch.batch)
        self._writer.write(rows, batch)
        self._gate.at("written", batch.batch)

    def confirm(self, spark: SparkSession, attempt: Attempt) -> None:
        if attempt.of.batch == self._begun:  # else it is of a former batch, or of a driver before
            self._gate.at("finished", attempt.of.batch)
        self._writer.confirm(spark, attempt)

    def observe(self, report: BatchReport) -> None:
        self._begun = -1
        self._gate.at("skipped" if report.finished_before else "settled", report.batch)
