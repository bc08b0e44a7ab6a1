"""A Redis Cluster: where a call goes while slots move, what is sent again, what is said when a node cannot serve."""

from __future__ import annotations

import logging
import os
import re
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis
from redis.crc import key_slot

from holdfast.adapters.cli.entry import main
from holdfast.dedup.claims import Acquired, Claim, ClaimKey, Mark, Token, Verdict
from holdfast.dedup.redis_admin import RedisAdmin
from holdfast.dedup.redis_existing import existing_claims
from holdfast.dedup.redis_store import RedisClaims
from holdfast.errors import AccessRefused, SettingError, StoreRefused, StoreUnavailable
from tests.contracts.redis.bad_urls import SECRET, refused_without_its_password
from tests.contracts.redis.test_faults import answered
from tests.harness.servers.certificates import Certificates
from tests.harness.servers.redis_cluster import RedisCluster
from tests.harness.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.harness.servers.redis import RedisServer

LEASE_S = 3600.0
PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "store.md"
#: Enough for each of three masters to have some.
SHARDS = 6
TAG = "{hf:t:0}"  # of a store with one shard


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    """One whose slots may be moved, and whose nodes are all as they were when a test ends."""
    with RedisCluster() as made:
        yield made


@pytest.fixture
def store(cluster: RedisCluster) -> Iterator[RedisClaims]:
    cluster.flush()
    made = RedisClaims.from_url(cluster.url, namespace="t")
    yield made
    made.close()


def claim(key: str, offset: int = 0) -> Claim:
    return Claim(ClaimKey("h", key), Token("p", offset, 1))


def claims(count: int, prefix: str = "k") -> list[Claim]:
    return [claim(f"{prefix}{number}", number) for number in range(count)]


class TestUrl:
    @pytest.mark.parametrize(
        "url",
        [
            "redis+cluster://",
            f"redis+cluster://app:{SECRET}@h1:port",
            "redis+cluster://app:secret@h1:1,",
            "redis+cluster://app:secret@h1:1/2",
            "redis+cluster://app:secret@h1:1?socket_timeout=x",
            "rediss+cluster://app:secret@h1:1,h2:x",
            "redis+cluster://app:secret@h1:1?address_remap=h1:1=nat",
            "redis+cluster://app:secret@h1:1?address_remap=h1:1",
        ],
    )
    def test_one_that_cannot_be_read_is_refused_with_a_sample_and_without_its_password(self, url: str) -> None:
        refused_without_its_password(url, r"redis\+cluster://user:password@host:port")

    def test_an_option_that_would_be_dropped_is_refused(self) -> None:
        with pytest.raises(SettingError, match="leave out ssl_min_version: redis-py"):
            RedisClaims.from_url("rediss+cluster://app:pass1@h1?ssl_min_version=3&ssl_ca_certs=/ca.pem")

    def test_it_names_nodes_and_no_password_is_shown(self) -> None:
        made = RedisClaims.from_url("rediss+cluster://app:pass1@127.0.0.1:1,[::1]:2,h3?ssl_check_hostname=false")
        assert "127.0.0.1:1, ::1:2, h3:6379" in repr(made)
        assert "pass1" not in repr(made)
        made.close()

    def test_addresses_are_translated_for_a_cluster_only(self) -> None:
        with pytest.raises(SettingError, match="for a Redis Cluster"):
            RedisClaims.from_url("redis://h:1", address_remap=lambda address: address)

    def test_nobody_there_is_unavailable(self) -> None:
        made = RedisClaims.from_url("redis+cluster://app:pass1@127.0.0.1:1")
        with pytest.raises(StoreUnavailable, match=r"Redis at 127\.0\.0\.1:1") as caught:
            made.connect()
        assert "pass1" not in "".join(traceback.format_exception(caught.value))
        made.close()

    def test_a_server_that_is_no_cluster_is_named_as_that(self, redis_server: RedisServer) -> None:
        made = RedisClaims.from_url(f"redis+cluster://127.0.0.1:{redis_server.port}")
        with pytest.raises(StoreRefused, match="give the URL as redis://"):
            made.connect()
        made.close()


class TestSlotsThatMove:
    """The judge is the statistics of the nodes: what they have run, and what they have refused."""

    def test_a_call_follows_its_slot_and_is_run_once(self, cluster: RedisCluster, store: RedisClaims) -> None:
        session = store.begin(LEASE_S)
        assert session.claim([claim("before")]) == [Verdict.NEW]
        source = cluster.master_of(TAG)
        target = next(node for node in cluster.masters if node is not source)
        cluster.move(TAG, target)
        cluster.reset_statistics()
        assert session.claim([claim("after")]) == [Verdict.NEW]
        assert session.finish([claim("before"), claim("after", 1)]) == [Verdict.DONE, Verdict.FENCED]
        assert cluster.evaluated() == 2
        refused = source.ask("INFO", "commandstats")["cmdstat_evalsha"]["rejected_calls"]
        assert refused == 1  # the first call only
        cluster.move(TAG, source)
        assert session.renew()

    def test_between_two_nodes_what_needs_both_waits_and_a_session_stays_alive(
        self, cluster: RedisCluster, store: RedisClaims
    ) -> None:
        session = store.begin(LEASE_S)
        [own] = session.acquire(["p"])
        assert isinstance(own, Acquired)
        held = claims(5, "held")
        assert session.claim(held) == [Verdict.NEW] * 5
        source = cluster.master_of(TAG)
        target = next(node for node in cluster.masters if node is not source)
        renewed, waited = [], []

        def look() -> None:
            renewed.append(session.renew())
            try:
                session.claim([claim("new")])
            except StoreUnavailable as error:
                waited.append(str(error))

        cluster.reset_statistics()
        cluster.move(TAG, target, between=look)
        assert all(renewed)
        assert len(renewed) > 8
        assert waited
        assert all("takes no calls now" in each for each in waited)
        assert target.ask("INFO", "commandstats")["cmdstat_asking"]["calls"]
        assert session.claim([claim("new")]) == [Verdict.NEW]
        assert session.finish([*held, claim("new")]) == [Verdict.DONE] * 6
        assert session.mark([Mark("p", own.epoch, 3, [])]) == [frozenset()]
        cluster.move(TAG, source)

    def test_a_node_that_was_added_gets_slots_and_is_found(self, cluster: RedisCluster) -> None:
        cluster.flush()
        store = RedisClaims.from_url(cluster.url, namespace="t", shards=SHARDS)
        session = store.begin(LEASE_S)
        assert session.claim(claims(50)) == [Verdict.NEW] * 50
        new = cluster.add_master()
        homes = {shard: cluster.master_of(f"{{hf:t:{shard}}}") for shard in (0, 1)}
        for shard in homes:
            cluster.move(f"{{hf:t:{shard}}}", new)
        cluster.reset_statistics()
        assert session.renew()
        assert session.finish(claims(50)) == [Verdict.DONE] * 50
        assert new.ask("INFO", "commandstats")["cmdstat_evalsha"]["calls"] >= 2
        assert {"done": RedisAdmin.of(store).stats().done} == {"done": 50}
        for shard, home in homes.items():
            cluster.move(f"{{hf:t:{shard}}}", home)
        assert session.claim(claims(50)) == [Verdict.DONE] * 50
        cluster.remove(new)
        store.close()

    @pytest.mark.filterwarnings("ignore:.*retry_on_timeout")
    def test_a_client_of_the_callers_is_used_for_its_nodes_alone_whatever_it_retries(
        self, cluster: RedisCluster
    ) -> None:
        cluster.flush()
        first = cluster.masters[0]
        options: dict[str, Any] = {"socket_timeout": 0.3, "retry_on_timeout": True}
        with redis.RedisCluster(host="127.0.0.1", port=first.port, **options) as client:
            store = RedisClaims(client, namespace="t")
            session = store.begin(LEASE_S)
            silent = cluster.master_of(TAG)
            cluster.reset_statistics()
            silent.pause()
            with pytest.raises(StoreUnavailable, match=f"127.0.0.1:{silent.port} of the cluster"):
                session.claim([claim("k")])
            silent.resume()
            # Late, and once: redis-py would have sent it again.
            until(lambda: silent.ask("INFO", "commandstats").get("cmdstat_evalsha", {}).get("calls") == 1)
            assert answered(lambda: session.claim([claim("k")])) == [Verdict.NEW]
            assert cluster.evaluated() == 2
            store.close()
            assert client.get("nothing") is None

    @pytest.mark.parametrize(
        ("options", "word"),
        [
            ({"socket_timeout": None}, "socket_timeout"),
            ({"socket_timeout": 1.0, "decode_responses": True}, "decode_responses"),
            ({"socket_timeout": 1.0, "read_from_replicas": True}, "replicas"),
        ],
    )
    @pytest.mark.filterwarnings("ignore:.*read_from_replicas")
    def test_a_client_that_would_break_the_protocol_is_refused(
        self, cluster: RedisCluster, options: dict[str, Any], word: str
    ) -> None:
        client = redis.RedisCluster(host="127.0.0.1", port=cluster.masters[0].port, **options)
        with pytest.raises(SettingError, match=word):
            RedisClaims(client)
        client.close()


class TestNodes:
    def test_all_are_described_and_one_that_evicts_is_refused_by_name(
        self, cluster: RedisCluster, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "holdfast.dedup")
        store = RedisClaims.from_url(cluster.url, shards=SHARDS)
        store.connect()
        assert "Redis Cluster with 3 masters; each: Redis" in caplog.text
        assert "persistence: none; replicas: 1" in caplog.text
        assert "the 6 shards of this namespace: on 3 of them" in caplog.text
        for node in (cluster.masters[1], cluster.replicas[2]):
            node.ask("CONFIG SET", "maxmemory", "100mb")
            node.ask("CONFIG SET", "maxmemory-policy", "allkeys-lru")
            with pytest.raises(StoreRefused, match=rf"127.0.0.1:{node.port} in the cluster.*allkeys-lru"):
                store.begin(LEASE_S)
            node.ask("CONFIG SET", "maxmemory", "0")
            node.ask("CONFIG SET", "maxmemory-policy", "noeviction")
        store.begin(LEASE_S).end()
        store.close()

    def test_scripts_that_a_node_has_lost_are_sent_again(self, cluster: RedisCluster) -> None:
        cluster.flush()
        store = RedisClaims.from_url(cluster.url, namespace="t", shards=SHARDS)
        session = store.begin(LEASE_S)
        session.claim(claims(20))
        for node in cluster.masters:
            node.ask("SCRIPT FLUSH")
        assert session.finish(claims(20)) == [Verdict.DONE] * 20
        store.close()

    def test_one_that_was_emptied_ends_the_session_and_is_named(
        self, cluster: RedisCluster, caplog: pytest.LogCaptureFixture
    ) -> None:
        cluster.flush()
        store = RedisClaims.from_url(cluster.url, namespace="t", shards=SHARDS)
        session, before = store.begin(LEASE_S), store.store_id
        emptied = cluster.master_of(f"{{hf:t:{SHARDS - 1}}}")
        lost = [shard for shard in range(SHARDS) if cluster.master_of(f"{{hf:t:{shard}}}") is emptied]
        emptied.ask("FLUSHALL")
        assert not session.renew()
        assert not session.live()
        assert store.begin(LEASE_S).renew()
        assert store.store_id != before
        assert f"shard {', '.join(map(str, lost))} of namespace t" in caplog.text
        store.close()

    def test_tools_find_the_namespace_and_all_that_is_in_it(
        self, cluster: RedisCluster, capsys: pytest.CaptureFixture[str]
    ) -> None:
        cluster.flush()
        store = RedisClaims.from_url(cluster.url, namespace="t", shards=SHARDS)
        session = store.begin(LEASE_S)
        session.acquire([f"p{number}" for number in range(20)])
        session.claim(claims(30))
        session.finish(claims(10))
        tool = existing_claims(cluster.url, namespace="t")
        admin = RedisAdmin.of(tool)
        stats = admin.stats()
        assert (stats.done, stats.claimed, stats.positions, stats.sessions_live) == (10, 20, 20, 1)
        assert len(admin.positions("p")) == 20
        assert main(["claims", "stats", "--redis", cluster.url, "--namespace", "t"]) == 0
        assert "20" in capsys.readouterr().out
        assert session.claim([claim("s:k3")]) == [Verdict.NEW]
        assert session.finish([claim("s:k3")]) == [Verdict.DONE]
        key = ["k3", "--redis", cluster.url, "--namespace", "t", "--scope", "h"]
        assert main(["claims", "show", *key]) == 0
        assert "done" in capsys.readouterr().out
        assert main(["claims", "forget", *key]) == 0
        assert session.claim([claim("s:k3", 99)]) == [Verdict.NEW]
        tool.close()
        store.close()

    def test_a_forked_child_has_connections_of_its_own(self, cluster: RedisCluster, store: RedisClaims) -> None:
        session = store.begin(LEASE_S)
        child = os.fork()
        if child == 0:  # pragma: no cover - in the child
            code = 1
            try:
                own = store.begin(LEASE_S)
                code = 0 if own.claim([claim("child")]) == [Verdict.NEW] and own.id != session.id else 2
            finally:
                os._exit(code)
        assert session.claim(claims(50)) == [Verdict.NEW] * 50
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert session.claim([claim("child", 1)]) == [Verdict.BUSY]

    def test_one_shard_that_is_away_is_the_store_away_and_nothing_else_is_asked(self, cluster: RedisCluster) -> None:
        cluster.flush()
        store = RedisClaims.from_url(cluster.url, namespace="t", shards=SHARDS, timeout_s=0.2)
        session = answered(lambda: store.begin(LEASE_S))
        away = cluster.master_of("{hf:t:0}")
        layout = store.parts().layout
        keys = [claim(f"k{number}", number) for number in range(200)]
        there = [
            each for each in keys if cluster.master_of(layout.sessions(layout.places([each.key])[0][0])) is not away
        ]
        away.pause()
        with pytest.raises(StoreUnavailable):
            session.claim(keys)
        cluster_wide = sum(_evaluated(node) for node in cluster.masters if node is not away)
        with pytest.raises(StoreUnavailable):
            session.claim(there)
        assert sum(_evaluated(node) for node in cluster.masters if node is not away) == cluster_wide
        away.resume()
        assert answered(lambda: session.claim(keys)) == [Verdict.NEW] * 200
        store.close()


def _no_answer(call: Callable[[], object]) -> str:
    try:
        call()
    except StoreUnavailable as error:
        return str(error)
    return ""


def _evaluated(node: Any) -> int:
    stats = node.ask("INFO", "commandstats")
    return sum(
        each["calls"] - each["failed_calls"] for each in map(stats.get, ("cmdstat_eval", "cmdstat_evalsha")) if each
    )


@pytest.mark.full
class TestAccess:
    def test_a_wrong_password_is_refused_and_not_shown(self) -> None:
        with RedisCluster(replicas=False, password="right-one") as cluster:  # noqa: S106 - of a server of this test
            store = RedisClaims.from_url(cluster.url, namespace="other")
            assert store.begin(LEASE_S).claim([claim("k")]) == [Verdict.NEW]
            assert "right-one" not in repr(store)
            store.close()
            store = RedisClaims.from_url(cluster.url.replace("right-one", "wrong-one"))
            with pytest.raises(AccessRefused, match="credentials") as caught:
                store.connect()
            assert "wrong-one" not in "".join(traceback.format_exception(caught.value))
            store.close()
            self._rights(cluster)

    def _rights(self, cluster: RedisCluster) -> None:
        """A user with the rights that the page tells."""
        page = PAGE.read_text()
        [of_each_server] = re.findall(r"ACL SETUSER app on >PASSWORD (.*)", page)
        [of_a_cluster] = re.findall(r"those of each server.*?`(.*?)`", page)
        rights = ["reset", "on", ">word", *of_each_server.split(), *of_a_cluster.split()]
        for node in cluster.masters:
            node.ask("ACL SETUSER", "app", *rights)
        url = cluster.url.replace("//:right-one@", "//app:word@")
        store = RedisClaims.from_url(url, namespace="t", shards=SHARDS)
        session = store.begin(LEASE_S)
        assert session.claim(claims(20)) == [Verdict.NEW] * 20
        cluster.move("{hf:t:1}", next(node for node in cluster.masters if node is not cluster.master_of("{hf:t:1}")))
        assert session.finish(claims(20)) == [Verdict.DONE] * 20
        store.close()
        for node in cluster.masters:
            node.ask("ACL SETUSER", "app", "-cluster|slots")
        store = RedisClaims.from_url(url, namespace="t", shards=SHARDS)
        with pytest.raises(AccessRefused, match="credentials"):
            store.connect()
        store.close()

    def test_by_tls_each_node_is_verified(self, tmp_path: Path) -> None:
        certificates = Certificates(tmp_path)
        with RedisCluster(replicas=False, tls=certificates) as cluster:
            url = f"rediss+cluster://127.0.0.1:{cluster.masters[0].tls_port}"
            store = RedisClaims.from_url(f"{url}?ssl_ca_certs={certificates.ca_file}", shards=SHARDS)
            assert store.begin(LEASE_S).claim(claims(50)) == [Verdict.NEW] * 50
            assert all(_evaluated(node) for node in cluster.masters)
            store.close()
            store = RedisClaims.from_url(url)
            with pytest.raises(AccessRefused, match=r"certificate.*ssl_ca_certs"):
                store.connect()
            store.close()

    def test_a_node_that_loads_its_data_is_waited_for(self) -> None:
        slowly = ("--appendonly", "yes", "--key-load-delay", "20000", "--loading-process-events-interval-bytes", "1024")
        with RedisCluster(replicas=False, options=slowly) as cluster:
            store = RedisClaims.from_url(cluster.url, namespace="t", timeout_s=1.0)
            session = store.begin(LEASE_S)
            assert session.claim(claims(200)) == [Verdict.NEW] * 200
            loading = cluster.master_of(TAG)
            loading.kill()
            loading.restart()
            # LOADING, or CLUSTERDOWN: while it loads it does not look whether the others are there.
            assert "takes no calls now" in _no_answer(lambda: session.finish(claims(200)))
            assert answered(lambda: session.finish(claims(200))) == [Verdict.DONE] * 200
            store.close()

    def test_addresses_behind_nat_are_translated_in_the_map_and_in_redirects(self) -> None:
        with RedisCluster(replicas=False) as cluster:
            ports = {}
            for node in cluster.masters:
                ports[node.port + 20_000] = node.port
                node.ask("CONFIG SET", "cluster-announce-port", node.port + 20_000)

            def reachable(address: tuple[str, int]) -> tuple[str, int]:
                return address[0], ports.get(address[1], address[1])

            until(lambda: all({int(row[2][1]) for row in each.slots()} == set(ports) for each in cluster.masters))
            store = RedisClaims.from_url(cluster.url, namespace="t", address_remap=reachable)
            session = store.begin(LEASE_S)
            session.claim([claim("before")])
            owner = next(row for row in cluster.masters[0].slots() if row[0] <= key_slot(TAG.encode()) <= row[1])
            source = cluster.node_at(ports[int(owner[2][1])])
            target = next(node for node in cluster.masters if node is not source)
            cluster.move(TAG, target, source=source, between=lambda: answered(session.renew))
            assert session.finish([claim("before")]) == [Verdict.DONE]
            store.close()
            pairs = ",".join(f"127.0.0.1:{told}=127.0.0.1:{port}" for told, port in ports.items())
            url = f"{cluster.url}?socket_timeout=5&address_remap={pairs}"
            assert main(["claims", "stats", "--redis", url, "--namespace", "t"]) == 0
            with pytest.raises(SettingError, match="the URL has one"):
                RedisClaims.from_url(url, address_remap=reachable)
            bare = RedisClaims.from_url(cluster.url, namespace="t")
            with pytest.raises(StoreUnavailable):
                bare.connect()
            bare.close()
