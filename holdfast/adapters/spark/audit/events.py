"""Reads lines of events as a data frame or as a stream, from files or from Kafka."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from holdfast.adapters.spark._pyspark import AnalysisException, F
from holdfast.errors import SettingError
from holdfast.tools.audit_report.judge.unread import NOTHING, RUN_OF_FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.adapters.spark._pyspark import Column, DataFrame, SparkSession

# A compressed file that was cut is read up to the cut; gaps in `seq` show the missing events.
_FILES = {"recursiveFileLookup": "true", "ignoreCorruptFiles": "true"}
# Events that Kafka deleted before they were read are gaps in `seq` too, and no reason to stop.
_KAFKA_STREAM = {"startingOffsets": "earliest", "failOnDataLoss": "false", "maxOffsetsPerTrigger": "50000"}


def read(spark: SparkSession, *places: str, options: Mapping[str, str] | None = None) -> DataFrame:
    """All lines that exist now, for `audit`: a column `value`, and a column `origin`, the run that the message's key or
    the file's name has, or "". An empty file gives one line that says so.

    Args:
        spark: the session.
        places: folders and files of JSON lines, plain or `.gz`; or one `kafka:<bootstrap servers>/<topic>`.
        options: options of the Kafka connector, such as `kafka.security.protocol`.

    Raises:
        SettingError: there is no such place, or the connector is missing.
    """
    if topic := _kafka(places):
        bounds = {"startingOffsets": "earliest", "endingOffsets": "latest"}
        reader = spark.read.format("kafka").options(**bounds, **_at(topic), **(options or {}))
        told = _loaded(reader.load, places)
        return told.select(_text("value"), F.coalesce(_text("key"), F.lit("")).alias("origin"))
    lines = _loaded(lambda: spark.read.options(**_FILES).text(list(places)), places)
    name = F.regexp_replace(F.input_file_name(), "^file:/+", "/")  # in URLs' spelling, as inputFiles() has it
    told = lines.where(F.length(F.trim("value")) > 0).select(_text("value"), name.alias("file"))
    there = [re.sub("^file:/+", "/", each) for each in lines.inputFiles()]
    silent = spark.createDataFrame([(NOTHING, each) for each in there], "value STRING, file STRING")
    silent = silent.join(told.select("file").distinct(), "file", "left_anti").select("value", "file")
    origin = F.regexp_extract("file", RUN_OF_FILE, 1).alias("origin")
    return told.unionByName(silent).select("value", origin)


def stream(spark: SparkSession, *places: str, options: Mapping[str, str] | None = None) -> DataFrame:
    """A stream of lines from the first one on, for `follow`: a column `value`.

    Args:
        spark: the session.
        places: one `kafka:<bootstrap servers>/<topic>`; or one folder, into which complete files are moved: each is
            read once.
        options: options of the reader: `maxOffsetsPerTrigger` (50,000), `maxFilesPerTrigger` (50),
            `kafka.security.protocol` and others.

    Raises:
        SettingError: there is no such place, or the connector is missing.
    """
    if topic := _kafka(places):
        reader = spark.readStream.format("kafka").options(**_KAFKA_STREAM, **_at(topic)).options(**(options or {}))
        return _loaded(reader.load, places).select(_text("value"))
    if len(places) > 1:
        raise SettingError("events", ", ".join(places), "a stream is of one folder, or of one topic")
    reader = spark.readStream.options(**_FILES, maxFilesPerTrigger="50").options(**(options or {}))
    return _loaded(lambda: reader.text(places[0]), places).select(_text("value"))


def _text(column: str) -> Column:
    """The column as valid UTF-8, which Python can decode."""
    return F.make_valid_utf8(F.col(column).cast("string")).alias(column)


def _kafka(places: Sequence[str]) -> tuple[str, str] | None:
    """(bootstrap servers, topic), if the places name a topic; else None."""
    if not any(each.startswith("kafka:") for each in places):
        if not places:
            raise SettingError("events", places, "name folders or files of events, or kafka:<bootstrap>/<topic>")
        return None
    servers, slash, topic = places[0].removeprefix("kafka:").rpartition("/")
    if len(places) > 1 or not (servers and slash and topic):
        raise SettingError("events", ", ".join(places), "give one kafka:<bootstrap servers>/<topic>, or files")
    return servers, topic


def _at(kafka: tuple[str, str]) -> dict[str, str]:
    return {"kafka.bootstrap.servers": kafka[0], "subscribe": kafka[1]}


def _loaded(load: Callable[[], DataFrame], places: Sequence[str]) -> DataFrame:
    try:
        return load()
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            raise SettingError("events", ", ".join(places), "no such file or folder") from error
        if "kafka" in str(places) and "DATA_SOURCE" in str(error.getCondition() or "KAFKA DATA_SOURCE"):
            remedy = (
                "Spark's Kafka connector is missing: start with --packages org.apache.spark:spark-sql-kafka-0-10_2.13"
            )
            raise SettingError("events", ", ".join(places), f"{remedy}:<Spark's version>") from error
        raise
