"""Every request of the remoting client, asked of a real broker."""

from __future__ import annotations

import ssl
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.adapters.rocketmq.remoting import (
    Admin,
    BrokerRefused,
    CommitIgnored,
    Consumer,
    Message,
    Notice,
    PullAnswer,
    PullRequest,
    PullStatus,
    QueueLag,
    RemotingClient,
    Sender,
    SendStatus,
    StoredMessage,
    Subscription,
    codes,
)
from holdfast.errors import SourceFatal, UnknownTopic
from holdfast.records import Partition
from holdfast.timing import Deadline

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.harness.servers.rocketmq import RocketMQServer

LONG_S = 30.0
BROKER = "broker-a"
#: How often a topic is changed, and by how many threads new groups are made meanwhile.
_CHANGES, _MAKING = 10, 2
_names = count()


def deadline() -> Deadline:
    return Deadline(LONG_S)


class Told:
    """What brokers told a client, as it comes."""

    def __init__(self) -> None:
        self.notices: SimpleQueue[Notice] = SimpleQueue()

    def __call__(self, notice: Notice) -> None:
        self.notices.put(notice)


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def client(rocketmq: RocketMQServer, told: Told) -> Iterator[RemotingClient]:
    with RemotingClient(rocketmq.namesrv, on_notice=told) as made:
        yield made


@pytest.fixture
def admin(client: RemotingClient) -> Admin:
    return Admin(client)


@pytest.fixture
def group(admin: Admin) -> str:
    name = f"requests-{time.time_ns()}-{next(_names)}"
    admin.create_group(name, deadline())
    return name


@pytest.fixture
def queue(admin: Admin) -> Partition:
    """Queue 0 of a topic of four."""
    topic = f"requests-{time.time_ns()}-{next(_names)}"
    admin.create_topic(topic, deadline(), queues=4)
    return Partition(topic, 0, BROKER)


@pytest.fixture
def sender(client: RemotingClient) -> Sender:
    return Sender(client)


def pull(
    client: RemotingClient, queue: Partition, group: str, offset: int, expression: str = "*", **settings: Any
) -> PullAnswer:
    wanted = Subscription(topic=queue.topic, expression=expression)
    settings.setdefault("suspend_s", 0)
    request = PullRequest(queue=queue, group=group, offset=offset, subscription=wanted, **settings)
    return client.pull(request, deadline())


def stored(client: RemotingClient, queue: Partition, group: str, bodies: int) -> list[StoredMessage]:
    """So many messages from the queue's beginning, waited for: a broker answers a send before it lists the message."""
    found: list[StoredMessage] = []
    while len(found) < bodies:
        answer = pull(client, queue, group, found[-1].offset + 1 if found else 0, suspend_s=5)
        found += answer.messages()
    return found


# -- routes


def test_a_topic_is_known_as_soon_as_it_is_made_and_unknown_once_it_is_deleted(
    client: RemotingClient, admin: Admin, queue: Partition
) -> None:
    route = client.route(queue.topic, deadline())
    assert route.queues() == [Partition(queue.topic, number, BROKER) for number in range(4)]
    admin.create_topic(queue.topic, deadline(), read_queues=4, write_queues=2)
    route = client.route(queue.topic, deadline(), fresh=True)
    assert (len(route.queues()), len(route.queues(read=False))) == (4, 2)
    admin.delete_topic(queue.topic, deadline())
    with pytest.raises(UnknownTopic):
        client.route(queue.topic, deadline(), fresh=True)


@pytest.mark.full
def test_a_changed_topic_is_known_also_where_new_groups_make_theirs_meanwhile(
    client: RemotingClient, admin: Admin, rocketmq: RocketMQServer, queue: Partition
) -> None:
    """A name server takes a broker's word on a topic that it knows only with a version of all topics that is new to it.
    The first heartbeat of a group makes its retry topic, beside any change: the first of the two may bring the version
    of both."""
    over = threading.Event()

    def make_groups() -> None:
        with RemotingClient(rocketmq.namesrv) as own:
            own.route(queue.topic, deadline())
            while not over.is_set():
                name = f"requests-{time.time_ns()}-{next(_names)}"
                own.heartbeat([Consumer(group=name, subscriptions=(Subscription(topic=queue.topic),))], deadline())

    with ThreadPoolExecutor(_MAKING) as pool:
        making = [pool.submit(make_groups) for _ in range(_MAKING)]
        missed = []
        try:
            for queues in range(5, 5 + _CHANGES):
                admin.create_topic(queue.topic, deadline(), queues=queues)
                if len(client.route(queue.topic, deadline(), fresh=True).queues()) != queues:
                    missed.append(queues)
        finally:
            over.set()
        for each in making:
            each.result(LONG_S)
    assert missed == []


def test_the_cluster_is_read(client: RemotingClient, admin: Admin, queue: Partition) -> None:
    cluster = admin.cluster(deadline())
    assert cluster.brokers[BROKER] == client.route(queue.topic, deadline()).brokers[BROKER]
    assert [BROKER] in cluster.clusters.values()


# -- offsets


def test_no_offset_is_none_also_while_the_queues_head_is_in_memory(
    client: RemotingClient, sender: Sender, queue: Partition, group: str
) -> None:
    sender.send(queue, Message(queue.topic, b"a"), deadline())
    stored(client, queue, "requests-others", 1)
    assert client.query_offset(queue, group, deadline()) is None
    client.commit_offset(queue, group, 0, deadline())
    assert client.query_offset(queue, group, deadline()) == 0


def test_an_offset_is_committed_and_read_without_waiting(client: RemotingClient, queue: Partition, group: str) -> None:
    client.route(queue.topic, deadline())
    answers: SimpleQueue[Any] = SimpleQueue()
    client.begin_commit(queue, group, 41, answers.put)
    assert answers.get(timeout=LONG_S) is None
    client.begin_query_offset(queue, group, answers.put)
    assert answers.get(timeout=LONG_S) == 41
    client.begin_max_offset(queue, answers.put)
    assert answers.get(timeout=LONG_S) == 0


def test_a_commit_for_an_unknown_group_or_topic_is_refused(
    client: RemotingClient, queue: Partition, group: str
) -> None:
    with pytest.raises(BrokerRefused) as refused:
        client.commit_offset(queue, f"{group}-unknown", 1, deadline())
    assert refused.value.code == codes.GROUP_NOT_EXIST
    with pytest.raises(UnknownTopic):
        client.commit_offset(queue._replace(topic="requests-unknown"), group, 1, deadline())


def test_the_ends_of_a_log_and_the_offset_of_a_time(client: RemotingClient, sender: Sender, queue: Partition) -> None:
    assert (client.min_offset(queue, deadline()), client.max_offset(queue, deadline())) == (0, 0)
    for body in (b"a", b"b", b"c"):
        sender.send(queue, Message(queue.topic, body), deadline())
    [_, second, _] = stored(client, queue, "requests-times", 3)
    assert (client.min_offset(queue, deadline()), client.max_offset(queue, deadline())) == (0, 3)
    assert client.offset_at(queue, 0, deadline()) == 0
    assert client.offset_at(queue, second.stored_ms, deadline()) <= 1
    assert client.offset_at(queue, second.stored_ms + 3_600_000, deadline()) == 3


# -- sending and pulling


def test_a_message_comes_as_it_was_sent(client: RemotingClient, sender: Sender, queue: Partition, group: str) -> None:
    body = bytes(range(256))
    sent = sender.send(
        queue,
        Message(queue.topic, body, tags="paid", keys=["k1", "k2"], properties={"user": "\u00e4 \U0001f600"}, flag=7),
        deadline(),
    )
    assert (sent.status, sent.queue, sent.offset) == (SendStatus.OK, queue, 0)
    [message] = stored(client, queue, group, 1)
    assert (message.body, message.flag, message.offset, message.queue_id) == (body, 7, 0, 0)
    assert (message.tags, message.keys, message.properties["user"]) == ("paid", "k1 k2", "\u00e4 \U0001f600")
    assert (message.unique_key, message.message_id) == (sent.unique_key, sent.message_id)
    assert message.origin_topic == message.topic == queue.topic
    assert abs(message.stored_ms - time.time() * 1000) < 3_600_000


def test_a_batch_is_stored_whole_and_each_has_its_own_identity(
    client: RemotingClient, sender: Sender, queue: Partition, group: str
) -> None:
    sent = sender.send_batch(
        queue, [Message(queue.topic, b"%d" % each, keys=str(each)) for each in range(50)], deadline()
    )
    messages = stored(client, queue, group, 50)
    assert [each.body for each in messages] == [b"%d" % each for each in range(50)]
    assert [each.keys for each in messages] == [str(each) for each in range(50)]
    assert [each.unique_key for each in messages] == sent.unique_key.split(",")


def test_a_compressed_body_is_read(client: RemotingClient, sender: Sender, queue: Partition, group: str) -> None:
    body = b"holdfast" * 10_000
    sender.send(queue, Message(queue.topic, zlib.compress(body), sys_flag=0x301), deadline())
    [message] = stored(client, queue, group, 1)
    assert message.body == body


def test_a_delayed_message_comes_later(client: RemotingClient, sender: Sender, queue: Partition, group: str) -> None:
    before = time.monotonic()
    sent = sender.send(queue, Message(queue.topic, b"late", delay_level=1), deadline())
    early = pull(client, queue, group, 0).status
    assert early is not PullStatus.FOUND or time.monotonic() - before >= 1
    [message] = stored(client, queue, group, 1)
    assert (message.body, message.unique_key) == (b"late", sent.unique_key)
    assert message.stored_ms - message.born_ms >= 900  # level 1 is a second


def test_messages_are_sent_without_waiting(
    client: RemotingClient, sender: Sender, queue: Partition, group: str
) -> None:
    client.route(queue.topic, deadline())
    answers: SimpleQueue[Any] = SimpleQueue()
    for each in range(20):
        sender.begin_send(queue, Message(queue.topic, b"%d" % each), answers.put)
    sender.begin_send_batch(queue, [Message(queue.topic, b"20"), Message(queue.topic, b"21")], answers.put)
    offsets = {answers.get(timeout=LONG_S).offset for _ in range(21)}
    assert len(offsets) == 21  # in whatever order: a broker works on several requests of a connection at once
    assert {each.body for each in stored(client, queue, group, 22)} == {b"%d" % each for each in range(22)}


def test_what_a_pull_may_bring(client: RemotingClient, sender: Sender, queue: Partition, group: str) -> None:
    sender.send_batch(queue, [Message(queue.topic, b"x", tags="a") for _ in range(3)], deadline())
    stored(client, queue, group, 3)
    found = pull(client, queue, group, 0, max_messages=2)
    assert (found.status, found.next_offset, found.max_offset) == (PullStatus.FOUND, 2, 3)
    assert pull(client, queue, group, 3).status is PullStatus.NONE_NEW
    other = pull(client, queue, group, 0, "b")
    assert (other.status, other.next_offset) == (PullStatus.NONE_MATCHED, 3)
    assert len(pull(client, queue, group, 0, "b || a").messages()) == 3
    beyond = pull(client, queue, group, 1000)
    assert (beyond.status, beyond.next_offset) == (PullStatus.MOVED, 3)


def test_a_pull_of_what_is_not_there_is_refused(client: RemotingClient, queue: Partition, group: str) -> None:
    with pytest.raises(BrokerRefused) as refused:
        pull(client, queue._replace(number=99), group, 0)
    assert refused.value.code == codes.INVALID_PARAMETER
    client.route(queue.topic, deadline())
    with pytest.raises(UnknownTopic):
        pull(client, Partition("requests-unknown", 0, BROKER), group, 0)


def test_a_pull_that_waits_is_answered_when_a_message_comes_and_lets_others_pass(
    client: RemotingClient, sender: Sender, queue: Partition, group: str
) -> None:
    client.route(queue.topic, deadline())
    answers: SimpleQueue[Any] = SimpleQueue()
    for number in range(4):
        each = queue._replace(number=number)
        wanted = Subscription(topic=queue.topic)
        client.begin_pull(
            PullRequest(queue=each, group=group, offset=0, subscription=wanted, suspend_s=LONG_S), answers.put
        )
    assert client.max_offset(queue, deadline()) == 0
    sender.send(queue._replace(number=2), Message(queue.topic, b"a"), deadline())
    answer = answers.get(timeout=LONG_S)
    assert [each.queue_id for each in answer.messages()] == [2]
    client.close()
    ended = [answers.get(timeout=LONG_S / 2) for _ in range(3)]  # at once, not after the wait
    assert [type(each) for each in ended] == [SourceFatal] * 3


def test_an_offset_is_noted_along_with_a_pull(
    client: RemotingClient, sender: Sender, queue: Partition, group: str
) -> None:
    sender.send(queue, Message(queue.topic, b"a"), deadline())
    client.heartbeat([Consumer(group=group, subscriptions=(Subscription(topic=queue.topic),))], deadline())
    pull(client, queue, group, 0, commit=1)
    assert client.query_offset(queue, group, deadline()) == 1


# -- membership


def test_members_come_and_go_and_everybody_is_told(
    client: RemotingClient, told: Told, rocketmq: RocketMQServer, queue: Partition, group: str
) -> None:
    client.route(queue.topic, deadline())
    consumer = Consumer(group=group, subscriptions=(Subscription(topic=queue.topic, expression="a||b"),))
    assert client.consumer_ids(BROKER, group, deadline()) == []
    assert client.heartbeat([consumer], deadline()) == {}
    assert client.consumer_ids(BROKER, group, deadline()) == [client.client_id]
    with RemotingClient(rocketmq.namesrv, client_id="other") as other:
        other.route(queue.topic, deadline())
        other.heartbeat([consumer], deadline())
        while sorted(client.consumer_ids(BROKER, group, deadline())) != sorted([client.client_id, "other"]):
            told.notices.get(timeout=LONG_S)
        assert other.unregister(group, deadline()) == {}
        while client.consumer_ids(BROKER, group, deadline()) != [client.client_id]:
            told.notices.get(timeout=LONG_S)
        other.heartbeat([consumer], deadline())
    while client.consumer_ids(BROKER, group, deadline()) != [
        client.client_id
    ]:  # a connection that is closed leaves too
        assert told.notices.get(timeout=LONG_S).code == codes.FromBroker.CONSUMER_IDS_CHANGED


def test_who_is_connected_is_read(client: RemotingClient, admin: Admin, queue: Partition, group: str) -> None:
    client.route(queue.topic, deadline())
    assert admin.connections(BROKER, group, deadline()) is None
    client.heartbeat(
        [Consumer(group=group, subscriptions=(Subscription(topic=queue.topic, expression="a"),))], deadline()
    )
    found = admin.connections(BROKER, group, deadline())
    assert found is not None
    [member] = found.members
    assert (member.client_id, member.language) == (client.client_id, "PYTHON")
    assert found.subscriptions[queue.topic] == "a"
    assert (found.model, found.consume_type) == ("CLUSTERING", "CONSUME_PASSIVELY")


def test_locks_keep_others_out_until_they_are_given_back(
    client: RemotingClient, rocketmq: RocketMQServer, queue: Partition, group: str
) -> None:
    queues = client.route(queue.topic, deadline()).queues()
    assert client.lock(BROKER, group, queues, deadline()) == queues
    with RemotingClient(rocketmq.namesrv) as other:
        other.route(queue.topic, deadline())
        other.unlock(BROKER, group, queues, deadline())  # not its own
        assert other.lock(BROKER, group, queues, deadline()) == []
        client.unlock(BROKER, group, queues[:1], deadline())
        assert other.lock(BROKER, group, queues, deadline()) == queues[:1]


# -- giving back


def test_what_is_given_back_comes_again_as_itself(
    client: RemotingClient, sender: Sender, queue: Partition, group: str
) -> None:
    sender.send(queue, Message(queue.topic, b"again"), deadline())
    [message] = stored(client, queue, group, 1)
    sender.send_back(BROKER, group, message, deadline(), delay_level=1)
    retry = Partition(f"%RETRY%{group}", 0, BROKER)
    [again] = stored(client, retry, group, 1)
    assert (again.topic, again.origin_topic, again.reconsume_times) == (retry.topic, queue.topic, 1)
    assert (again.body, again.unique_key) == (b"again", message.unique_key)
    sender.send_back(BROKER, group, again, deadline(), max_reconsume_times=1)
    dead = Partition(f"%DLQ%{group}", 0, BROKER)
    [letter] = stored(client, dead, group, 1)
    assert (letter.body, letter.unique_key) == (b"again", message.unique_key)


def test_giving_back_what_is_nowhere_is_refused(
    client: RemotingClient, sender: Sender, queue: Partition, group: str
) -> None:
    client.route(queue.topic, deadline())
    nowhere = StoredMessage(queue.topic, 0, 0, raw_body=b"", physical_offset=1 << 50, store_host=(b"\x7f\0\0\1", 1))
    with pytest.raises(BrokerRefused):
        sender.send_back(BROKER, group, nowhere, deadline())


# -- tools


def test_lag_and_logs_are_read(
    client: RemotingClient, admin: Admin, sender: Sender, queue: Partition, group: str
) -> None:
    sender.send_batch(queue, [Message(queue.topic, b"x") for _ in range(5)], deadline())
    stored(client, queue, group, 5)
    client.commit_offset(queue, group, 2, deadline())
    lag = admin.lag(group, queue.topic, deadline())
    assert len(lag) == 4
    assert (lag[queue].broker_offset, lag[queue].consumer_offset) == (5, 2)
    assert lag[queue._replace(number=1)] == QueueLag(0, 0, 0)
    logs = admin.topic_stats(queue.topic, deadline())
    assert [(logs[each].min_offset, logs[each].max_offset) for each in sorted(logs)] == [(0, 5), (0, 0), (0, 0), (0, 0)]


def test_a_reset_is_told_by_the_next_pull_and_until_then_commits_are_ignored(
    client: RemotingClient, admin: Admin, sender: Sender, queue: Partition, group: str
) -> None:
    sender.send_batch(queue, [Message(queue.topic, b"x") for _ in range(5)], deadline())
    stored(client, queue, group, 5)
    client.commit_offset(queue, group, 5, deadline())
    admin.reset(group, queue, 1, deadline())
    with pytest.raises(CommitIgnored):
        client.commit_offset(queue, group, 4, deadline())
    answers: SimpleQueue[Any] = SimpleQueue()
    client.begin_commit(queue, group, 4, answers.put)
    assert isinstance(answers.get(timeout=LONG_S), CommitIgnored)
    moved = pull(client, queue, group, 5)
    assert (moved.status, moved.next_offset) == (PullStatus.MOVED, 1)
    client.commit_offset(queue, group, 3, deadline())
    assert client.query_offset(queue, group, deadline()) == 3
    with pytest.raises(BrokerRefused):
        admin.reset(group, queue, 1000, deadline())


def test_a_group_that_was_deleted_has_no_offset(
    client: RemotingClient, admin: Admin, queue: Partition, group: str
) -> None:
    client.commit_offset(queue, group, 5, deadline())
    admin.delete_group(group, deadline())
    assert client.query_offset(queue, group, deadline()) is None


# -- TLS


def test_a_broker_and_a_name_server_are_spoken_to_over_tls(
    rocketmq: RocketMQServer, queue: Partition, group: str
) -> None:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # RocketMQ's own certificate for tests
    with RemotingClient(rocketmq.namesrv, tls=context) as client:
        sender = Sender(client)
        body = bytes(range(256)) * 4000  # more than a record of TLS, and more than a socket takes at once
        threads = [
            threading.Thread(target=sender.send, args=(queue, Message(queue.topic, body), deadline())) for _ in range(8)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join(LONG_S)
        assert [each.body for each in stored(client, queue, group, 8)] == [body] * 8
