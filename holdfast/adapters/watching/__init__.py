"""Apps, seen from outside of their process: an HTTP endpoint, and a file for probes that run a command."""

from holdfast.adapters.watching.endpoint import Endpoint, serve
from holdfast.adapters.watching.health_file import HealthFile, write_health

__all__ = ["Endpoint", "HealthFile", "serve", "write_health"]
