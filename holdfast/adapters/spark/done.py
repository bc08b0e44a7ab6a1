"""`drop_done`: what is done already, out of any data frame; for jobs that are no streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.adapters.spark.keys import check_columns, check_names, key_columns
from holdfast.adapters.spark.store import StoreAt
from holdfast.adapters.spark.tasks import keeping

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.adapters.spark._pyspark import DataFrame


def drop_done(
    rows: DataFrame,
    *,
    key: str | Sequence[str],
    claims: str,
    scope: str,
    namespace: str = "holdfast",
    hash_keys: bool = False,
    keys_expected: int = 1_000_000,
    timeout_s: float = 5.0,
) -> DataFrame:
    """The rows whose keys nobody has done: no sink has written them, no consumer has handled them.

    Claims nothing and marks nothing: what runs at the same time may do them meanwhile. Evaluated with the result,
    each time anew. Rows without a key stay. A Redis that does not answer fails the job.

    Args:
        rows: any.
        key: as in `idempotent_sink`.
        claims: as in `idempotent_sink`.
        scope: the sink's name, or the handler's scope.
        namespace: as in RedisClaims.
        hash_keys: as in RedisClaims.
        keys_expected: as in RedisClaims.
        timeout_s: for a connection to Redis, and for each reply.

    Raises:
        SettingError: a setting cannot work, or no such column.
    """
    columns = key_columns(key)
    check_columns(rows, columns)
    check_names(rows)
    at = StoreAt(
        url=claims,
        namespace=namespace,
        remember_s=7 * 86_400.0,
        hash_keys=hash_keys,
        keys_expected=keys_expected,
        timeout_s=timeout_s,
    )
    return rows.mapInArrow(keeping(at.resolved(rows.sparkSession), scope, columns), rows.schema)
