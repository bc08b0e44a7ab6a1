"""The engine in the hands of a user's own loop."""
