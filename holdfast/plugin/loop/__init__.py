"""Moved to engine.loop; this name stays until the simulated world has the new one."""

from holdfast.plugin.engine.loop import Engine as Engine
