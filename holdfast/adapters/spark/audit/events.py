"""Events as a data frame, from files or from Kafka; or their lines, as a stream.

The frame has what `holdfast/plugin/audit/schema.py` has, all kinds in one row, absent fields null; and `unreadable`:
this line is no event (the last one of a file may have been cut by a kill), or one of a later version. Such lines are
counted; whose they are is read as far as it can be, since of such a member nothing is known. So is a file without any
line. Kinds that are not known stay: they have a number like all others.
"""

from __future__ import annotations

import re
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from holdfast.adapters.spark._pyspark import AnalysisException, F
from holdfast.adapters.spark.audit.unread import GROUP, NOTHING, RUN, RUN_OF_FILE
from holdfast.errors import SettingError
from holdfast.plugin.audit.schema import KINDS, VERSION, Keyed, Place, Span, Stamp

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.adapters.spark._pyspark import Column, DataFrame, SparkSession

#: Of the classes' annotations.
_TYPES: dict[str, str | type[Any]] = {
    "str": "STRING",
    "int": "LONG",
    "float": "DOUBLE",
    "bool": "BOOLEAN",
    "Outcome": "STRING",
    "Mapping[str, int]": "MAP<STRING, LONG>",
    "Mapping[str, float]": "MAP<STRING, DOUBLE>",
    "Mapping[str, Any]": "MAP<STRING, STRING>",
    "Sequence[Span]": Span,
    "Sequence[Keyed]": Keyed,
    "Sequence[Place]": Place,
}


def _ddl(*kinds: type[Any]) -> str:
    """The fields of all of them, as columns."""
    columns = {each.name: _type(str(each.type).removesuffix(" | None")) for kind in kinds for each in fields(kind)}
    return ", ".join(f"`{name}` {of}" for name, of in columns.items())


def _type(annotation: str) -> str:
    found = _TYPES[annotation]
    return found if isinstance(found, str) else f"ARRAY<STRUCT<{_ddl(found)}>>"


#: All kinds in one, as DDL.
SCHEMA = f"v INT, kind STRING, {_ddl(Stamp, *KINDS.values())}"

_BROKEN = "__broken"
# A file that is cut in the middle of its compression ends where it is cut: holes in `seq` tell what is missing.
_FILES = {"recursiveFileLookup": "true", "ignoreCorruptFiles": "true"}
# What Kafka has deleted before it was read is a hole in `seq` like any other, and no reason to stop for good.
_KAFKA_STREAM = {"startingOffsets": "earliest", "failOnDataLoss": "false", "maxOffsetsPerTrigger": "50000"}


def parsed(lines: DataFrame) -> DataFrame:
    """Events of a column `value` of text: one JSON object each; `origin`, if it is there, is the run that lines come
    from. Of those that are no events `group` and `run` are what is known of them, and null."""
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _BROKEN}
    text = F.col("value").cast("string")
    origin = F.col("origin") if "origin" in lines.columns else F.lit(None).cast("string")
    event = F.from_json(text, f"{SCHEMA}, {_BROKEN} STRING", options)
    rows = _with_text(lines).select(event.alias("event"), text.alias("__text"), origin.alias("__origin"))
    rows = rows.select("event.*", "__text", "__origin")
    whole = [F.col(name).isNotNull() for name in ("v", "kind", "group", "member", "run", "seq", "at_ms")]
    readable = F.col(_BROKEN).isNull() & (F.col("v") <= VERSION)
    for each in whole:
        readable &= each
    rows = rows.withColumn("unreadable", ~F.coalesce(readable, F.lit(False)))
    said = {"group": _found(GROUP), "run": F.coalesce(_found(RUN), _some("__origin"))}
    for name, otherwise in said.items():
        rows = rows.withColumn(name, F.when(F.col("unreadable"), F.coalesce(name, otherwise)).otherwise(F.col(name)))
    return rows.drop(_BROKEN, "__text", "__origin")


def _with_text(lines: DataFrame) -> DataFrame:
    return lines.where(F.length(F.trim(F.col("value").cast("string"))) > 0)


def _found(pattern: str) -> Column:
    return _some(F.regexp_extract("__text", pattern, 1))


def _some(text: Column | str) -> Column:
    return F.nullif(F.col(text) if isinstance(text, str) else text, F.lit(""))


def read(spark: SparkSession, *places: str, options: Mapping[str, str] | None = None) -> DataFrame:
    """All events that are there now.

    Args:
        spark: the session.
        places: folders and files of JSON lines, plain or `.gz`; or one `kafka:<bootstrap servers>/<topic>`.
        options: for the Kafka connector, `kafka.security.protocol` and the like.

    Raises:
        SettingError: nothing is there, or the connector is missing.
    """
    if topic := _kafka(places):
        bounds = {"startingOffsets": "earliest", "endingOffsets": "latest"}
        reader = spark.read.format("kafka").options(**bounds, **_at(topic), **(options or {}))
        told = _loaded(reader.load, places)
        return parsed(told.select("value", F.col("key").cast("string").alias("origin")))
    lines = _loaded(lambda: spark.read.options(**_FILES).text(list(places)), places)
    name = F.regexp_replace(F.input_file_name(), "^file:/+", "/")  # in URLs' spelling, as inputFiles() has it
    told = _with_text(lines).select("value", name.alias("file"))
    there = [re.sub("^file:/+", "/", each) for each in lines.inputFiles()]
    silent = spark.createDataFrame([(NOTHING, each) for each in there], "value STRING, file STRING")
    silent = silent.join(told.select("file").distinct(), "file", "left_anti").select("value", "file")
    origin = F.regexp_extract("file", RUN_OF_FILE, 1)
    return parsed(told.unionByName(silent).withColumn("origin", origin))


def stream(spark: SparkSession, *places: str, options: Mapping[str, str] | None = None) -> DataFrame:
    """Lines as they come, from the first that is there: a column `value`, for `follow`.

    Args:
        spark: the session.
        places: one `kafka:<bootstrap servers>/<topic>`; or one folder, into which files are moved when they are whole:
            each is read once.
        options: for the reader: `maxOffsetsPerTrigger` (50,000), `maxFilesPerTrigger` (50), `kafka.security.protocol`
            and the like.

    Raises:
        SettingError: nothing is there, or the connector is missing.
    """
    if topic := _kafka(places):
        reader = spark.readStream.format("kafka").options(**_KAFKA_STREAM, **_at(topic)).options(**(options or {}))
        return _loaded(reader.load, places).select(F.col("value").cast("string").alias("value"))
    if len(places) > 1:
        raise SettingError("events", ", ".join(places), "a stream is of one folder, or of one topic")
    reader = spark.readStream.options(**_FILES, maxFilesPerTrigger="50").options(**(options or {}))
    return _loaded(lambda: reader.text(places[0]), places).select("value")


def _kafka(places: Sequence[str]) -> tuple[str, str] | None:
    """Bootstrap servers and topic, if that is what is meant."""
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
