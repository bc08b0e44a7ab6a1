"""Delta tables, through Spark's own SQL and writer. Needs Delta's jars, but no Python package."""

from holdfast.adapters.spark.writers.delta.writers import (
    DeltaMergeWriter,
    DeltaReplaceWriter,
    delta_merge,
    delta_replace,
)

__all__ = ["DeltaMergeWriter", "DeltaReplaceWriter", "delta_merge", "delta_replace"]
