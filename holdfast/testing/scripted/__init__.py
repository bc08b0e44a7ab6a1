"""A world that a test writes down: users' own apps in it, and promises to hold them to."""
