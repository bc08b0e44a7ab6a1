"""By which addresses a cluster is known from others that have the same names: those of its name servers and brokers.

Names of brokers, topics and groups are alike in every cluster that was set up by the same files, and no server has a
name or number of its own that it keeps. Name servers are resolved: "rmqnamesrv:9876" may be another one elsewhere.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.remoting.channel import split_address

if TYPE_CHECKING:
    from holdfast.adapters.rocketmq.remoting import RemotingClient


def servers_of(client: RemotingClient) -> frozenset[str]:
    """All that are known now, as "host:port". May wait for DNS; not for a server."""
    found = {address for members in client.routes.brokers().values() for address in members.values()}
    for name_server in client.network.name_servers:
        host, port = split_address(name_server)
        with suppress(OSError):  # known again when it is resolved
            for *_, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
                found.add(f"{address[0]!s}:{port}")
    return frozenset(found)
