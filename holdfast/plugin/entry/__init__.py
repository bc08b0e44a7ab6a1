"""Moved to engine.record.entry; this name stays until the simulated world has the new one."""

from holdfast.plugin.engine.record.entry import Entry as Entry
from holdfast.plugin.engine.record.entry import Gate as Gate
