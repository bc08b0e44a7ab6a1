"""The one place here that imports pyarrow, so that a missing extra is said in one sentence."""

from __future__ import annotations

from holdfast.errors import MissingExtraError

try:
    import pyarrow as pa
    import pyarrow.acero as ac
    import pyarrow.compute as pc
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] != "pyarrow":
        raise
    raise MissingExtraError("pyarrow", "spark") from error

__all__ = ["ac", "ds", "pa", "pc", "pq"]
