"""The audit's report: judges events, writes tables, draws pages."""
