"""The engine: runs a consumer's loop. START HERE: loop.py."""
