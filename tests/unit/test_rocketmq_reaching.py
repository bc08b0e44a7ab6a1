"""Name servers and proxies that do not answer at the start; and who is ready."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.adapters.rocketmq import reaching
from holdfast.adapters.rocketmq.grpc.by_message import ByMessage
from holdfast.adapters.rocketmq.grpc.config import Wanted
from holdfast.adapters.rocketmq.push.servers import Servers
from holdfast.adapters.rocketmq.reaching import insist, look_for_all
from holdfast.adapters.rocketmq.remoting import RemotingClient, codes
from holdfast.adapters.rocketmq.remoting.admin import Admin
from holdfast.errors import SourceUnavailable, UnknownTopic
from holdfast.runtime import MACHINE
from holdfast.timing import Deadline
from tests.harness.processes import free_ports
from tests.harness.waiting import until
from tests.unit.rocketmq_fake import FakeServer
from tests.unit.test_rocketmq_grpc_bodies import Proxy

if TYPE_CHECKING:
    from holdfast.adapters.rocketmq.remoting.frame import Command
    from tests.unit.rocketmq_fake import Peer


def test_name_servers_that_are_away_are_told_in_one_line_and_one_error(caplog: pytest.LogCaptureFixture) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    servers = Servers(address, "billing", None)
    with pytest.raises(SourceUnavailable) as caught:
        servers.reach(["orders", "refunds"], Deadline(1.2))
    servers.close()
    said = f"{address} refuses connections: nothing listens there"
    assert str(caught.value) == f"{said}: check the address, and that the server runs"
    told = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert [line.partition("; trying for another ")[0] for line in told] == [said]


def test_what_is_waited_for_is_told_again_while_it_lasts(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reaching, "EVERY_S", 0.0)
    monkeypatch.setattr(reaching, "refusal", lambda *_: None)
    answers = [SourceUnavailable("no answer"), SourceUnavailable("no answer"), None]

    def step() -> None:
        if (error := answers.pop(0)) is not None:
            raise error

    insist(step, "127.0.0.1:1", Deadline(30.0))
    assert [each.getMessage().partition(";")[0] for each in caplog.records] == ["no answer", "no answer"]


def test_all_topics_that_are_missing_are_told_together() -> None:
    def look(topic: str) -> None:
        if topic != "orders":
            raise UnknownTopic(topic)

    with pytest.raises(UnknownTopic, match=r"^refunds; returns$"):
        look_for_all(["refunds", "orders", "returns"], look)


def test_a_version_is_asked_of_a_broker_that_its_name_server_had_forgotten_for_a_moment() -> None:
    """A name server forgets a broker whose connection broke, until it registers again."""
    looks: list[Command] = []

    def handle(command: Command, peer: Peer) -> None:
        if command.code == codes.Request.GET_BROKER_RUNTIME_INFO:
            peer.answer(command, body=b'{"table":{"brokerVersionDesc":"V5_5_0"}}')
            return
        looks.append(command)
        brokers = {"broker-a": {"brokerAddrs": {"0": names.address} if len(looks) > 1 else {}}}
        peer.answer(command, body=json.dumps({"brokerAddrTable": brokers, "clusterAddrTable": {}}).encode())

    with FakeServer(handle) as names, RemotingClient(names.address) as client:
        assert Admin(client).version(Deadline(60.0)) == "5.5.0"
        assert len(looks) == 2
        looks.clear()
        with pytest.raises(SourceUnavailable, match="no broker has a master now"):
            Admin(client).version(Deadline(0.1))


def test_by_message_a_member_is_who_was_answered_a_poll() -> None:
    proxy, fence = Proxy(), object()
    refused: Any = SourceUnavailable("the proxy is away")

    class Away(Proxy):
        """It takes the settings, and answers no poll until it is back."""

        back = False

        def receive(self, *place: Any) -> Any:
            if not self.back:
                raise refused
            return proxy.receive(*place)

    away = Away()
    source = ByMessage(Wanted(group="billing"), lambda _: away, MACHINE)
    assert not source.in_group
    source.open(["orders"], fence, Deadline(60.0))  # type: ignore[arg-type]

    def poll() -> bool:
        try:
            source.poll(1, 0.01)
        except SourceUnavailable:
            return True
        return False

    until(poll)
    assert not source.in_group
    away.back = True
    until(lambda: [poll(), source.in_group][-1])
    away.closed = True
    source.close(Deadline(5.0))
