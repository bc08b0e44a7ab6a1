"""The engine: a consumer's loop. START HERE: loop.py."""
