"""The addresses that identify a cluster: those of its name servers and brokers.

Clusters that were set up from the same files have the same names of brokers, topics and groups, and no server has a
lasting id. Name servers are resolved to IP addresses: "rmqnamesrv:9876" may be another server in another network.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.remoting.channel import split_address

if TYPE_CHECKING:
    from holdfast.adapters.rocketmq.remoting import RemotingClient


def servers_of(client: RemotingClient) -> frozenset[str]:
    """All known addresses, as "host:port". May wait for DNS, but not for a server."""
    found = {address for members in client.routes.brokers().values() for address in members.values()}
    for name_server in client.network.name_servers:
        host, port = split_address(name_server)
        with suppress(OSError):  # left out until it can be resolved
            for *_, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
                found.add(f"{address[0]!s}:{port}")
    return frozenset(found)
