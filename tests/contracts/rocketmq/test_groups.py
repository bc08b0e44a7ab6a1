"""Who may be in a group on the real broker, and which queues it reads."""

from __future__ import annotations

import re
import threading
from dataclasses import replace

import pytest

from holdfast import Holdfast, MemoryClaims, RedisClaims, RedisCoordinator, Settings
from holdfast.adapters.rocketmq import RocketMQSource
from holdfast.adapters.rocketmq.remoting import Consumer, RemotingClient, Subscription
from holdfast.dedup.groups import Member
from holdfast.errors import (
    ClusterDiffers,
    ForeignMembers,
    SettingError,
    SourceUnavailable,
    SubscriptionDiffers,
    UnknownTopic,
)
from holdfast.plugin.assign import sticky
from holdfast.plugin.events import SessionLost, SourceTrouble
from holdfast.timing import Deadline
from tests.harness.kafka_brokers import closed_port
from tests.harness.rocketmq_field import PATIENCE_S, QUICK, Field, numbered
from tests.harness.servers.rocketmq import RocketMQServer

__all__ = ["closed_port"]


def stranger(field: Field) -> RemotingClient:
    """As a program with one of RocketMQ's own clients."""
    client = RemotingClient(field.server.namesrv, client_id="10.0.0.9@4711")
    client.route(field.topic, Deadline(PATIENCE_S))
    subscriptions = (Subscription(topic=field.topic),)
    assert client.heartbeat([Consumer(group=field.group, subscriptions=subscriptions)], Deadline(PATIENCE_S)) == {}
    return client


class TestForeignMembers:
    def test_a_group_with_other_programs_in_it_is_refused(self, rocketmq: RocketMQServer, redis_url: str) -> None:
        with Field(rocketmq, redis_url) as field, stranger(field):
            app = field.app()
            with pytest.raises(ForeignMembers, match=re.escape("10.0.0.9@4711")):
                app.join()

    def test_by_choice_it_goes_on_all_the_same(self, rocketmq: RocketMQServer, redis_url: str) -> None:
        with Field(rocketmq, redis_url) as field, stranger(field):
            field.produce("x")
            field.app(foreign_members="warn")
            field.wait_handled("x")

    def test_of_one_that_comes_later_it_is_told(self, rocketmq: RocketMQServer, redis_url: str) -> None:
        with Field(rocketmq, redis_url) as field:
            app = field.app()
            field.wait(lambda: len(app.owns) == 4)
            with stranger(field):
                field.wait(lambda: any("10.0.0.9@4711" in event.error for event in app.told(SourceTrouble)))

    def test_the_brokers_tools_see_the_members(self, rocketmq: RocketMQServer, redis_url: str) -> None:
        with Field(rocketmq, redis_url) as field:
            first, second = field.app(), field.app()
            field.wait(lambda: len(first.owns) == len(second.owns) == 2)
            broker = field.queues()[0].broker
            names = {app.source._client.client_id for app in (first, second)}
            field.wait(lambda: set(field.client.consumer_ids(broker, field.group, Deadline(5))) == names)
            first.stop()
            second.stop()
            field.wait(lambda: field.client.consumer_ids(broker, field.group, Deadline(5)) == [])


class TestClusters:
    def test_a_member_says_where_its_name_servers_and_brokers_are(
        self, rocketmq: RocketMQServer, redis_url: str
    ) -> None:
        with Field(rocketmq, redis_url) as field:
            app = field.app()
            field.wait(lambda: len(app.owns) == 4)
            [member] = RedisCoordinator(app.store).members(field.group)
            assert member.servers == {rocketmq.namesrv, *(rocketmq.address(each) for each in rocketmq.brokers)}

    def test_a_group_whose_members_are_at_another_cluster_is_refused_with_the_remedy(
        self, rocketmq: RocketMQServer, redis_url: str
    ) -> None:
        with Field(rocketmq, redis_url) as field:
            app = field.app(start=False)
            there = Member(
                client_id="there@1", subscription=f"{field.topic}:*", servers=frozenset({"10.9.9.9:9876", "10.9.9.9:1"})
            )
            other = RedisCoordinator(app.store).join(
                field.group, there, Deadline(PATIENCE_S), strategy=sticky, wake=lambda: None, queues=field.queues()
            )
            app.start()
            with pytest.raises(ClusterDiffers, match=r"there@1.*10\.9\.9\.9:9876.*namespace="):
                app.join()
            other.leave(Deadline(PATIENCE_S))
            later = field.app()
            field.wait(lambda: len(later.owns) == 4)


class TestSubscriptions:
    def test_members_that_subscribe_otherwise_are_refused(self, rocketmq: RocketMQServer, redis_url: str) -> None:
        with Field(rocketmq, redis_url) as field:
            first = field.app(subscriptions={field.topic: "b||a"})
            field.wait(lambda: len(first.owns) == 4)
            other = field.app(subscriptions={field.topic: "c"})
            with pytest.raises(SubscriptionDiffers, match=r"a \|\| b"):
                other.join()
            alike = field.app(subscriptions={field.topic: "a || b"})
            field.wait(lambda: len(first.owns) == len(alike.owns) == 2)

    def test_a_topic_that_does_not_exist_is_refused(self, rocketmq: RocketMQServer, redis_url: str) -> None:
        with Field(rocketmq, redis_url) as field:
            app = field.app(topics=f"{field.topic}-x")
            with pytest.raises(UnknownTopic):
                app.join()

    def test_queues_that_are_added_are_read(self, rocketmq: RocketMQServer, redis_url: str) -> None:
        with Field(rocketmq, redis_url, queues=2) as field:
            first, second = field.app(), field.app()
            field.wait(lambda: len(first.owns) == len(second.owns) == 1)
            field.create(field.topic, 6)
            field.wait(lambda: len(first.owns) == len(second.owns) == 3)
            field.produce(*numbered("x", 12))
            field.wait_committed()
        assert sorted(field.values()) == sorted(numbered("x", 12))

    def test_queues_that_are_removed_are_done_before_they_go(self, rocketmq: RocketMQServer, redis_url: str) -> None:
        with Field(rocketmq, redis_url, queues=4) as field:
            field.produce(*numbered("x", 40))
            app = field.app()
            field.wait(lambda: len(app.owns) == 4)
            field.admin.create_topic(field.topic, Deadline(PATIENCE_S), read_queues=4, write_queues=2)
            field.wait_committed()
            field.create(field.topic, 2)
            field.wait(lambda: len(app.owns) == 2)
            field.produce(*numbered("y", 4))
            field.wait_committed()
        assert sorted(field.values()) == sorted([*numbered("x", 40), *numbered("y", 4)])

    def test_topics_that_come_to_match_a_pattern_are_read(self, rocketmq: RocketMQServer, redis_url: str) -> None:
        with Field(rocketmq, redis_url, queues=2) as field:
            app = field.app(topics=f"^{field.topic}")
            field.wait(lambda: len(app.owns) == 2)
            field.create(f"{field.topic}-new", 3)
            field.produce("x", topic=f"{field.topic}-new")
            field.wait_handled("x")
            field.wait(lambda: len(app.owns) == 5)


class TestStalls:
    def test_a_member_whose_loop_stands_still_loses_its_queues_and_comes_back(
        self, rocketmq: RocketMQServer, redis_url: str
    ) -> None:
        with Field(rocketmq, redis_url, queues=2) as field:
            hangs, going = threading.Event(), threading.Event()

            def hang(_: object) -> None:
                if not hangs.is_set():
                    hangs.set()
                    going.wait(20)

            field.do = hang
            field.produce("x", queue=0)
            inline = replace(QUICK, workers=0, drain_timeout_s=0.5)
            first = field.app("first", settings=inline, lease_s=0.5, max_poll_interval_s=1.0)
            assert hangs.wait(20)
            second = field.app("second", settings=replace(QUICK, drain_timeout_s=0.5), max_poll_interval_s=1.0)
            field.wait(lambda: len(second.owns) == 2)
            field.wait_handled("x")  # the second's: a handler in the loop's own thread is in hand for as long as it is
            field.wait_committed()
            going.set()
            field.wait(lambda: first.told(SessionLost))
            field.wait(lambda: len(first.owns) == len(second.owns) == 1)
            field.produce(*numbered("y", 10))
            field.wait_committed()
        # On a busy machine the first's short lease may end once more: of what comes then, some may run again.
        assert set(field.values()) == {"x", *numbered("y", 10)}
        assert field.values().count("x") == 2


class TestSettings:
    def test_a_store_is_needed_and_it_is_the_coordinators(self) -> None:
        store = RedisClaims.from_url("redis://127.0.0.1:1/0")
        source = RocketMQSource("127.0.0.1:1", "g", coordinator=RedisCoordinator(store))
        with pytest.raises(SettingError, match="lease lives there"):
            Holdfast(source, claims=None)
        with pytest.raises(SettingError, match="coordinator's own"):
            Holdfast(source, claims=MemoryClaims())
        with pytest.raises(SettingError, match="store_down"):
            Holdfast(source, claims=store, settings=Settings(store_down="open"))
        Holdfast(source, claims=store)
        store.close()

    def test_a_start_before_any_broker_has_registered_ends_with_the_topic_that_it_waited_for(
        self, redis_url: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        store = RedisClaims.from_url(redis_url)
        with RocketMQServer(brokers=0) as alone:
            source = RocketMQSource(alone.namesrv, "g", coordinator=RedisCoordinator(store))
            app = Holdfast(source, claims=store, settings=Settings(startup_timeout_s=2.0))
            app.handler("orders", name="x")(lambda _: None)
            with pytest.raises(UnknownTopic, match="orders"):
                app.run()
        assert "trying for another" in caplog.text
        store.close()

    def test_a_start_without_a_name_server_ends_with_what_it_waited_for(self, closed_port: str, redis_url: str) -> None:
        store = RedisClaims.from_url(redis_url)
        source = RocketMQSource(closed_port, "g", coordinator=RedisCoordinator(store))
        app = Holdfast(source, claims=store, settings=Settings(startup_timeout_s=1.0))
        app.handler("orders", name="x")(lambda _: None)
        with pytest.raises(SourceUnavailable, match=closed_port):
            app.run()
        store.close()
