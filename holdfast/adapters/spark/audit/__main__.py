"""`spark-submit` or `python -m holdfast.adapters.spark.audit EVENTS... --output FOLDER`: the tables of the audit.

EVENTS are folders and files, or `kafka:<bootstrap servers>/<topic>`. With `--follow CHECKPOINT` it goes on for ever,
and tells what is final as it comes. The session is Spark's own, with its own settings.
"""

from __future__ import annotations

import argparse
import os
import sys

from holdfast.adapters.spark._pyspark import PySparkException, SparkSession
from holdfast.adapters.spark.audit.events import stream
from holdfast.adapters.spark.audit.following import follow
from holdfast.adapters.spark.audit.job import audit
from holdfast.adapters.spark.session import require_java
from holdfast.adapters.spark.telling import reason
from holdfast.errors import ClientUnusable, HoldfastError
from holdfast.tools.audit_report.judge.settings import AuditSettings

#: Tasks of a stream, if the session has no setting. The number of the first batch stays, and a group is one task. With
#: Spark's default of 200, a batch takes a minute on a small machine.
_TASKS = 8
_SHUFFLE = "spark.sql.shuffle.partitions"
#: If one of these is set, Java runs already (spark-submit), or on another machine (Spark Connect).
_STARTED = frozenset(("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE"))


def main() -> int:
    """Run the command. Returns the exit code: 0; 2 if there is nothing to judge; 1 if a stream has failed or Spark
    cannot start; 130 if it was interrupted."""
    parser = argparse.ArgumentParser(prog="holdfast.adapters.spark.audit", description=__doc__.split("\n\n")[0])
    parser.add_argument("events", nargs="+", metavar="EVENTS")
    parser.add_argument("--output", required=True, help="one folder a table is written below it")
    parser.add_argument("--format", default="parquet", choices=["parquet", "delta"])
    parser.add_argument("--complete", action="store_true", help="all up to the logs' ends had to be consumed")
    parser.add_argument("--follow", metavar="CHECKPOINT", help="go on for ever: what is final, as it comes")
    parser.add_argument("--every", metavar="SECONDS", type=float, default=60.0, help="of --follow: a batch so often")
    args = parser.parse_args()
    if args.follow and args.complete:
        parser.error("--complete is for events that end")
    if os.environ.keys().isdisjoint(_STARTED):
        try:
            require_java()
        except ClientUnusable as error:
            sys.stderr.write(f"{error}\n")
            return 1
    spark = SparkSession.builder.appName("holdfast audit").getOrCreate()
    try:
        if args.follow:
            if not spark.sparkContext.getConf().contains(_SHUFFLE):
                spark.conf.set(_SHUFFLE, _TASKS)
            every = {"processingTime": f"{args.every:g} seconds"}
            lines = stream(spark, *args.events)
            query = follow(lines, output=args.output, checkpoint=args.follow, trigger=every, format=args.format)
            query.awaitTermination()
            return 0
        with audit(spark, args.events, AuditSettings(complete=args.complete)) as found:
            found.write(args.output, args.format)
    except (HoldfastError, PySparkException) as error:
        if reason(error) is None:
            raise
        sys.stderr.write(f"{reason(error)}\n")
        return 2 if isinstance(error, HoldfastError) else 1
    except KeyboardInterrupt:
        return 130
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
