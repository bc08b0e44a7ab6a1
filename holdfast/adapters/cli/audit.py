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
from holdfast.plugin.audit_report.judge.reading import judged_files
from holdfast.plugin.audit_report.judge.settings import AuditSettings
from holdfast.plugin.audit_report.pages.build import audit_of
from holdfast.plugin.audit_report.pages.page import page
from holdfast.plugin.audit_report.pages.words import mood

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.adapters.cli.output import Output
    from holdfast.plugin.audit_report.columns import Table
    from holdfast.plugin.audit_report.pages.reading import Row, TableReader

_EXAMPLE = """\
  holdfast audit /var/log/holdfast --html audit.html
  holdfast audit kafka:localhost:9092/audit --output /lake/audit --group billing \\
      --spark spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0
  holdfast audit --tables /lake/audit --html audit.html
  holdfast audit kafka:localhost:9092/audit --output /lake/audit --follow /lake/audit.checkpoint   # what is new

Files of this machine are judged as they are. Topics and other file systems (kafka:..., s3a://...), --follow and --spark
need Spark, in this process: pip install 'holdfast[spark]', Java 17 or 21. --output and --tables need pyarrow, which is
in the same extra.
exit codes: 0 nothing is lost and nothing ran twice; 1 something is (or was deleted unread, by retention), or did; 4 not
all is known, since a process was killed, or events are missing or cannot be read; 2 a wrong command line or setting, or
Spark, Java or pyarrow is missing or fails; 3 as of all commands.
"""
#: Names of topics and of other file systems' files.
_ELSEWHERE = re.compile("kafka:|[A-Za-z][A-Za-z0-9+.-]*:/")
_CODES = {"good": 0, "bad": 1, "unsure": 4}


def add(commands: shared.Commands) -> None:
    """The command."""
    made = shared.command(
        commands, "audit", "judge what consumers told of their work: lost, repeated, stopped", _EXAMPLE
    )
    made.add_argument(
        "events", nargs="*", metavar="EVENTS", help="files, folders with them, or kafka:HOST:PORT,.../TOPIC"
    )
    made.add_argument(
        "--group", action="append", default=[], metavar="NAME", help="tell of this group alone; may be given again"
    )
    made.add_argument(
        "--complete", action="store_true", help="all that was sent had to be consumed: what is left over is lost"
    )
    made.add_argument("--html", metavar="FILE", help="write the report as a page that needs nothing else")
    made.add_argument("--output", metavar="FOLDER", help="keep the tables there, as Parquet: a folder each")
    made.add_argument(
        "--follow",
        metavar="FOLDER",
        help="read what is new since the last time, of which Spark's checkpoint there knows, and add it to --output",
    )
    made.add_argument("--tables", metavar="FOLDER", help="tell of the tables that are there, in the place of events")
    spark = made.add_argument_group("Spark")
    spark.add_argument(
        "--spark",
        type=_setting,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="such as spark.driver.memory=4g: let Spark judge, files too",
    )
    spark.add_argument(
        "--kafka-config", metavar="FILE", help="properties to log in with, name=value: those of Kafka's Java client"
    )
    made.set_defaults(run=run)


def run(options: argparse.Namespace, output: Output) -> int:
    """Make the tables, or take those that are there, and tell. Raises HoldfastError."""
    if not options.events and not options.tables:
        raise SettingError("EVENTS", None, "name files or a topic with events, or a folder with tables by --tables")
    if options.tables and (options.events or options.output or options.complete or options.follow):
        remedy = "EVENTS, --output, --follow and --complete are for tables to be made"
        raise SettingError("--tables", options.tables, remedy)
    if options.follow and (not options.output or options.complete):
        raise SettingError("--follow", options.follow, "it needs --output, where rows are added, and no --complete")
    with _tables(options, output) as tables:
        audit = audit_of(tables, options.group)
    if missing := set(options.group) - {each.group for each in audit.groups}:
        raise SettingError("--group", min(missing), "there is no event of that group")
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
    output.note("Spark starts, which takes a while")
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
        raise argparse.ArgumentTypeError(f"{text!r} is no setting of Spark: write it as spark.driver.memory=4g")
    return name, value


def _write(path: str, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise SettingError("--html", path, f"the file cannot be written ({error.strerror})") from None
