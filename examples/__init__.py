"""Runnable examples. Each says in its first lines what it shows and how to run it."""
