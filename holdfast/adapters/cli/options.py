"""Options that several commands share, and what is made of them."""

from __future__ import annotations

import argparse
import os
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

from holdfast.adapters.cli.arguments import (
    ROCKETMQ_NAMES,
    kafka_conf,
    partitions,
    redis_url,
    rocketmq_conf,
    seconds,
)
from holdfast.adapters.cli.parser import Help
from holdfast.dedup.redis_coordinator import RedisCoordinator
from holdfast.dedup.redis_existing import existing_claims
from holdfast.dedup.redis_store import RedisClaims
from holdfast.errors import SettingError
from holdfast.plugin import overrides
from holdfast.plugin.listening import await_listener
from holdfast.tools.ports import GroupMember

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from holdfast.records import Partition
    from holdfast.tools.advice.group_view import GroupViews
    from holdfast.tools.ports import DeadLetterTool, OffsetTool

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - argparse has no public name for it


DEFAULT_NAMESPACE = "holdfast"
#: What else names a broker, for each option that the environment may stand in for.
_OTHERS = ("kafka_config", "rocketmq_config")
_BROKERS = {"bootstrap": ("namesrv", *_OTHERS), "namesrv": ("bootstrap", *_OTHERS)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """How an application reaches its broker; one of the two. Its repr has no credentials."""

    #: The client's properties.
    kafka: Mapping[str, object] | None = field(default=None, repr=False)
    #: As a file of `--rocketmq-config` would say it.
    rocketmq: Mapping[str, str] | None = field(default=None, repr=False)


class _App(argparse.Action):
    """An application is named: what it tells is not required of the line."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,  # noqa: ARG002 - as argparse calls it
    ) -> None:
        setattr(namespace, self.dest, values)
        for each in parser._actions:  # noqa: SLF001 - argparse has no public name for it
            if each.dest in ("group", "topic"):
                each.required = False


class _Closes(Protocol):
    def close(self) -> None: ...


Closable = TypeVar("Closable", bound=_Closes)


def command(commands: Commands, name: str, summary: str, example: str) -> argparse.ArgumentParser:
    """A command with the options that all have. `example`: lines for the end of its --help."""
    made = commands.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog=f"example:\n{example}",
        formatter_class=Help,
    )
    made.add_argument("--json", action="store_true", help="JSON on standard output, one value a line")
    made.add_argument("--no-color", action="store_true", help="no colours; NO_COLOR in the environment does the same")
    made.add_argument("--debug", action="store_true", help="log more; tracebacks instead of one line")
    made.add_argument(
        "--timeout", type=seconds, default=30.0, metavar="S", help="seconds for an answer (default: %(default)g)"
    )
    return made


def add_group(made: argparse.ArgumentParser, of: str = "the consumer group") -> None:
    """--group, which the command needs."""
    needs(made, "group")
    made.add_argument("--group", required=not _said("group"), metavar="NAME", help=f"{of}{_or('group')}")


def add_redis(made: argparse.ArgumentParser, why: str, *, required: bool = True) -> None:
    """--redis and --namespace."""
    redis = made.add_argument_group("the store")
    if required:
        needs(made, "redis")
    redis.add_argument(
        "--redis",
        required=required and not _said("redis"),
        metavar="URL",
        help=f"redis://user:password@host:port/db, or @FILE with it; {why}{_or('redis') if required else ''}",
    )
    redis.add_argument(
        "--namespace", default=DEFAULT_NAMESPACE, metavar="NAME", help="of the app (default: %(default)s)"
    )


def add_store(made: argparse.ArgumentParser, why: str) -> None:
    """--redis and --namespace, or --no-store: `store_of`."""
    needs(made, "redis")
    add_redis(made, why + _or("redis"), required=False)
    made.add_argument("--no-store", action="store_true", help="the app has claims=None: there is no Redis")


def add_brokers(made: argparse.ArgumentParser, *, needed: bool = True) -> None:
    """--bootstrap and --kafka-config, or --namesrv and --rocketmq-config."""
    if needed:
        needs(made, "bootstrap", "namesrv")
    kafka = made.add_argument_group("the broker: Kafka")
    kafka.add_argument("--bootstrap", metavar="HOST:PORT", help=f"Kafka brokers{_or('bootstrap') if needed else ''}")
    kafka.add_argument(
        "--kafka-config", metavar="FILE", help="the client's properties: JSON, or lines of name=value, as librdkafka's"
    )
    rocketmq = made.add_argument_group("or RocketMQ")
    namesrv = f"RocketMQ's name servers: host:port;host:port{_or('namesrv') if needed else ''}"
    rocketmq.add_argument("--namesrv", metavar="HOST:PORT", help=namesrv)
    rocketmq.add_argument(
        "--rocketmq-config",
        metavar="FILE",
        help=f"how to log in: JSON, or lines of name=value; {', '.join(ROCKETMQ_NAMES)}",
    )


def add_app(made: argparse.ArgumentParser, topic: Literal["topics", "letters"] | None = None) -> None:
    """--app, --factory and --app-dir. `topic`: which of the app's topics stands for --topic."""
    app = made.add_argument_group("or all of it from the application")
    app.add_argument(
        "--app",
        action=_App,
        metavar="MODULE:APP",
        help="take what the line does not say from this application: broker, group, store"
        f"{', topic' if topic else ''}; it is imported, and not run",
    )
    app.add_argument("--factory", action="store_true", help="APP is a function that returns the app")
    app.add_argument(
        "--app-dir", default=".", metavar="DIR", help="where modules are searched first (default: this folder)"
    )
    made.set_defaults(broker=None, app_topic=topic)


def from_environment(options: argparse.Namespace) -> None:
    """Give what the command needs, and its line does not say, the values of the environment (`overrides.TOOLS`).

    A broker is needed where a group is named, or the command has no --group. One that the line names, or the
    application (`from_app`), is the only one.
    """
    said = vars(options)
    for name in sorted(said.get("needed", ()), key="group".__ne__):  # the group first
        if name == "redis" and said.get("no_store"):
            continue
        if name in _BROKERS and (
            said.get("broker") or any(map(said.get, _BROKERS[name])) or ("group" in said and not said["group"])
        ):
            continue
        if not said.get(name):
            said[name] = _said(name) or said.get(name)


def needs(made: argparse.ArgumentParser, *names: str) -> None:
    """Let `from_environment` give the command these options."""
    made.set_defaults(needed=(*names, *(made.get_default("needed") or ())))


def _said(name: str) -> str | None:
    return os.environ.get(overrides.TOOLS[name])


def _or(name: str) -> str:
    """The end of an option's help."""
    return f" (or {overrides.TOOLS[name]} in the environment)"


def add_partitions(made: argparse.ArgumentParser) -> None:
    """--partitions."""
    made.add_argument("--partitions", type=partitions, metavar="N", help="some of them: 0,3-5 (default: all)")


def claims_of(
    options: argparse.Namespace, *, positions_ttl_s: float = 90 * 86_400.0
) -> AbstractContextManager[RedisClaims]:
    """The store, with the settings that the namespace's members have. Raises StoreError, SettingError."""
    url = redis_url(options.redis)
    return closing(existing_claims(url, namespace=options.namespace, positions_ttl_s=positions_ttl_s))


def check_store(options: argparse.Namespace) -> None:
    """Before anything is asked. Raises SettingError: neither --redis nor --no-store is said, or both."""
    if bool(options.redis) == options.no_store:
        raise SettingError(
            "--redis",
            None if options.redis is None else "...",
            "give the URL of the app's Redis, or --no-store where the app has none (claims=None)",
        )
    check_redis(options)


def check_redis(options: argparse.Namespace) -> None:
    """Before anything else is asked: whether `--redis` and `--namespace` can be what they are said to be. Raises
    SettingError."""
    if options.redis:
        RedisClaims.from_url(redis_url(options.redis), namespace=options.namespace).close()


@contextmanager
def store_of(options: argparse.Namespace, *, positions_ttl_s: float = 90 * 86_400.0) -> Iterator[RedisClaims | None]:
    """The store, as `claims_of`; None: `--no-store`. Raises SettingError too: neither is said, or both."""
    check_store(options)
    if options.no_store:
        yield None
        return
    with claims_of(options, positions_ttl_s=positions_ttl_s) as store:
        yield store


def chosen(found: Sequence[Partition], numbers: frozenset[int] | None) -> list[Partition]:
    """The partitions that `--partitions` names. Raises SettingError: it names one that does not exist."""
    if numbers is None:
        return list(found)
    missing = numbers - {partition.number for partition in found}
    if missing:
        raise SettingError(
            "--partitions", min(missing), f"{found[0].topic} has no such partition: it has {len(found)}, from 0 on"
        )
    return [partition for partition in found if partition.number in numbers]


def offset_tool_of(options: argparse.Namespace) -> AbstractContextManager[OffsetTool]:
    """The group at its broker. Raises MissingExtraError, SettingError."""
    if is_rocketmq(options):
        from holdfast.adapters.cli.rocketmq import offset_tool  # noqa: PLC0415 - a command loads the client that it uses

        return closing(offset_tool(rocketmq_of(options), options.group))
    conf = _kafka_of(options)
    from holdfast.adapters.kafka.tools.offsets import KafkaOffsetTool  # noqa: PLC0415 - as above

    return _reached(KafkaOffsetTool(conf, options.group), conf, options)


def coordinated(options: argparse.Namespace, store: RedisClaims) -> Sequence[GroupMember]:
    """The members of a RocketMQ group by its records in the store, of each kind of source: it knows of one that no
    broker hears of, until its lease has ended. Raises StoreError."""
    if not is_rocketmq(options):
        return ()
    from holdfast.adapters.cli.rocketmq import records_of  # noqa: PLC0415 - as above

    found, coordinator = [], RedisCoordinator(store)
    for record in records_of(options.group, options.topic):
        state = coordinator.describe(record)
        alive = [each for each in state.members if state.left_s.get(each.id, 0.0) > 0]
        found += [GroupMember(each.client_id, "the coordinator in Redis", each.id, ()) for each in alive]
    return found


@contextmanager
def group_views_of(options: argparse.Namespace) -> Iterator[GroupViews]:
    """The group from the side; its plan in Redis too, where a RocketMQ group's Redis is named (`add_redis`).

    Raises MissingExtraError, SettingError, StoreError.
    """
    if getattr(options, "redis", None):
        check_redis(options)
    if is_rocketmq(options):
        from holdfast.adapters.cli.rocketmq import group_views  # noqa: PLC0415 - as above

        with ExitStack() as stack:
            coordinator = RedisCoordinator(stack.enter_context(claims_of(options))) if options.redis else None
            yield stack.enter_context(closing(group_views(rocketmq_of(options), options.group, coordinator)))
        return
    conf = _kafka_of(options)
    from holdfast.adapters.kafka.tools.groups import KafkaGroupViews  # noqa: PLC0415 - as above

    with _reached(KafkaGroupViews(conf, options.group), conf, options) as group:
        yield group


def dead_letter_tool_of(options: argparse.Namespace) -> AbstractContextManager[DeadLetterTool]:
    """Letters at their broker. Raises MissingExtraError, SettingError."""
    if is_rocketmq(options):
        from holdfast.adapters.cli.rocketmq import dead_letter_tool  # noqa: PLC0415 - as above

        return closing(dead_letter_tool(rocketmq_of(options)))
    conf = _kafka_of(options)
    from holdfast.adapters.kafka.tools.dead_letters import KafkaDeadLetterTool  # noqa: PLC0415 - as above

    return _reached(KafkaDeadLetterTool(conf), conf, options)


def reach_kafka(conf: Mapping[str, object], options: argparse.Namespace) -> None:
    """Raises SourceUnavailable: nothing listens where its brokers are said to be."""
    addresses = conf.get("bootstrap.servers") or conf.get("metadata.broker.list")
    await_listener(str(addresses), 9092, options.timeout)


def _reached(made: Closable, conf: Mapping[str, object], options: argparse.Namespace) -> closing[Closable]:
    """Ask whether anybody is there. Making the tool has judged the configuration before."""
    try:
        reach_kafka(conf, options)
    except BaseException:
        made.close()
        raise
    return closing(made)


def _kafka_of(options: argparse.Namespace) -> Mapping[str, object]:
    """Raises SettingError."""
    broker = _broker_of(options)
    return broker.kafka if broker and broker.kafka else kafka_conf(options.bootstrap, options.kafka_config)


def _broker_of(options: argparse.Namespace) -> Broker | None:
    """The application's (`from_app`)."""
    return getattr(options, "broker", None)


def rocketmq_of(options: argparse.Namespace) -> dict[str, str]:
    """How to reach its name servers, one of which listens. Raises SettingError, SourceUnavailable."""
    broker = _broker_of(options)
    if broker and broker.rocketmq:
        conf = dict(broker.rocketmq)
    else:
        conf = rocketmq_conf(options.namesrv, options.rocketmq_config)
    await_listener(conf["namesrv"], None, options.timeout)
    return conf


def is_rocketmq(options: argparse.Namespace) -> bool:
    """Which broker is meant. Raises SettingError: both, or none."""
    broker = _broker_of(options)
    if broker is not None:
        return broker.rocketmq is not None
    kafka, rocketmq = options.bootstrap or options.kafka_config, options.namesrv or options.rocketmq_config
    if kafka and rocketmq:
        raise SettingError(
            "--namesrv", rocketmq, "--namesrv is for RocketMQ and --bootstrap for Kafka: give one of the two"
        )
    if not kafka and not rocketmq:
        raise SettingError(
            "--bootstrap", None, "give host:port of a Kafka broker, or --namesrv with RocketMQ's name servers"
        )
    return bool(rocketmq)
