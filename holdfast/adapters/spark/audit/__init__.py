"""The audit of consumers with Spark: reads events, writes tables. See docs/operations/audit.md."""

from holdfast.adapters.spark.audit.events import read, stream
from holdfast.adapters.spark.audit.following import follow
from holdfast.adapters.spark.audit.job import Audit, audit
from holdfast.tools.audit_report.judge.kept import LiveSettings
from holdfast.tools.audit_report.judge.settings import AuditSettings

__all__ = ["Audit", "AuditSettings", "LiveSettings", "audit", "follow", "read", "stream"]
