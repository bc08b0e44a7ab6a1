"""Delta tables. Spark's own SQL and writer do it: no Python package, but Delta's jars."""

from holdfast.adapters.spark.writers.delta.writers import (
    DeltaMergeWriter,
    DeltaReplaceWriter,
    delta_merge,
    delta_replace,
)

__all__ = ["DeltaMergeWriter", "DeltaReplaceWriter", "delta_merge", "delta_replace"]
