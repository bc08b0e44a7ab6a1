"""Brokers in memory that behave as the real ones were seen to: for a member's real time, and for simulated time."""
