"""Stories of RocketMQ's masters, slaves and name servers that are gone, for a while or for good."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.harness.group.story import story
from tests.harness.servers.rocketmq_controller import ControllerRocketMQ

if TYPE_CHECKING:
    from tests.harness.group.field import Field

_HOLDFAST = ("holdfast",)
_ROCKETMQ = ("rocketmq",)


@story(protocols=_ROCKETMQ, kinds=_HOLDFAST, partitions=4, brokers=2)
def a_master_is_away_and_its_slave_is_read(field: Field) -> None:
    """Kill -9 of a master that has a slave, and of a member: the other broker's queues go on, and move; this one's are
    read from the slave by who has them, and the dead member's wait for their master."""
    servers = field.rocketmq
    a, b = field.start("a"), field.start("b")
    field.flow(150)
    field.until_spread(a, b)
    slave = servers.add_slave("broker-b")
    field.until_handled(300)
    servers.kill_broker("broker-b")
    field.until_handled(300)
    field.kill(b)
    c = field.start("c")
    field.until_works(c)
    field.until_handled(300)
    servers.start_broker("broker-b")
    field.until_spread(a, c)
    servers.remove_slave(slave)


@story(protocols=_ROCKETMQ, kinds=_HOLDFAST, partitions=4)
def a_controller_makes_a_slave_the_master(field: Field) -> None:
    """Kill -9 of a master that never comes back: its slave, which has all that was acknowledged, is made the master.
    Then a member is killed, and one joins."""
    servers = field.rocketmq
    assert isinstance(servers, ControllerRocketMQ)
    a, b = field.start("a"), field.start("b")
    field.flow(150)
    field.until_spread(a, b)
    servers.await_in_sync(servers.add_slave("broker-a"))
    field.until_handled(300)
    servers.kill_broker("broker-a")
    field.until_spread(a, b)
    field.kill(b)
    c = field.start("c")
    field.until_spread(a, c)


@story(protocols=_ROCKETMQ, kinds=_HOLDFAST, partitions=4)
def name_servers_are_replaced(field: Field) -> None:
    """One after the other, until no address is what it was: the new one is started, brokers are told, members restart
    with its address, the old one is gone."""
    servers = field.rocketmq
    addresses = [servers.namesrv, servers.start_name_server("namesrv-b")]
    servers.tell_name_servers(addresses)
    servers.await_known("namesrv-b")
    a, b = (field.start(each, bootstrap=";".join(addresses)) for each in "ab")
    field.flow(150)
    field.until_spread(a, b)
    for old, new in (("namesrv", "namesrv-c"), ("namesrv-b", "namesrv-d")):
        addresses = [*(each for each in addresses if each != servers.address(old)), servers.start_name_server(new)]
        servers.tell_name_servers(addresses)
        servers.await_known(new)
        for each in "ab":
            field.relieve(each, bootstrap=";".join(addresses))
        servers.stop_name_server(old)
        field.until_handled(150)
    c = field.start("c", bootstrap=";".join(addresses))
    field.until_spread(field.members["a"], field.members["b"], c)
