"""Quirks of librdkafka and its binding that holdfast works around, a file each.

Each file says what the client does, in which versions that was seen, what holdfast does about it, when the file can go,
and which test shows it.
"""
