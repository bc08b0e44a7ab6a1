"""The audit job."""
