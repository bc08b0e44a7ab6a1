"""The store when it does not answer."""
