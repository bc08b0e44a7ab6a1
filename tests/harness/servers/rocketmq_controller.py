"""RocketMQ in controller mode: each broker is a pair, of which the controller makes one the master."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.harness.processes import free_ports
from tests.harness.servers.rocketmq import RocketMQServer

if TYPE_CHECKING:
    from collections.abc import Mapping

_SYNC_STATE = 1006
_PAIRED = {
    "enableControllerMode": "true",
    # The controller gives both.
    "brokerId": "-1",
    "brokerRole": "SLAVE",
    # A send is acknowledged when both have the message: so what is acknowledged outlives either.
    "allAckInSyncStateSet": "true",
}


class ControllerRocketMQ(RocketMQServer):
    """One name server with a controller in it, and brokers; `add_slave` gives one its pair."""

    def __init__(self, *, brokers: int = 1, settings: Mapping[str, str] | None = None) -> None:
        """Args:
        settings: more lines of every broker.conf.
        """
        [port] = free_ports(1)
        super().__init__(
            brokers=brokers,
            settings={**_PAIRED, "controllerAddr": f"127.0.0.1:{port}", **(settings or {})},
            name_server={
                "enableControllerInNamesrv": "true",
                "controllerDLegerGroup": "holdfast",
                "controllerDLegerPeers": f"n0-127.0.0.1:{port}",
                "controllerDLegerSelfId": "n0",
            },
        )
        self._name_server["controllerStorePath"] = str(self._home / "controller")
        self._ports["controller"] = port

    def await_in_sync(self, slave: str) -> None:
        """Returns when the controller knows that this one has all messages: from then on it may be made the master."""
        self._await(slave, lambda: self._in_sync(slave), "is in the sync state set")

    def _in_sync(self, slave: str) -> bool:
        master = slave.removesuffix("-slave")
        said = self._answer("controller", _SYNC_STATE, json.dumps([master]).encode()) or ""
        # Between a header and its body there is no break; of the JSON of both the second is wanted.
        known = said.rpartition('{"replicasInfoTable"')[2].partition('"notInSyncReplicas"')[0]
        return f'"{self.address(slave)}"' in known
