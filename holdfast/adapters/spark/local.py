"""A Spark inside this process, for commands: quiet, with the session that is there where there is one."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.adapters.spark._pyspark import SPARK_ERRORS, SparkSession
from holdfast.adapters.spark.reasons import reason
from holdfast.adapters.spark.require import require_java
from holdfast.errors import ClientUnusable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.extraJavaOptions": f'-Dlog4j2.configurationFile="{Path(__file__).with_name("log4j2.properties")}"',
    # For one machine: 200 by default.
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


@contextmanager
def local_spark(name: str, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session on all cores of this machine. `conf` wins over what is usual here.

    One that runs already (inside spark-submit) is used as it is, and goes on afterwards.

    Raises:
        ClientUnusable: no Java that will do; or Spark has failed: what we said there, or its first line; the rest
            with `--debug`.
    """
    running = SparkSession.getActiveSession()
    try:
        if running is not None:
            yield running
            return
        require_java()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # its workers': "python3" by default
        builder = SparkSession.builder.appName(name).master("local[*]")
        for key, value in {**_CONF, **conf}.items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
        try:
            yield session
        finally:
            session.stop()
    except SPARK_ERRORS as error:
        first = reason(error) or next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise ClientUnusable(f"Spark has failed: {first} (--debug shows the rest)") from error
