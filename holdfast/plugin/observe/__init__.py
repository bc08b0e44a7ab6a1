"""Metrics of an engine, and the values that they are read from."""
