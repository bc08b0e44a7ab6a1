"""`holdfast audit`: what consumers told of themselves, judged. As text, as JSON, and as a page."""

from __future__ import annotations

import argparse
import re
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.adapters.cli import options as shared
from holdfast.adapters.cli.arguments import parse_properties, text_of
from holdfast.adapters.cli.audit_output import tell
from holdfast.errors import SettingError
from holdfast.tools.audit_report.judge.reading import judged_files
from holdfast.tools.audit_report.judge.settings import AuditSettings
from holdfast.tools.audit_report.pages.build import audit_of
from holdfast.tools.audit_report.pages.page import page
from holdfast.tools.audit_report.pages.words import mood

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.adapters.cli.output import Output
    from holdfast.tools.audit_report.columns import Table
    from holdfast.tools.audit_report.pages.reading import Row, TableReader

_EXAMPLE = """\
  holdfast audit /var/log/holdfast --html audit.html
  holdfast audit kafka:localhost:9092/audit --output /lake/audit --group billing \\
      --spark spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0
  holdfast audit --tables /lake/audit --html audit.html
  holdfast audit kafka:localhost:9092/audit --output /lake/audit --follow /lake/audit.checkpoint   # what is new

Local files need nothing else. Topics and other file systems (kafka:..., s3a://...), --follow and --spark need Spark in
this process: pip install 'holdfast-mq[spark]', Java 17 or 21. --output and --tables need pyarrow, which is in the same
extra.
exit codes: 0 no record was lost, and none ran twice; 1 a record was lost, ran twice, or retention deleted it unread; 4
not all is known, because a process was killed, or events are missing or cannot be read; 2 a wrong command line or
setting, or Spark, Java or pyarrow is missing or fails; 3 as for all commands.
"""
#: Names of topics and of other file systems' files.
_ELSEWHERE = re.compile("kafka:|[A-Za-z][A-Za-z0-9+.-]*:/")
_CODES = {"good": 0, "bad": 1, "unsure": 4}


def add(commands: shared.Commands) -> None:
    """The command."""
    made = shared.command(
        commands, "audit", "find what consumers lost, repeated or stopped, from their events", _EXAMPLE
    )
    made.add_argument(
        "events", nargs="*", metavar="EVENTS", help="files, folders with them, or kafka:HOST:PORT,.../TOPIC"
    )
    made.add_argument(
        "--group", action="append", default=[], metavar="NAME", help="report on this group only; may be repeated"
    )
    made.add_argument(
        "--complete", action="store_true", help="the group had to consume everything: what is left over is lost"
    )
    made.add_argument("--html", metavar="FILE", help="write the report as one HTML file")
    made.add_argument("--output", metavar="FOLDER", help="write the tables there as Parquet, one folder each")
    made.add_argument(
        "--follow",
        metavar="FOLDER",
        help="read only events that are new since the last run, and add them to --output; FOLDER is Spark's checkpoint",
    )
    made.add_argument("--tables", metavar="FOLDER", help="report on these tables instead of events")
    spark = made.add_argument_group("Spark")
    spark.add_argument(
        "--spark",
        type=_setting,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="use Spark, also for local files, with this setting: spark.driver.memory=4g",
    )
    spark.add_argument(
        "--kafka-config", metavar="FILE", help="login properties of Kafka's Java client, as name=value lines"
    )
    made.set_defaults(run=run, changes=True)


def run(options: argparse.Namespace, output: Output) -> int:
    """Make the tables, or take those that are there, and tell. Raises HoldfastError."""
    if not options.events and not options.tables:
        raise SettingError("EVENTS", None, "name files or a topic with events, or a folder of tables with --tables")
    if options.tables and (options.events or options.output or options.complete or options.follow):
        remedy = "leave out EVENTS, --output, --follow and --complete: they are for making tables"
        raise SettingError("--tables", options.tables, remedy)
    if options.follow and (not options.output or options.complete):
        raise SettingError("--follow", options.follow, "add --output, where the rows go, and leave out --complete")
    with _tables(options, output) as tables:
        audit = audit_of(tables, options.group)
    if missing := set(options.group) - {each.group for each in audit.groups}:
        raise SettingError("--group", min(missing), "there are no events of this group")
    tell(audit, output)
    if options.html:
        _write(options.html, page(audit))
        output.note(f"the page: {Path(options.html).resolve()}")
    return _CODES[mood(audit)]


@contextmanager
def _tables(options: argparse.Namespace, output: Output) -> Iterator[TableReader]:
    """Judge the events, by the judge that they need, and give the tables."""
    if options.tables:
        yield _parquet(Path(options.tables))
    elif options.follow or options.spark or any(_ELSEWHERE.match(each) for each in options.events):
        with tempfile.TemporaryDirectory(prefix="holdfast-audit-") as passing:
            folder = Path(options.output or passing).resolve()
            _by_spark(options, output, folder)
            yield _parquet(folder)
    else:
        from holdfast.adapters.sqlite.tables import SqliteTables  # noqa: PLC0415 - not every Python has SQLite

        write = _writer() if options.output else None  # what is missing is said before the work
        with SqliteTables() as tables:
            with output.progress("judging the events"):
                tables.add(judged_files(options.events, AuditSettings(complete=options.complete)))
            if write is not None:
                write(Path(options.output).resolve(), tables.rows)
            yield tables


def _parquet(folder: Path) -> TableReader:
    from holdfast.adapters.parquet.tables import ParquetTables  # noqa: PLC0415 - pyarrow, where it is used

    return ParquetTables(folder)


def _writer() -> Callable[[Path, Callable[[Table], Iterator[Row]]], None]:
    from holdfast.adapters.parquet.writing import write_tables  # noqa: PLC0415 - as above

    return write_tables


def _by_spark(options: argparse.Namespace, output: Output, folder: Path) -> None:
    from holdfast.adapters.spark import audit  # noqa: PLC0415 - Spark, where it is used
    from holdfast.adapters.spark.session import local_spark  # noqa: PLC0415 - as above

    kafka = {} if options.kafka_config is None else _properties(options.kafka_config)
    output.note("starting Spark, which takes a while")
    with local_spark("holdfast audit", dict(options.spark)) as spark:
        if options.follow:
            lines, now = audit.stream(spark, *options.events, options=kafka), {"availableNow": True}
            query = audit.follow(lines, output=str(folder), checkpoint=options.follow, trigger=now)
            query.awaitTermination()
        else:
            events = audit.read(spark, *options.events, options=kafka)
            with audit.audit(spark, events, AuditSettings(complete=options.complete)) as found:
                found.write(str(folder))


def _properties(file: str) -> dict[str, str]:
    found = parse_properties(text_of("--kafka-config", file), file)
    return {f"kafka.{name}": str(value) for name, value in found.items()}


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.startswith("spark."):
        raise argparse.ArgumentTypeError(f"{text!r} is not a Spark setting: write it as spark.driver.memory=4g")
    return name, value


def _write(path: str, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise SettingError("--html", path, f"the file cannot be written ({error.strerror})") from None
