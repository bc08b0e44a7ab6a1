"""The Spark session: Java and connectors that it needs, its confs, the query's id, its Python workers.

Also a local session in this process, for commands.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Condition, Event, Thread, current_thread
from types import FunctionType
from typing import TYPE_CHECKING
from uuid import uuid4
from weakref import WeakKeyDictionary

from holdfast.adapters.spark._pyspark import SPARK_ERRORS, ClassicDataFrame, SparkSession
from holdfast.adapters.spark.telling import reason
from holdfast.adapters.spark.values import WriteFailed
from holdfast.errors import ClientUnusable, SettingError
from holdfast.timing import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from holdfast.adapters.spark._pyspark import DataFrame, pa

#: Spark 4 is compiled for Java 17. Tested: 17 and 21.
_OLDEST = 17
_PATIENCE_S = 60.0
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def require_java() -> int:
    """Check the Java that a classic session of this process would start. Returns its major version.

    Call it before the session is built, as the examples and `holdfast audit` do. An existing session, or one of Spark
    Connect on another machine, needs no Java here. Runs `java -version`; any thread.

    Raises:
        ClientUnusable: there is no Java, it does not run, or it is older than 17.
    """
    home = os.environ.get("JAVA_HOME")  # as Spark's own script finds it (bin/spark-class)
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
    """Check that the session has the connector for Kafka. Sends nothing to a broker.

    Raises:
        ClientUnusable: the connector's jars are missing.
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


_CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.extraJavaOptions": f'-Dlog4j2.configurationFile="{Path(__file__).with_name("log4j2.properties")}"',
    # One task for each core of this machine, in place of Spark's default of 200.
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


@contextmanager
def local_spark(name: str, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session on all cores of this machine. `conf` wins over the defaults above.

    A session that runs already (inside spark-submit) is used unchanged, and not stopped.

    Raises:
        ClientUnusable: there is no suitable Java; or Spark has failed. The message has holdfast's sentence, or the
            first line of Spark's; `--debug` shows the rest.
    """
    running = SparkSession.getActiveSession()
    try:
        if running is not None:
            yield running
            return
        require_java()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # for its workers; the default is "python3"
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


_DESCRIPTION = "spark.job.description"
_CONF_NAME = re.compile(r"[\w.-]+")


@dataclass(slots=True)
class _InForce:
    """A conf that is changed for a while: its value, the one before, the thread that set it, the number of users."""

    value: str
    before: str | None
    thread: str
    users: int = 0


#: Session -> name of a conf -> its change. The lock below is held only while a conf is set.
_IN_FORCE: WeakKeyDictionary[SparkSession, dict[str, _InForce]] = WeakKeyDictionary()
_CHANGES = Condition()
#: How long a sink waits for another sink that writes with the same session: longer than any save of a batch takes.
LONGEST_S = 1800.0


@contextmanager
def changed(spark: SparkSession, confs: Mapping[str, str], wait_s: float = LONGEST_S) -> Iterator[None]:
    """Set these confs, and restore them afterwards.

    Several sinks of a batch may share a session, in threads. Those that set the same value share it, and the last one
    restores the old value; one that sets another value waits. Several confs must always be given in the same order.

    Raises:
        WriteFailed: another sink's value was in force for `wait_s`.
    """
    deadline = Deadline(wait_s)
    with ExitStack() as stack:
        for name, value in confs.items():
            stack.enter_context(_one_changed(spark, name, value, deadline))
        yield


@contextmanager
def _one_changed(spark: SparkSession, name: str, value: str, deadline: Deadline) -> Iterator[None]:
    with _CHANGES:
        all_of_it = _IN_FORCE.setdefault(spark, {})
        if not _CHANGES.wait_for(
            lambda: name not in all_of_it or all_of_it[name].value == value, timeout=deadline.left_s()
        ):
            raise _session_in_use(name, all_of_it[name], deadline)
        if name not in all_of_it:
            before = spark.conf.get(name, None)
            spark.conf.set(name, value)
            all_of_it[name] = _InForce(value, before, current_thread().name)
        all_of_it[name].users += 1
    try:
        yield
    finally:
        with _CHANGES:
            all_of_it[name].users -= 1
            if not all_of_it[name].users:
                _CHANGES.notify_all()
                old = all_of_it.pop(name).before
                if old is None:
                    spark.conf.unset(name)
                else:
                    spark.conf.set(name, old)


def _session_in_use(name: str, by: _InForce, deadline: Deadline) -> WriteFailed:
    return WriteFailed(
        f"another sink has written with this Spark session for {deadline.budget_s:g} s ({name} is {by.value!r}, set by "
        f"thread {by.thread!r}), and sinks of one session write one after the other: end its job in Spark's UI if it "
        "hangs; else give delta_merge(wait_s=) more, or each sink a query of its own"
    )


@contextmanager
def described(rows: DataFrame, what: str) -> Iterator[None]:
    """Set the description of this thread's jobs in Spark's UI and event log, meanwhile. Not with Spark Connect."""
    if not isinstance(rows, ClassicDataFrame):
        yield
        return
    context = rows.sparkSession.sparkContext
    before = context.getLocalProperty(_DESCRIPTION)
    context.setJobDescription(what)
    try:
        yield
    finally:
        context.setLocalProperty(_DESCRIPTION, before)  # type: ignore[arg-type] # None: there was none


def resolved_url(setting: str, given: str, scheme: str, spark: SparkSession) -> str:
    """The URL, or the value of the Spark conf that `given` names.

    Args:
        setting: the name of the setting, for the error.
        given: a URL, or the name of a conf.
        scheme: the scheme of such URLs, for the error.
        spark: the session.

    Raises:
        SettingError: it is no URL, and the session has no conf of this name.
    """
    if "://" in given:
        return given
    found: str | None = spark.conf.get(given, None)
    if not found:
        shown = given if _CONF_NAME.fullmatch(given) else "***"  # a misspelled URL may have a password in it
        raise SettingError(
            setting, shown, f"is no URL ({scheme}://...), and the Spark session has no conf of that name: set it"
        )
    return found


_QUERY_ID = "sql.streaming.queryId"  # one of Spark's local properties; found in 4.0.0, 4.2.0 and 4.3.0
#: A sentence for errors: when Spark does not tell the query's id.
UNTOLD = (
    "Spark tells its id neither under Spark Connect nor outside of foreachBatch, and to a thread of yours only if that "
    "is a pyspark.InheritableThread, or runs pyspark.inheritable_thread_target(spark)(function)"
)


def origin_of(rows: DataFrame) -> str:
    """Spark's id of the query, which belongs to the checkpoint, also if the query has a name. "": it is not known."""
    if not isinstance(rows, ClassicDataFrame):
        return ""
    return str(rows.sparkSession.sparkContext.getLocalProperty(_QUERY_ID) or "")


def query_of(rows: DataFrame, given: str | None) -> str:
    """The id of the query, which is the same at each start: the given name, or Spark's.

    Raises:
        SettingError: there is none.
    """
    if given is not None:
        return given
    if not isinstance(rows, ClassicDataFrame):
        raise SettingError("query", None, "Spark Connect tells no id of the query: give query='a name that stays'")
    query = origin_of(rows)
    if not query:
        raise SettingError(
            "query",
            None,
            f"no id of the query is known: {UNTOLD}. Give query='a name that stays'",
        )
    return query


def require_workers(spark: SparkSession) -> None:
    """Find whether Spark's Python workers are the cause of an error, by two tiny jobs: one without holdfast, and one
    that imports it. A job that does not end within a minute proves nothing.

    Raises:
        ClientUnusable: the workers run another Python, lack packages for mapInArrow, or lack holdfast.
    """
    if (error := _worker_failure(spark, FunctionType(_through.__code__, {}))) is not None:
        raise ClientUnusable(
            f"Spark's Python workers do not run: they need this driver's Python, {sys.version_info[0]}."
            f"{sys.version_info[1]}, with 'holdfast-mq[spark]' installed: set PYSPARK_PYTHON, or the conf "
            "spark.pyspark.python, to such a one before the session starts"
        ) from error
    if (error := _worker_failure(spark, _through)) is not None:
        raise ClientUnusable(
            "Spark's Python workers cannot import holdfast: pip install 'holdfast-mq[spark]' where the executors run, "
            "in the version that the driver has"
        ) from error


def _through(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pass batches through. Pickled by name, so that a worker must import this package. A function of only its code is
    pickled by value, without the import."""
    yield from batches


def _worker_failure(
    spark: SparkSession, function: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
) -> Exception | None:
    tag, late, done = f"holdfast-{uuid4().hex}", Event(), Event()
    rows = spark.range(1).mapInArrow(function, "id bigint")
    cancel: Callable[[str], object]
    # Tags of a classic session are visible only in the thread that has set them; those of its context in all threads.
    if isinstance(rows, ClassicDataFrame):
        context = spark.sparkContext
        add, cancel, remove = context.addJobTag, context.cancelJobsWithTag, context.removeJobTag
    else:
        add, cancel, remove = spark.addTag, spark.interruptTag, spark.removeTag

    def end() -> None:  # on a cluster without executors the job would wait for ever, and the error would not show
        left_s = _PATIENCE_S
        while not done.wait(left_s):
            late.set()
            cancel(tag)
            left_s = 1.0  # repeat: a job that has not begun yet cannot be cancelled

    add(tag)
    Thread(target=end, name="holdfast-workers", daemon=True).start()
    try:
        rows.collect()
    except SPARK_ERRORS as error:
        return None if late.is_set() else error
    finally:
        done.set()
        remove(tag)
    return None
