"""OpenTelemetry, by its API alone: what is collected and where it goes is the application's SDK's to say."""

from holdfast.adapters.otel.metrics import export_metrics
from holdfast.adapters.otel.tracing import Tracing

__all__ = ["Tracing", "export_metrics"]
