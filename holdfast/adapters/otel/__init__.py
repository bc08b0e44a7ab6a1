"""OpenTelemetry, by its API alone: what is collected and where it goes is the application's SDK's to say."""

from holdfast.adapters.otel.metrics import export_metrics

__all__ = ["export_metrics"]
