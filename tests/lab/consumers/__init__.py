"""The consumers that are compared, and what each cannot do by how it is made."""

from __future__ import annotations

from typing import Literal, NamedTuple

from tests.benchmarks.peers.environments import ARROYO, FASTSTREAM, QUIX_STREAMS

Store = Literal["Redis", "PostgreSQL"]
Broker = Literal["Kafka", "RocketMQ"]


class Consumer(NamedTuple):
    """One of them."""

    name: str
    title: str
    module: str
    #: How it is written, in a line.
    written: str
    #: What it cannot do, or not by itself; and why.
    limits: str
    #: What an environment of its own needs; "" = it runs in the project's.
    requirement: str = ""
    #: Further words of its command line.
    words: tuple[str, ...] = ()
    #: What it needs beside the broker.
    store: Store | None = None
    broker: Broker = "Kafka"
    #: A folder of the project: an environment that `make setup-all` has made.
    environment: str = ""
    #: Whether the group's committed offset says what nobody will be given any more.
    offsets: bool = True
    #: The packages whose versions are told.
    packages: tuple[str, ...] = ("confluent-kafka",)


_NO_MEMORY = "Keeps nothing but the offset at the broker: what was handled and not yet committed runs again."

CONSUMERS = (
    Consumer(
        "bare-default",
        "bare client, defaults",
        "bare_default",
        "confluent-kafka: `poll`, handle, `close`; the client commits each 5 s",
        f"{_NO_MEMORY} It commits what `poll` has returned, handled or not, so a process that dies may lose a record. "
        "Eager: all partitions stop in each rebalance. Polls only between handlers.",
    ),
    Consumer(
        "bare-careful",
        "bare client, with care",
        "bare_careful",
        "confluent-kafka: cooperative; synchronous commits of what is handled, each second and in `on_revoke`",
        f"{_NO_MEMORY} Polls only between handlers: one that is longer than the poll interval costs the membership, "
        "and its record goes to the next member, which loses its own.",
    ),
    Consumer(
        "bare-kip-848",
        "bare client, with care, KIP-848",
        "bare_careful",
        "the same by the consumer protocol (`group.protocol=consumer`), as holdfast has it here",
        f"{_NO_MEMORY} Polls only between handlers: the partitions of a member wait for one that is long. This client "
        "does not give up its membership then, as it does by the classic protocol.",
        words=("kip-848",),
    ),
    Consumer(
        "arroyo",
        "arroyo",
        "sentry_arroyo",
        "`RunTask`, `CommitOffsets`, `ONCE_PER_SECOND`",
        f"{_NO_MEMORY} `RunTask` runs in the thread that polls; its strategies with threads or processes do not. The "
        "process ends with an error where the poll interval was exceeded, and is to be started again.",
        requirement=ARROYO,
        packages=("sentry-arroyo", "confluent-kafka"),
    ),
    Consumer(
        "quix-streams",
        "quix-streams",
        "quix_streams",
        "`Application`, `dataframe.update`; commits each 5 s, and what is done when partitions are revoked",
        f"{_NO_MEMORY} Handlers run in the thread that polls. The process ends with an error where a commit is "
        'refused, and is to be started again. `processing_guarantee="exactly-once"` makes topic to '
        "topic exactly once (not played here); effects elsewhere it does not cover.",
        requirement=QUIX_STREAMS,
        packages=("quixstreams", "confluent-kafka"),
    ),
    Consumer(
        "faststream",
        "FastStream, defaults",
        "faststream_confluent",
        "`async def` under `@broker.subscriber`; `AckPolicy.ACK_FIRST`: the client commits each 5 s",
        f"{_NO_MEMORY} It commits what has come, handled or not, also when it leaves: what is in hand then is lost. "
        "Handlers hold up the polls.",
        requirement=FASTSTREAM,
        packages=("faststream", "confluent-kafka"),
    ),
    Consumer(
        "faststream-ack",
        "FastStream, ACK",
        "faststream_confluent",
        "the same with `AckPolicy.ACK`: acknowledges when the handler has ended",
        f"{_NO_MEMORY} After each record it commits where the client stands, without waiting for the answer. By then "
        "the client may have handed out the next record: if the process dies, that one is lost. Handlers hold up the "
        "polls.",
        requirement=FASTSTREAM,
        words=("ack",),
        packages=("faststream", "confluent-kafka"),
    ),
    Consumer(
        "holdfast",
        "holdfast, Redis",
        "holdfast_redis",
        "`@app.handler`, eight workers, positions in Redis, the consumer protocol (KIP-848)",
        "Needs a Redis, and stands still while it is away. Eight workers have more in hand when a process is killed "
        "than a loop that has one record. After a takeover its ramp holds the intake back, so a backlog takes "
        "longer to go.",
        store="Redis",
        packages=("holdfast-mq", "confluent-kafka"),
    ),
    Consumer(
        "holdfast-sql",
        "holdfast, SQL",
        "holdfast_sql",
        "`@app.handler(transaction=)`: positions in PostgreSQL, and effects in the same transaction",
        "Needs the database, and stands still while it is away. A handler that a kill interrupts starts again; its "
        "effect in the database does not. Effects elsewhere may happen again. A process that is frozen in a "
        "transaction keeps its partitions until it goes on, or until the database ends the transaction (45 s). The "
        "ramp as with Redis.",
        store="PostgreSQL",
        packages=("holdfast-mq", "confluent-kafka"),
    ),
    Consumer(
        "rocketmq-push",
        "RocketMQ: PushConsumer",
        "rocketmq_push",
        "rocketmq-client-python (C++): a callback, `shutdown` at SIGTERM",
        "Commits its offsets each few seconds, and hands queues over without waiting for what runs. A member "
        "that falls silent keeps its queues for two minutes.",
        broker="RocketMQ",
        environment=".venv-rocketmq",
        packages=("rocketmq-client-python",),
    ),
    Consumer(
        "rocketmq-grpc",
        "RocketMQ: gRPC PushConsumer",
        "rocketmq_grpc",
        "rocketmq-python-client: a listener, `shutdown` at SIGTERM",
        "No order, and no queues: the broker leases each message, so a member that comes or goes moves nothing. What a "
        "member has in hand when it dies comes again when its lease ends.",
        broker="RocketMQ",
        environment=".venv-rocketmq5",
        offsets=False,
        packages=("rocketmq-python-client",),
    ),
    Consumer(
        "rocketmq-holdfast",
        "RocketMQ: holdfast, Redis",
        "holdfast_rocketmq",
        "`RocketMQSource`, eight workers, group and positions in Redis",
        "Needs a Redis, for the group too, and stands still while it is away.",
        store="Redis",
        broker="RocketMQ",
        packages=("holdfast-mq",),
    ),
)
