"""Tools for RocketMQ, for the command line only: groups, offsets, dead letters. No consumer imports them."""
