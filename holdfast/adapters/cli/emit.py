"""`holdfast emit`: the configuration that a group's clients and brokers are to have, each key with its reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from holdfast.adapters.cli import options as shared
from holdfast.adapters.cli.arguments import at_least_1, kafka_conf, span_s
from holdfast.errors import SettingError
from holdfast.timing import Deadline
from holdfast.tools.advice.emit import (
    KafkaBrokers,
    Workload,
    as_properties,
    as_python,
    for_kafka,
    for_rocketmq,
    native,
)
from holdfast.tools.advice.emit.kafka import Client, Protocol
from holdfast.tools.advice.emit.workload import Restarts

if TYPE_CHECKING:
    import argparse

    from holdfast.adapters.cli.output import Output
    from holdfast.tools.advice.emit import Sheet

_EXAMPLE = """\
  holdfast emit --kafka 4.1 --handler 200ms --workers 8 --static-id '${POD_NAME}' --restart 40s
  holdfast emit --bootstrap localhost:9092 --handler 2s --batch 50 --restarts crash --only java
  holdfast emit --rocketmq 5.5 --handler 500ms --workers 20

If times do not fit together, the error names them and says what to change; exit code 2.
"""
_ROCKETMQ = ("rocketmq-python", "rocketmq-grpc-simple", "rocketmq-grpc-push", "rocketmq-broker")
_FORMATS = {"native": native, "properties": as_properties, "python": as_python}


def add(commands: shared.Commands) -> None:
    """The command."""
    made = shared.command(commands, "emit", "the configuration that fits a group, with reasons", _EXAMPLE)
    _add_work(made)
    shared.add_brokers(made, needed=False)
    versions = made.add_argument_group("or the version of the brokers, without asking them")
    versions.add_argument("--kafka", metavar="VERSION", help="Kafka brokers of that version: 3.9, 4.1.0")
    versions.add_argument("--rocketmq", metavar="VERSION", help="RocketMQ of that version: 4.9, 5.5.0")
    made.add_argument(
        "--protocol", choices=get_args(Protocol), help="Kafka's (default: consumer where the brokers have it)"
    )
    made.add_argument(
        "--only",
        choices=(*get_args(Client), "kafka-group", *_ROCKETMQ),
        help="the settings for one place only (default: all)",
    )
    made.add_argument(
        "--format", choices=tuple(_FORMATS), default="native", help="how it is written (default: as the place takes it)"
    )
    made.set_defaults(run=run)


def run(options: argparse.Namespace, output: Output) -> int:
    """Raises SettingError: what does not fit; SourceError: the brokers do not answer."""
    workload = Workload(
        handler_s=options.handler,
        workers=options.workers,
        batch=options.batch,
        drain_s=options.drain,
        polls_meanwhile=options.polls_meanwhile,
        patience_s=options.patience,
        restarts=options.restarts,
        restart_s=options.restart,
        static_id=options.static_id,
    )
    sheets = [each for each in _sheets(options, workload) if options.only in (None, each.name)]
    if not sheets:
        raise SettingError("--only", options.only, "no settings are known for it")
    for number, sheet in enumerate(sheets):
        output.json(as_json(sheet))
        if number:
            output.say()
        output.say_all(_FORMATS[options.format](sheet).rstrip("\n").split("\n"))
    return 0


def as_json(sheet: Sheet) -> dict[str, object]:
    """A sheet for programs."""
    return {
        "type": "settings",
        "name": sheet.name,
        "where": sheet.where,
        "settings": sheet.settings,
        "reasons": {each.key: each.why for each in sheet.choices},
        "notes": list(sheet.notes),
    }


def kafka_brokers(options: argparse.Namespace) -> KafkaBrokers:
    """The brokers' features: as the user says, or as the brokers themselves say. Raises SettingError, SourceError."""
    if options.kafka:
        return KafkaBrokers.of_version(options.kafka)
    conf = kafka_conf(options.bootstrap, options.kafka_config)
    shared.reach_kafka(conf, options)
    from holdfast.adapters.kafka.broker_features import ask  # noqa: PLC0415 - a command loads the client that it uses

    features = ask(conf, Deadline(options.timeout))
    return KafkaBrokers(consumer_protocol=features.consumer_protocol, why=features.why)


def _rocketmq_version(options: argparse.Namespace) -> str:
    from holdfast.adapters.cli.rocketmq import version  # noqa: PLC0415 - as above

    return version(shared.rocketmq_of(options), Deadline(options.timeout))


def _sheets(options: argparse.Namespace, workload: Workload) -> list[Sheet]:
    said = [name for name in ("kafka", "rocketmq") if getattr(options, name)]
    asked = any((options.bootstrap, options.kafka_config, options.namesrv, options.rocketmq_config))
    if len(said) + asked != 1:
        raise SettingError(
            "--kafka", options.kafka, "name the brokers once: --kafka, --rocketmq, --bootstrap or --namesrv"
        )
    if options.rocketmq or (asked and shared.is_rocketmq(options)):
        if options.protocol is not None:
            raise SettingError("--protocol", options.protocol, "it is only for Kafka: leave it out")
        return for_rocketmq(workload, options.rocketmq or _rocketmq_version(options), only=options.only)
    return for_kafka(workload, kafka_brokers(options), protocol=options.protocol)


def _add_work(made: argparse.ArgumentParser) -> None:
    work = made.add_argument_group("the work of one member")
    work.add_argument(
        "--handler", type=span_s, required=True, metavar="TIME", help="the longest that a record takes: 200ms, 2s, 5m"
    )
    work.add_argument("--workers", type=at_least_1, default=1, metavar="N", help="records at a time (default: 1)")
    work.add_argument("--batch", type=at_least_1, metavar="N", help="records a poll, or a call (default: the client's)")
    work.add_argument(
        "--drain",
        type=span_s,
        default=10.0,
        metavar="TIME",
        help="how long a hand-over waits for running records (default: 10s)",
    )
    work.add_argument(
        "--polls-meanwhile", action="store_true", help="the client is polled while handlers run, as holdfast does"
    )
    work.add_argument(
        "--patience",
        type=span_s,
        default=300.0,
        metavar="TIME",
        help="how long a member may be stuck before it loses its membership (default: 5m)",
    )
    restarts = made.add_argument_group("how members restart")
    restarts.add_argument("--restarts", choices=get_args(Restarts), default="rolling", help="how members usually end")
    restarts.add_argument(
        "--restart",
        type=span_s,
        default=30.0,
        metavar="TIME",
        help="the longest time from its end until it is back (default: 30s)",
    )
    restarts.add_argument(
        "--static-id",
        metavar="NAME",
        help="an id for each member that stays the same after a restart, such as '${POD_NAME}'",
    )
