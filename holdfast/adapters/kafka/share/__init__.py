"""Kafka's share groups (KIP-932): records leased one by one. `source.py` begins."""
