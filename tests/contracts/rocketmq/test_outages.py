"""Two real brokers with TLS and signed requests: who may, and what is left while one, or the name server, is away."""

from __future__ import annotations

import time
from itertools import count
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.adapters.rocketmq.remoting import (
    Admin,
    Consumer,
    Credentials,
    Message,
    NoAnswer,
    PullRequest,
    RemotingClient,
    Sender,
    Subscription,
)
from holdfast.errors import NotAuthorised, SourceError, SourceUnavailable, UnknownTopic
from holdfast.timing import Deadline
from tests.contracts.rocketmq.cluster import PASSWORD, USER
from tests.harness.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.records import Partition
    from tests.contracts.rocketmq.cluster import Cluster
    from tests.harness.servers.rocketmq import RocketMQServer

LONG_S = 60.0
_names = count()


def deadline() -> Deadline:
    return Deadline(LONG_S)


@pytest.fixture
def guarded(cluster: Cluster) -> RocketMQServer:
    return cluster.server


@pytest.fixture
def client(cluster: Cluster) -> Iterator[RemotingClient]:
    with cluster.client(Credentials(access_key=USER, secret_key=PASSWORD), "member") as made:
        yield made


@pytest.fixture
def group(client: RemotingClient) -> str:
    name = f"outages-{time.time_ns()}-{next(_names)}"
    Admin(client).create_group(name, deadline())
    return name


@pytest.fixture
def queues(client: RemotingClient) -> list[Partition]:
    """One on each broker."""
    topic = f"outages-{time.time_ns()}-{next(_names)}"
    Admin(client).create_topic(topic, deadline(), queues=1)
    return client.route(topic, deadline()).queues()


def request(queue: Partition, group: str, offset: int, suspend_s: float) -> PullRequest:
    wanted = Subscription(topic=queue.topic)
    return PullRequest(queue=queue, group=group, offset=offset, subscription=wanted, suspend_s=suspend_s)


def settled(look: Callable[[], Any]) -> Any:
    """What it says once it raises no SourceError and is not None."""
    [found] = until(lambda: [seen for seen in [look()] if seen is not None], despite=(SourceError,))
    return found


def test_a_topic_on_two_brokers_is_read_and_committed_on_both(
    client: RemotingClient, queues: list[Partition], group: str
) -> None:
    assert [each.broker for each in queues] == ["broker-a", "broker-b"]
    sender = Sender(client)
    for queue in queues:
        sender.send(queue, Message(queue.topic, queue.broker.encode(), tags="\u00fc"), deadline())
        [message] = client.pull(request(queue, group, 0, 10), deadline()).messages()
        assert message.body == queue.broker.encode()
        client.commit_offset(queue, group, 1, deadline())
    assert [client.query_offset(queue, group, deadline()) for queue in queues] == [1, 1]
    assert (
        client.heartbeat([Consumer(group=group, subscriptions=(Subscription(topic=queues[0].topic),))], deadline())
        == {}
    )
    assert [client.consumer_ids(queue.broker, group, deadline()) for queue in queues] == [["member"], ["member"]]
    lag = Admin(client).lag(group, queues[0].topic, deadline())
    assert {queue: lag[queue].consumer_offset for queue in lag} == dict.fromkeys(queues, 1)


@pytest.mark.parametrize(
    "credentials",
    [None, Credentials(access_key=USER, secret_key="wrong"), Credentials(access_key="nobody", secret_key=PASSWORD)],  # noqa: S106
    ids=["none", "wrong", "unknown"],
)
def test_who_may_not_is_told_so(
    cluster: Cluster, queues: list[Partition], group: str, credentials: Credentials | None
) -> None:
    [queue, _] = queues
    with cluster.client(credentials) as client:
        for call in (
            lambda: client.query_offset(queue, group, deadline()),
            lambda: client.commit_offset(queue, group, 1, deadline()),
            lambda: client.pull(request(queue, group, 0, 0), deadline()),
            lambda: Sender(client).send(queue, Message(queue.topic, b""), deadline()),
        ):
            with pytest.raises(NotAuthorised, match="check the credentials"):
                call()


def test_a_broker_that_hangs_is_no_answer_in_time_and_leaves_the_other_alone(
    guarded: RocketMQServer, client: RemotingClient, queues: list[Partition], group: str
) -> None:
    [hung, other] = queues
    client.commit_offset(hung, group, 1, deadline())
    guarded.pause_broker(hung.broker)
    try:
        with pytest.raises(NoAnswer):
            client.query_offset(hung, group, Deadline(0.3))
        assert client.query_offset(other, group, deadline()) is None
    finally:
        guarded.resume_broker(hung.broker)
    assert client.query_offset(hung, group, deadline()) == 1


def test_a_broker_that_is_killed_fails_what_waits_at_once_and_is_used_again_when_it_is_back(
    guarded: RocketMQServer, client: RemotingClient, queues: list[Partition], group: str
) -> None:
    [queue, other] = queues
    answers: SimpleQueue[Any] = SimpleQueue()
    client.begin_pull(request(queue, group, 0, LONG_S), answers.put)
    client.max_offset(queue, deadline())  # so that the pull is with the broker
    guarded.kill_broker(queue.broker)
    error = answers.get(timeout=LONG_S / 2)
    assert isinstance(error, SourceUnavailable)
    assert not isinstance(error, NoAnswer)
    assert client.max_offset(other, deadline()) == 0
    guarded.start_broker(queue.broker)
    settled(lambda: Sender(client).send(queue, Message(queue.topic, b"back"), deadline()))
    assert settled(lambda: client.pull(request(queue, group, 0, 5), deadline()).messages() or None)


def test_while_the_name_server_is_away_brokers_are_used_and_nothing_is_forgotten(
    guarded: RocketMQServer, client: RemotingClient, queues: list[Partition], group: str
) -> None:
    topic = queues[0].topic
    guarded.stop_name_server()
    with pytest.raises(SourceUnavailable):
        client.route(topic, deadline(), fresh=True)
    for queue in queues:
        client.commit_offset(queue, group, 1, deadline())
    guarded.start_name_server()
    try:
        client.route(topic, Deadline(5.0), fresh=True)
    except (UnknownTopic, SourceUnavailable):
        assert client.known_route(topic) is not None  # as before
    assert settled(
        lambda: route.queues() if len((route := client.route(topic, deadline(), fresh=True)).queues()) == 2 else None
    )
    assert [client.query_offset(queue, group, deadline()) for queue in queues] == [1, 1]
