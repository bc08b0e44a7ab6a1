"""A Spark that is quick enough for tests."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
from pyspark.sql import SparkSession

from tests.harness.processes import ServerFailed

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Spark's connectors: what `make setup` fetches, or where a variable says that they are.
SPARK_LIB = Path(os.environ.get("HOLDFAST_SPARK_LIB", Path(__file__).parents[2] / ".servers" / "spark" / "lib"))

CONF = {
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    # Seconds of a JVM's life: compiling them well costs more than it gains.
    # One compiler alone has room for 48 MB of code, which eight queries fill.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC",
    "spark.sql.session.timeZone": "UTC",
}
#: Other versions are run without connectors and without Delta: `make compat`.
_JARS_ARE_FOR = "4.2.0"
_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Delta's log is a table as well, of 50 partitions.
    "spark.databricks.delta.snapshotPartitions": "1",
}


#: For a session that lives for a batch or two: compiling their plans takes half of the first one's time.
SHORT_LIFE = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


def local_session(warehouse: Path, conf: Mapping[str, str] | None = None, *, connectors: bool = True) -> SparkSession:
    """One JVM, two tasks at a time. Stop it.

    Args:
        warehouse: its folder.
        conf: wins over what is usual here.
        connectors: whether it has Kafka's and Delta: each executor gets their jars of its own.

    Raises:
        ServerFailed: the connectors are not there.
    """
    fits = connectors and pyspark.__version__ == _JARS_ARE_FOR
    jars = sorted(map(str, SPARK_LIB.glob("*.jar"))) if fits else []
    if fits and not jars:
        raise ServerFailed(f"no jars in {SPARK_LIB}: run `make setup` (it needs Maven)")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.master("local[2]").appName("holdfast")
    for name, value in {**CONF, **(_DELTA if fits else {}), **(conf or {})}.items():
        builder = builder.config(name, value)
    builder = builder.config("spark.jars", ",".join(jars))
    session = builder.config("spark.sql.warehouse.dir", str(warehouse)).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
