"""Delta tables. Spark's own SQL and writer do it: no Python package, but Delta's jars."""

from holdfast.adapters.spark.writers.delta.merge import DeltaMergeWriter, delta_merge
from holdfast.adapters.spark.writers.delta.replace import DeltaReplaceWriter, delta_replace

__all__ = ["DeltaMergeWriter", "DeltaReplaceWriter", "delta_merge", "delta_replace"]
