"""What Spark needs and does not bring: a Java, asked for before a session starts, and its connector for Kafka."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

from holdfast.adapters.spark._pyspark import SPARK_ERRORS
from holdfast.errors import ClientUnusable

if TYPE_CHECKING:
    from holdfast.adapters.spark._pyspark import SparkSession

#: Spark 4 is compiled for 17. What was run: 17 and 21.
_OLDEST = 17
_PATIENCE_S = 60.0
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def require_java() -> int:
    """The major version of the Java that a classic session of this process would start, where it is one that will do.

    Call it before the session is built: the examples and `holdfast audit` do. A session that exists, or one of
    Spark Connect on another machine, needs no Java here.

    Raises:
        ClientUnusable: there is none, it does not run, or it is older than 17.
    """
    home = os.environ.get("JAVA_HOME")  # as Spark's own script looks for it (bin/spark-class)
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")  # noqa: PTH118 - a command's name
    remedy = "install Java 17 or 21 (Debian and Ubuntu: apt install openjdk-17-jre-headless), or point JAVA_HOME to it"
    if java is None:
        raise ClientUnusable(f"Spark needs Java, and there is no 'java' on PATH and no JAVA_HOME: {remedy}")
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_PATIENCE_S, check=True)  # noqa: S603 - the command that Spark runs
    except (OSError, subprocess.SubprocessError) as error:
        where = f"JAVA_HOME is {home}" if home else f"'java' on PATH is {java}"
        raise ClientUnusable(f"Spark needs Java, and {where}, which does not run ({error}): {remedy}") from error
    found = _VERSION.search(told.stderr + told.stdout)
    version = int(found[1]) if found else 0
    if version < _OLDEST:
        named = f"Java {version}" if version else "no Java that tells its version"
        raise ClientUnusable(f"Spark 4 needs Java 17 or later, and {java} is {named}: {remedy}")
    return version


def require_kafka(spark: SparkSession, *, format: str = "kafka") -> None:  # noqa: A002 - as Spark has it
    """Whether the session can read from Kafka and write to it. Asks no broker.

    Raises:
        ClientUnusable: its jars are not there.
    """
    reader = spark.read.format(format).option("kafka.bootstrap.servers", "localhost:1").option("subscribe", "any")
    try:
        _ = reader.load().schema
    except SPARK_ERRORS as error:
        raise ClientUnusable(
            f"Spark has no connector {format!r}: add org.apache.spark:spark-sql-kafka-0-10_2.13 in Spark's version "
            f"({spark.version}; where there is none, the last before it) to the conf spark.jars.packages before the "
            "session starts"
        ) from error
