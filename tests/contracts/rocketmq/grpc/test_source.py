"""LeasedSource on a real RocketMQ 5.5.0 with its proxy: what it keeps, and what cannot be kept."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from holdfast import RedisClaims, RedisCoordinator, Retry
from holdfast.adapters.rocketmq import LeasedSource
from holdfast.adapters.rocketmq.grpc.broker_look import NothingDelivered
from holdfast.adapters.rocketmq.grpc.delivery import PollTarget, Verdict
from holdfast.dedup.groups import Member
from holdfast.errors import ClusterDiffers, SettingError, SourceUnavailable, SubscriptionDiffers, UnknownTopic
from holdfast.plugin.assign import sticky
from holdfast.timing import Deadline
from tests.contracts.rocketmq.grpc.lab import AGAIN_S, LEASE_S, PATIENCE_S, App, Field, Gate
from tests.contracts.rocketmq.grpc.stories import story
from tests.harness.processes import free_ports
from tests.harness.waiting import until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.adapters.rocketmq.grpc.client import Client
    from holdfast.adapters.rocketmq.grpc.delivery import Delivery
    from tests.contracts.rocketmq.grpc.lab import Lab


def values(count: int) -> list[str]:
    return [f"x{number}" for number in range(count)]


def receive(client: Client, topic: str) -> Delivery:
    """The next message, however long it takes."""
    return until(lambda: client.receive(PollTarget(topic, "broker-a"), 1), topic, patience_s=PATIENCE_S)[0]


def change(client: Client, delivery: Delivery, hidden_s: int) -> tuple[Verdict, str]:
    answered: list[tuple[Verdict, str]] = []
    over = threading.Event()

    def answer(verdict: Verdict, receipt: str) -> None:
        answered.append((verdict, receipt))
        over.set()

    client.begin_change(delivery, hidden_s, answer)
    assert over.wait(PATIENCE_S)
    return answered[0]


def acknowledge(client: Client, delivery: Delivery) -> Verdict:
    answered: list[Verdict] = []
    over = threading.Event()

    def answer(verdicts: Sequence[Verdict]) -> None:
        answered.extend(verdicts)
        over.set()

    client.begin_acknowledge([delivery], answer)
    assert over.wait(PATIENCE_S)
    return answered[0]


def is_all_acknowledged(source: LeasedSource) -> bool:
    """Of a source that is closed: the broker has said so of all that it took, and it was in time."""
    leases = source._leases
    return leases.settled and leases.load == 0 and not leases._book


# ---- messages


@story
def test_each_message_is_handled_once_and_acknowledged(lab: Lab) -> None:
    field = lab.field()
    field.fill(*values(300))
    sources = [field.source(invisible_s=60) for _ in range(2)]
    with field.app(sources[0]), field.app(sources[1]):
        field.gate.wait_for(values(300))
    assert field.gate.twice == []
    assert all(is_all_acknowledged(source) for source in sources)


@story
def test_what_a_record_says(lab: Lab) -> None:
    field = lab.field()
    unique = lab.ask.send(field.topic, "x", keys="order-7", tags="paid", properties={"origin": "web"})
    with field.app():
        field.gate.wait_for(["x"])
    record = field.gate.records["x"]
    assert (record.topic, record.key, record.value) == (field.topic, b"order-7", b"x")
    assert (record.header("UNIQ_KEY"), record.header("KEYS")) == (unique.encode(), b"order-7")
    assert (record.header("TAGS"), record.header("origin")) == (b"paid", b"web")
    assert record.header("RECONSUME_TIMES") is None
    assert record.timestamp_ms > 0


@story
def test_of_copies_under_one_unique_key_one_runs(lab: Lab) -> None:
    field = lab.field()
    for _ in range(3):
        lab.ask.send(field.topic, "x", properties={"UNIQ_KEY": "0A"})
    lab.ask.send(field.topic, "y")
    with field.app():
        field.gate.wait_for("xy")
        lab.ask.send(field.topic, "x", properties={"UNIQ_KEY": "0A"})
        lab.ask.send(field.topic, "z")
        field.gate.wait_for("z")
    assert field.gate.twice == []


@story
def test_of_two_messages_under_one_unique_key_both_run(lab: Lab) -> None:
    field = lab.field()
    for value in "xyx":
        lab.ask.send(field.topic, value, properties={"UNIQ_KEY": "0B"})
    source = field.source()
    with field.app(source):
        field.gate.wait_for("xy")
        lab.ask.send(field.topic, "z")
        field.gate.wait_for("z")
    assert field.gate.twice == []
    assert is_all_acknowledged(source)


@story
def test_of_messages_with_one_business_key_one_runs(lab: Lab) -> None:
    field = lab.field()
    field.fill(*('{"id": 7}' for _ in range(40)), '{"id": 8}')
    with field.app(key="id"), field.app(key="id"):
        field.gate.wait_for(['{"id": 7}', '{"id": 8}'])
    assert field.gate.twice == []


@story
def test_only_messages_with_the_tags_that_are_wanted_come(lab: Lab) -> None:
    field = lab.field()
    for tag in ("paid", "open", "refunded", "open"):
        lab.ask.send(field.topic, tag, tags=tag)
    with field.app(field.source(tags={field.topic: "paid || refunded"})):
        field.gate.wait_for(["paid", "refunded"])
    assert set(field.gate.started) == {"paid", "refunded"}


@story
def test_messages_of_a_fifo_group_are_handled_one_after_the_other_in_their_order(lab: Lab) -> None:
    field = Field(lab, lab.ask.topic(kind="FIFO", queues=2), lab.ask.fifo_group())
    for number in range(30):
        group = f"customer-{number % 3}"
        lab.ask.send(field.topic, f"{group} {number:02}", properties={"__SHARDINGKEY": group})
    wanted = [f"customer-{number % 3} {number:02}" for number in range(30)]
    with field.app(), field.app():
        field.gate.wait_for(wanted)
    assert field.gate.twice == []
    for customer in range(3):
        of_one = [value for value in field.gate.started if value.startswith(f"customer-{customer}")]
        assert of_one == sorted(of_one)


# ---- leases


@story
def test_a_handler_may_run_for_longer_than_the_lease_and_nobody_else_gets_its_message(lab: Lab) -> None:
    field = lab.field()
    field.gate.hold(*values(12))
    field.fill(*values(12))
    with field.app(workers=12), field.app(workers=12):
        field.gate.wait(lambda: len(field.gate.started) == 12)
        time.sleep(2 * AGAIN_S)
        field.gate.let_go()
        field.gate.wait_for(values(12))
    assert field.gate.twice == []


@story
def test_what_a_stop_gives_back_is_with_others_long_before_its_lease_would_end(lab: Lab) -> None:
    field = lab.field()
    field.gate.hold(*values(200))
    field.fill(*values(200))
    source = field.source(invisible_s=600)
    with field.app(source, workers=4) as first:
        field.gate.wait(lambda: len(field.gate.started) == 4)
        held = list(field.gate.started)
        first.app.stop()
        with field.app(field.source(invisible_s=600)):
            field.gate.let_go(*(set(values(200)) - set(held)))
            field.gate.wait_for(set(values(200)) - set(held))
            field.gate.let_go()
            field.gate.wait_for(values(200))
    assert field.gate.twice == []


@story
def test_what_comes_while_one_leaves_is_given_back(lab: Lab) -> None:
    """The broker counts it as handed out; only who has seen it can give it back before 600 s are over."""
    field = lab.field()
    sent: list[str] = []
    left = threading.Event()

    def send() -> None:
        while not left.wait(0.005):
            field.fill(f"x{len(sent)}")
            sent.append(f"x{len(sent)}")

    sender = threading.Thread(target=send)
    sender.start()
    try:
        for _ in range(10):
            with field.app(field.source(invisible_s=600)):
                field.gate.wait_for([f"x{len(sent)}"])
    finally:
        left.set()
        sender.join()
    with field.app(field.source(invisible_s=600)):
        field.gate.wait_for(sent)


@story
def test_what_is_taken_in_is_bounded(lab: Lab) -> None:
    field = lab.field()
    field.gate.hold(*values(300))
    field.fill(*values(300))
    source = field.source(in_flight=20)
    with field.app(source):
        field.gate.wait(lambda: len(field.gate.started) == 8)
        time.sleep(3)  # time enough to take more
        assert source._leases.load <= 20
        field.gate.let_go()
        field.gate.wait_for(values(300))


@story
def test_two_renewals_by_one_receipt_are_accepted_and_the_message_comes_twice(lab: Lab) -> None:
    """Why a receipt is renewed once."""
    field = lab.field()
    lab.ask.send(field.topic, "x")
    client = field.client()
    first = receive(client, field.topic)
    renewed = [change(client, first, LEASE_S) for _ in range(2)]
    assert [verdict for verdict, _ in renewed] == [Verdict.DONE, Verdict.DONE]
    assert acknowledge(client, first._replace(receipt=renewed[1][1])) is Verdict.DONE
    assert receive(client, field.topic).message_id == first.message_id
    client.close()


@story
def test_an_acknowledgement_by_a_receipt_that_was_renewed_is_accepted_and_has_no_effect(lab: Lab) -> None:
    """Why an acknowledgement waits for a renewal that is under way."""
    field = lab.field()
    lab.ask.send(field.topic, "x")
    client = field.client()
    first = receive(client, field.topic)
    assert change(client, first, LEASE_S)[0] is Verdict.DONE
    assert acknowledge(client, first) is Verdict.DONE
    assert receive(client, field.topic).message_id == first.message_id
    client.close()


@story
def test_a_poll_that_is_ended_takes_no_message_any_more(lab: Lab) -> None:
    """Why a stop ends polls that wait: what comes after it has its first delivery at another member."""
    field = lab.field()
    lab.ask.send(field.topic, "first")
    stops, stays = field.client(), field.client()
    assert acknowledge(stops, receive(stops, field.topic)) is Verdict.DONE
    place = PollTarget(field.topic, "broker-a")
    for number in range(3):
        ended: list[Exception] = []

        def poll(ended: list[Exception] = ended) -> None:
            try:
                while True:
                    stops.receive(place, 32)
            except SourceUnavailable as error:
                ended.append(error)

        polling = threading.Thread(target=poll)
        polling.start()
        while polling.is_alive():
            stops.end_poll(place)
            polling.join(0.1)
        assert ended
        lab.ask.send(field.topic, f"x{number}")
        next_one = receive(stays, field.topic)
        assert (next_one.body, next_one.attempt) == (f"x{number}".encode(), 1)
        assert acknowledge(stays, next_one) is Verdict.DONE
    stops.close()
    stays.close()


@story
def test_an_acknowledgement_may_be_repeated_and_is_refused_after_the_lease(lab: Lab) -> None:
    field = lab.field()
    lab.ask.send(field.topic, "x")
    client = field.client()
    first = receive(client, field.topic)
    assert [acknowledge(client, first) for _ in range(2)] == [Verdict.DONE, Verdict.DONE]
    client.close()
    lab.ask.send(field.topic, "y")
    client = field.client(LEASE_S)
    late = receive(client, field.topic)
    time.sleep(AGAIN_S)
    assert acknowledge(client, late) is Verdict.OVER
    client.close()


@story
def test_without_a_store_a_message_that_comes_again_to_its_process_does_not_run_again(lab: Lab) -> None:
    field = lab.field()
    field.gate.hold("x")
    lab.ask.send(field.topic, "x")
    source = field.source()
    with field.app(source, claims=False):
        field.gate.wait(lambda: field.gate.started == ["x"])
        source._leases.renew = lambda numbers: None  # type: ignore[method-assign]  # its lease ends meanwhile
        time.sleep(2 * AGAIN_S)
        field.gate.let_go()
        field.gate.wait_for("x")
        lab.ask.send(field.topic, "y")
        field.gate.wait_for("y")
    assert field.gate.started == ["x", "y"]


# ---- failures


@story
def test_what_fails_for_good_is_dead_lettered_and_acknowledged(lab: Lab) -> None:
    field = lab.field()
    letters = lab.ask.topic()
    field.fill("bad", "good")
    source = field.source(namesrv=lab.server.namesrv, invisible_s=60)
    field.gate.fail("bad")
    with field.app(source, handler={"dead_letter": letters, "retry": Retry(attempts=2, wait_initial_s=0.1)}):
        field.gate.wait(lambda: field.gate.started.count("bad") == 2 and "good" in field.gate.ended)
        field.fill("end")
        field.gate.wait_for(["end"])
    assert lab.ask.messages(letters) == 1
    assert field.gate.started.count("bad") == 2
    assert is_all_acknowledged(source)


@story
def test_a_message_that_cannot_be_read_is_a_dead_letter_and_hides_none_of_its_neighbours(lab: Lab) -> None:
    """Java's producers may compress by LZ4 and Zstandard too, of which the proxy says that it is zlib."""
    field, letters = lab.field(queues=1), lab.ask.topic()
    for value, flags in (("before", 0), ("not compressed", 0x301), ("after", 0)):
        lab.ask.send(field.topic, value, sys_flag=flags)
    source = field.source(namesrv=lab.server.namesrv)
    with field.app(source, handler={"dead_letter": letters}):
        field.gate.wait_for(["before", "after"])
        until(lambda: lab.ask.messages(letters) == 1, patience_s=PATIENCE_S)
    assert sorted(field.gate.started) == ["after", "before"]
    assert is_all_acknowledged(source)


@story
def test_dead_letters_without_name_servers_are_refused_at_the_start(lab: Lab) -> None:
    app = App(LeasedSource(lab.endpoints, "nobody"), ["orders"], Gate(), None, handler={"dead_letter": "letters"})
    with pytest.raises(SettingError, match="namesrv"):
        app.run()


# ---- what does not hold


@story
def test_the_lag_by_offsets_says_nothing_is_left_while_nothing_is_handled(lab: Lab) -> None:
    field = lab.field()
    field.gate.hold(*values(20))
    field.fill(*values(20))
    with field.app():
        field.gate.wait(lambda: len(field.gate.started) == 8)
        until(  # what is given out last may be on its way
            lambda: lab.ask.lag(field.group, field.topic) == 0, patience_s=PATIENCE_S
        )
        assert field.gate.ended == []
        field.gate.let_go()
        field.gate.wait_for(values(20))


@story
def test_a_message_that_was_given_back_too_often_goes_to_the_group_s_dead_letters(lab: Lab) -> None:
    field = Field(lab, lab.ask.topic(), lab.ask.group(retries=2))
    lab.ask.send(field.topic, "x")
    client = field.client()
    for attempt in (1, 2, 3):
        found = receive(client, field.topic)
        assert found.attempt == attempt
        assert change(client, found, 0)[0] is Verdict.DONE
    ends = time.monotonic() + AGAIN_S
    while time.monotonic() < ends:
        assert client.receive(PollTarget(field.topic, "broker-a"), 1) == []
    client.close()


@story
def test_a_group_with_retry_max_times_below_0_gets_no_message_and_is_refused_where_brokers_can_be_asked(
    lab: Lab,
) -> None:
    field = Field(lab, lab.ask.topic(), lab.ask.group(retries=-1))
    with field.app():
        lab.ask.send(field.topic, "x")
        letters = f"%DLQ%{field.group}"
        until(lambda: is_there(lab, letters) and lab.ask.messages(letters) == 1, patience_s=PATIENCE_S)
    assert field.gate.started == []
    with pytest.raises(NothingDelivered, match="retryMaxTimes=-1"):
        field.app(field.source(namesrv=lab.server.namesrv)).app.run()


def is_there(lab: Lab, topic: str) -> bool:
    try:
        return bool(lab.ask.client.route(topic, Deadline(PATIENCE_S), fresh=True).queues())
    except UnknownTopic:
        return False


# ---- the start


@story
def test_of_two_that_take_other_tags_of_a_topic_the_second_is_refused(lab: Lab) -> None:
    """As in a rolling deploy that adds a tag: whoever asked first would pass over half of its messages, for both."""
    field = lab.field()
    with field.app(field.source(tags={field.topic: "Paid"})) as first:
        until(lambda: first.app.snapshot().state == "running", patience_s=PATIENCE_S)  # else it is the second
        for tags in ("Paid || Refunded", "*"):
            with pytest.raises(SubscriptionDiffers, match=r"Paid"):
                field.app(field.source(tags={field.topic: tags})).app.run()
        other = lab.ask.topic()
        store = RedisClaims.from_url(lab.redis_url, namespace=field.group)
        with App(field.source(tags={field.topic: "Paid"}), [field.topic, other], field.gate, store):
            lab.ask.send(other, "of a topic that the first does not have")
            field.gate.wait_for(["of a topic that the first does not have"])
    with field.app(field.source(tags={field.topic: "Paid || Refunded"})):
        lab.ask.send(field.topic, "new", tags="Refunded")
        field.gate.wait_for(["new"])


@story
def test_a_group_whose_members_are_at_another_cluster_is_refused_where_name_servers_are_given(lab: Lab) -> None:
    field = lab.field()
    store = RedisClaims.from_url(lab.redis_url, namespace=field.group)
    with field.app(field.source(namesrv=lab.server.namesrv)):
        name = f"{field.group} (LeasedSource, {field.topic})"
        [member] = until(lambda: RedisCoordinator(store).members(name), patience_s=PATIENCE_S)
        assert {lab.server.namesrv, lab.server.address()} <= member.servers
        there = Member(client_id="there", subscription=f"{field.topic}:*", servers=frozenset({"10.9.9.9:9876"}))
        with pytest.raises(ClusterDiffers, match=r"namespace="):
            RedisCoordinator(store).join(name, there, Deadline(PATIENCE_S), strategy=sticky, wake=lambda: None)
        with field.app():  # it does not tell
            field.fill("x")
            field.gate.wait_for(["x"])


@story
def test_a_topic_that_does_not_exist_is_said(lab: Lab) -> None:
    source = LeasedSource(lab.endpoints, "nobody")
    with pytest.raises(UnknownTopic, match=r"(?s)no-such-topic.*nor-such-a-topic|nor-such-a-topic.*no-such-topic"):
        App(source, ["no-such-topic", "nor-such-a-topic"], Gate(), None).run()


@story
def test_a_proxy_that_is_not_there_is_said(lab: Lab) -> None:
    [port] = free_ports(1)
    said = f"^127.0.0.1:{port} refuses connections: nothing listens there: check the address, and that the server runs$"
    app = App(LeasedSource(f"127.0.0.1:{port}", "nobody"), ["orders"], Gate(), None, startup_timeout_s=2.0)
    with pytest.raises(SourceUnavailable, match=said):
        app.run()


@story
def test_patterns_are_refused(lab: Lab) -> None:
    with pytest.raises(SettingError, match="no patterns"):
        App(LeasedSource(lab.endpoints, "nobody"), ["^orders"], Gate(), None).run()
