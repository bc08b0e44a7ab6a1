"""About configurations and groups: for the command line only, no consumer runs it."""
