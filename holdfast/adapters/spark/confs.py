"""Confs of the Spark session: changed for a while, and those that hold URLs with passwords."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdfast.adapters.spark._pyspark import ClassicDataFrame
from holdfast.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from holdfast.adapters.spark._pyspark import DataFrame, SparkSession

_DESCRIPTION = "spark.job.description"
_CONF_NAME = re.compile(r"[\w.-]+")


@contextmanager
def changed(spark: SparkSession, confs: Mapping[str, str]) -> Iterator[None]:
    """With these confs, and afterwards as it was before."""
    before = {name: spark.conf.get(name, None) for name in confs}
    for name, value in confs.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


@contextmanager
def described(rows: DataFrame, what: str) -> Iterator[None]:
    """This thread's jobs are called so in Spark's UI and event log, meanwhile. Spark Connect has no such names."""
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
    """The URL itself. Args: setting: what it was given as; scheme: of such URLs, for the error.

    Raises:
        SettingError: it is no URL, and the session has no conf of that name.
    """
    if "://" in given:
        return given
    found: str | None = spark.conf.get(given, None)
    if not found:
        shown = given if _CONF_NAME.fullmatch(given) else "***"  # a URL with a slip in it has a password too
        raise SettingError(
            setting, shown, f"is no URL ({scheme}://...), and the Spark session has no conf of that name: set it"
        )
    return found
