"""A frame as a table: its columns, in their order and of their types. `holdfast.plugin.audit.tables` has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.adapters.spark._pyspark import F

if TYPE_CHECKING:
    from holdfast.adapters.spark._pyspark import DataFrame
    from holdfast.plugin.audit.columns import Table


def shaped(rows: DataFrame, table: Table) -> DataFrame:
    """Those columns of `rows` that the table has."""
    return rows.select(*(F.col(each.name).cast(each.type).alias(each.name) for each in table.columns))
