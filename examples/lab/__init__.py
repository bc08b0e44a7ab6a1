"""The lab: the same events, done to a group of plain consumers and to a group of holdfast's. Start at demo.py."""
