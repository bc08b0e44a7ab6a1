"""Whose batch it is: the query's id, as Spark tells it or as it was given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.adapters.spark._pyspark import ClassicDataFrame
from holdfast.errors import SettingError

if TYPE_CHECKING:
    from holdfast.adapters.spark._pyspark import DataFrame

_QUERY_ID = "sql.streaming.queryId"  # of Spark's local properties; seen on 4.0.0, 4.2.0 and 4.3.0


def origin_of(rows: DataFrame) -> str:
    """Spark's id of the query, which is the checkpoint's: also where the query was given a name. "": it tells none."""
    if not isinstance(rows, ClassicDataFrame):
        return ""
    return str(rows.sparkSession.sparkContext.getLocalProperty(_QUERY_ID) or "")


def query_of(rows: DataFrame, given: str | None) -> str:
    """The id that is the same from start to start of the query.

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
            "the sink was called outside of foreachBatch, where Spark tells no id of a query: give query='a name that "
            "stays'",
        )
    return query
