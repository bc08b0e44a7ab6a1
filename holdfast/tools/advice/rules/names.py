"""The settings that clients know, by name. Tests hold these lists against the clients themselves."""

from __future__ import annotations

import re


def snake(name: str) -> str:
    """One spelling for RocketMQ's: pullBatchSize and pull_batch_size -> pull_batch_size."""
    plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.strip()).lower()
    return _SAME.get(plain, plain)


_SAME = {"namesrv": "namesrv_addr", "name_server_address": "namesrv_addr", "group": "consumer_group"}

#: Of kafka-clients 4.3.1 (ConsumerConfig).
_JAVA = """
    allow.auto.create.topics auto.commit.interval.ms auto.offset.reset bootstrap.servers check.crcs
    client.dns.lookup client.id client.rack config.providers connections.max.idle.ms default.api.timeout.ms
    enable.auto.commit enable.metrics.push exclude.internal.topics fetch.max.bytes fetch.max.wait.ms fetch.min.bytes
    group.id group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms interceptor.classes
    isolation.level key.deserializer max.partition.fetch.bytes max.poll.interval.ms max.poll.records
    metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metric.reporters
    metrics.num.samples metrics.recording.level metrics.sample.window.ms partition.assignment.strategy
    receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms retry.backoff.max.ms
    retry.backoff.ms sasl.client.callback.handler.class sasl.jaas.config sasl.kerberos.kinit.cmd
    sasl.kerberos.min.time.before.relogin sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter
    sasl.kerberos.ticket.renew.window.factor sasl.login.callback.handler.class sasl.login.class
    sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
    sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
    sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.mechanism sasl.oauthbearer.assertion.algorithm
    sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds
    sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include
    sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub
    sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file
    sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.template.file
    sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret
    sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
    sasl.oauthbearer.header.urlencode sasl.oauthbearer.jwks.endpoint.refresh.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
    sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class
    sasl.oauthbearer.scope sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name
    sasl.oauthbearer.token.endpoint.url security.protocol security.providers send.buffer.bytes session.timeout.ms
    share.acknowledgement.mode share.acquire.mode socket.connection.setup.timeout.max.ms
    socket.connection.setup.timeout.ms ssl.cipher.suites ssl.enabled.protocols ssl.endpoint.identification.algorithm
    ssl.engine.factory.class ssl.key.password ssl.keymanager.algorithm ssl.keystore.certificate.chain
    ssl.keystore.key ssl.keystore.location ssl.keystore.password ssl.keystore.type ssl.protocol ssl.provider
    ssl.secure.random.implementation ssl.trustmanager.algorithm ssl.truststore.certificates ssl.truststore.location
    ssl.truststore.password ssl.truststore.type value.deserializer
"""

#: Of rocketmq-client 5.5.0: setters of DefaultMQPushConsumer, DefaultLitePullConsumer and ClientConfig.
_ROCKETMQ = """
    access_channel adjust_thread_pool_nums_threshold allocate_message_queue_strategy auto_commit
    auto_commit_interval_millis await_termination_millis_when_shutdown client_callback_executor_threads client_ip
    client_rebalance concurrent_heartbeat_thread_pool_size connect_broker_by_user consume_concurrently_max_span
    consume_from_where consume_max_span consume_message_batch_max_size consume_thread_max consume_thread_min
    consume_timeout consume_timestamp consumer_group consumer_pull_timeout_millis
    consumer_timeout_millis_when_suspend customized_trace_topic decode_decompress_body decode_read_body
    default_broker_id detect_interval detect_timeout enable_concurrent_heartbeat
    enable_heartbeat_channel_event_listener enable_msg_trace enable_stream_request_type enable_trace
    heartbeat_broker_interval instance_name language max_page_size_in_get_metadata max_reconsume_times
    message_listener message_model message_queue_listener mq_client_api_timeout namespace namespace_v2 namesrv_addr
    offset_store persist_consumer_offset_interval poll_name_server_interval poll_timeout_millis pop_batch_nums
    pop_invisible_time pop_threshold_for_queue post_subscription_when_pull pull_batch_size pull_batch_size_in_bytes
    pull_interval pull_thread_nums pull_threshold_for_all pull_threshold_for_queue pull_threshold_for_topic
    pull_threshold_size_for_queue pull_threshold_size_for_topic pull_time_delay_mills_when_exception
    send_latency_enable socks_proxy_config start_detector_enable sub_expression_for_assign subscription
    suspend_current_queue_time_millis topic_metadata_check_interval_millis trace_dispatcher trace_msg_batch_num
    trace_topic unit_mode unit_name use_heartbeat_v2 use_tls vip_channel_enabled
"""

#: What a file says beside them: an ACL's, as the tools and clients in Python call it.
_ROCKETMQ_LOGIN = """
    access_key secret_key security_token tls tls_ca_file
"""

#: Of holdfast's own sources for RocketMQ, which check what they are given at construction.
_HOLDFAST = """
    allocate_strategy broker_suspend_max_time_s coordinator credentials dedup endpoints foreign_members
    heartbeat_broker_interval_s in_flight invisible_s lease_s max_poll_interval_s poll_name_server_interval_s properties
    pull_threshold_size_for_all queue_lease_wait_s request_timeout_s retry subscriptions tags threads weight
"""

HOLDFAST = frozenset(_HOLDFAST.split())
JAVA = frozenset(_JAVA.split())
ROCKETMQ = frozenset((_ROCKETMQ + _ROCKETMQ_LOGIN).split())

#: Two names of one setting: what comes last counts, and which that is nobody sees. librdkafka's, and its older names.
ALIASES = {
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanism": "sasl.mechanisms",
    "auto.commit.enable": "enable.auto.commit",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "max.partition.fetch.bytes": "fetch.message.max.bytes",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
}
