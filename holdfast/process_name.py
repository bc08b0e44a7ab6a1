"""The name of this process where people look for it: in a group's members, in logs."""

from __future__ import annotations

import os
import re
import socket

#: What brokers take in a client's name, and file names and metrics too.
_ODD = re.compile(r"[^A-Za-z0-9_-]+")


def process_name(number: int | None = None) -> str:
    """Such as web1-4711: the host's name, without its domain, and the process id. Of this very process: a child that
    is forked has another name.

    Args: number: of one of several processes of `holdfast run`, which stands behind it.
    """
    host = _ODD.sub("-", socket.gethostname().partition(".")[0]).strip("-") or "host"
    name = f"{host}-{os.getpid()}"
    return name if number is None else f"{name}-{number}"
