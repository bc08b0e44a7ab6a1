"""The engine while the store does not answer."""
