"""The engine driven by a user's own loop."""
