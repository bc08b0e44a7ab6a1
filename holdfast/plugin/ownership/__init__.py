"""Moved to engine.partition.ownership; this name stays until the simulated world has the new one."""

from holdfast.plugin.engine.partition.ownership import Phase as Phase
