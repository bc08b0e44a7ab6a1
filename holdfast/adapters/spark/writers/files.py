"""Files beside the data, in any file system that Spark supports, through Hadoop's classes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from holdfast.adapters.spark._pyspark import Py4JError
from holdfast.adapters.spark._pyspark import SparkSession as ClassicSession
from holdfast.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.adapters.spark._pyspark import SparkSession

_PATTERN = re.compile(r"[]\[{}*?\\]")


def check_path(setting: str, path: str) -> None:
    """Raises SettingError: Hadoop and Spark's readers take the path for a pattern. Marks below it would not be found,
    as if no batch were finished, or another lake's would be."""
    if _PATTERN.search(path):
        raise SettingError(setting, path, "give a path without any of []{}*?\\, which Spark takes for a pattern")


class Files:
    """The file system of a session, configured as for Spark's own reads and writes: with the confs of the session
    (`spark.conf.set("fs...")`) and the options of a reader or writer.

    Raises:
        SettingError: the session is one of Spark Connect.
    """

    def __init__(self, spark: SparkSession, options: Mapping[str, str] | None = None) -> None:
        if not isinstance(spark, ClassicSession):
            raise SettingError(
                "write",
                "Spark Connect",
                "writers.partition and writers.delta_* need the JVM in the driver's process, which it does not give: "
                "run the query in a classic session, or take writers.postgres, or a function of yours with safe=",
            )
        self._jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - pyspark has no public way to it
        self._conf: Any = spark._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001 - as above
        for name, value in (options or {}).items():
            self._conf.set(name, value)

    def full(self, path: str) -> str:
        """The path with the name of its file system."""
        system, at = self._at(path)
        return str(system.makeQualified(at).toString())

    def found(self, pattern: str) -> list[str]:
        """The full paths that match a pattern."""
        system, at = self._at(pattern)
        return [str(each.getPath().toString()) for each in system.globStatus(at) or ()]

    def remove(self, path: str) -> None:
        """Remove a file or a folder with its content, if it exists."""
        system, at = self._at(path)
        system.delete(at, True)

    def touch(self, path: str) -> None:
        """Create an empty file unless it exists. An existing one stays: replaced, it would be missing for a moment."""
        system, at = self._at(path)
        try:
            system.createNewFile(at)
        except Py4JError:
            if not system.exists(at):  # another process has created it between Hadoop's check and its creation
                raise

    def move(self, path: str, to: str) -> None:
        """Rename a file, and create its new folder. An existing file of that name stays. Raises OSError."""
        system, at = self._at(path)
        _, target = self._at(to)
        system.mkdirs(target.getParent())
        if not (system.exists(target) or system.rename(at, target) or system.exists(target)):
            raise OSError(f"{path} cannot be renamed to {to}")

    def _at(self, path: str) -> tuple[Any, Any]:
        at = self._jvm.org.apache.hadoop.fs.Path(path)
        return at.getFileSystem(self._conf), at
