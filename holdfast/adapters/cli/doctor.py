"""`holdfast doctor`: configurations and a live group, held against the rules. Exit code by what is worst."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from holdfast.adapters.cli import options as shared
from holdfast.adapters.cli.arguments import at_least_0, span_s
from holdfast.adapters.cli.conf_file import read_conf
from holdfast.adapters.cli.layout import wrapped
from holdfast.adapters.cli.output import TONES, count, shown
from holdfast.errors import NoCoordinator, SettingError
from holdfast.timing import SYSTEM_CLOCK, Deadline
from holdfast.tools.advice import doctor
from holdfast.tools.advice.doctor import Circumstances, Client, ClientConf, Severity, Watched
from holdfast.tools.advice.group_view import GroupView

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from holdfast.adapters.cli.output import Output
    from holdfast.tools.advice.doctor import Finding, Rule

_EXAMPLE = """\
  holdfast doctor consumer.properties --handler 200ms --batch 500 --restart 30s
  holdfast doctor --group billing --bootstrap localhost:9092
  holdfast doctor consumer.properties --group billing --kafka-config client.properties

A file has lines of name=value, JSON, or TOML. A file and a group: the file is also held against that group.
exit codes: 0 notes at most; 4 warnings at most; 1 an error was found; 2 and 3 as of all commands.
"""
#: Of exit codes, 1 to 3 are taken.
_CODES = {None: 0, Severity.NOTE: 0, Severity.WARNING: 4, Severity.ERROR: 1}
_WIDTH = 110
#: Of findings that are alike, so many places are shown.
_PLACES = 5
_WHOSE = {
    Client.LIBRDKAFKA: "librdkafka (confluent-kafka)",
    Client.HOLDFAST: "holdfast's Kafka consumers",
    Client.JAVA: "Kafka's Java client",
    Client.ROCKETMQ: "RocketMQ's push consumer",
}


def add(commands: shared.Commands) -> None:
    """The command."""
    made = shared.command(commands, "doctor", "find problems in configurations and in a live group", _EXAMPLE)
    made.add_argument("files", nargs="*", metavar="FILE", help="a consumer's configuration")
    made.add_argument(
        "--client",
        choices=[each.value for each in Client],
        help="the client that the file is for (default: recognised by the names)",
    )
    made.add_argument("--section", metavar="NAME", help="read only this section of the file: kafka.consumer")
    told = made.add_argument_group("what a configuration does not say")
    told.add_argument("--handler", type=span_s, metavar="TIME", help="the longest that one record takes: 200ms, 2s, 5m")
    told.add_argument(
        "--batch",
        type=at_least_0,
        metavar="N",
        help="records between two polls, as consume(N) takes (default: Java's max.poll.records, else 1)",
    )
    told.add_argument(
        "--workers", type=at_least_0, default=1, metavar="N", help="records at the same time (default: 1)"
    )
    told.add_argument(
        "--drain", type=span_s, default=0.0, metavar="TIME", help="how long a hand-over waits for running records"
    )
    told.add_argument(
        "--polls-meanwhile", action="store_true", help="the client is polled while handlers run, as holdfast does"
    )
    told.add_argument("--restart", type=span_s, metavar="TIME", help="how long a process is away when it is restarted")
    live = made.add_argument_group("a live group")
    live.add_argument("--group", help="the group to examine")
    live.add_argument("--looks", type=at_least_0, default=6, metavar="N", help="number of looks (default: %(default)s)")
    live.add_argument(
        "--every", type=span_s, default=2.0, metavar="TIME", help="time from one look to the next (default: 2s)"
    )
    live.add_argument(
        "--commit-interval",
        type=span_s,
        default=5.0,
        metavar="TIME",
        help="how often its members commit; doctor reports an offset that does not move for twice that time (default: "
        "5s)",
    )
    shared.add_brokers(made)
    shared.add_redis(made, "RocketMQ: the store with the plan of a group that holdfast coordinates", required=False)
    made.set_defaults(run=run)


def run(options: argparse.Namespace, output: Output) -> int:
    """Judge each; the worst decides."""
    if not options.files and not options.group:
        raise SettingError("FILE", None, "name a file with a consumer's configuration, or a live group with --group")
    confs = {path: _conf(path, options) for path in options.files}
    watched = _watch(options, output) if options.group else None
    found: list[Finding] = []
    tell = _Tell(output)
    for path, conf in confs.items():
        told = doctor.examine_conf(conf)
        if watched is not None:
            told += doctor.examine_joining(conf, watched.now)
        found += told
        tell.of(f"{path}, as a configuration of {_WHOSE[conf.client]}", told, {"file": path}, doctor.not_judged(conf))
    if watched is not None:
        told = doctor.examine_group(watched)
        found += told
        tell.of(_summary(watched), told, {"group": options.group}, unknown=_unknown(watched))
        for note in watched.now.not_known:
            output.note(f"not known: {shown(note, 300)}")
    return _CODES[doctor.worst(found)]


def _conf(path: str, options: argparse.Namespace) -> ClientConf:
    circumstances = Circumstances(
        handler_s=options.handler,
        batch=options.batch,
        workers=options.workers,
        drain_s=options.drain,
        polls_meanwhile=options.polls_meanwhile,
        restart_s=options.restart,
    )
    client = Client(options.client) if options.client else None
    return ClientConf(read_conf(path, options.section), client=client, circumstances=circumstances)


def _watch(options: argparse.Namespace, output: Output) -> Watched:
    """Look at the group, some times. Raises SourceError, StoreError, SettingError."""
    views: list[GroupView] = []
    at_s: list[float] = []
    looks = max(options.looks, 1)
    with shared.group_views_of(options) as group, output.progress("looks", looks) as progress:
        while True:
            started_s = SYSTEM_CLOCK.now()
            try:
                views.append(group.view(Deadline(options.timeout)))
            except NoCoordinator as error:
                # That is what is wrong with it.
                views.append(GroupView(kind="kafka", group=options.group, state="", protocol="", notes=(str(error),)))
            at_s.append(started_s)
            if len(views) >= looks:
                break
            progress.at(len(views))
            SYSTEM_CLOCK.sleep(max(started_s + options.every - SYSTEM_CLOCK.now(), 0.0))
    return Watched(views=tuple(views), at_s=tuple(at_s), commit_interval_s=options.commit_interval)


def _summary(watched: Watched) -> str:
    now = watched.now
    parts = [now.state, f"{len(now.members)} member{'' if len(now.members) == 1 else 's'}"]
    if now.protocol:
        parts.append(f"{now.protocol} protocol" + (f", {now.assignor}" if now.assignor else ""))
    lags = [each.lag for each in now.partitions.values()]
    unknown = lags.count(None)
    known = [f"{sum(each or 0 for each in lags):,} behind in {count(len(lags) - unknown, 'partition')}"]
    unknown_in = [f"lag unknown in {count(unknown, 'partition')}"]
    parts.append(" and ".join([*(known if unknown < len(lags) else []), *(unknown_in if unknown or not lags else [])]))
    if now.unseen:
        parts.append(f"{count(len(now.unseen), 'topic')} cannot be described")
    looks = len(watched.views)
    parts.append(f"{looks} look{'' if looks == 1 else f's within {watched.apart_s:.0f} s'}")
    return f"group {now.group} ({', '.join(part for part in parts if part)})"


def _unknown(watched: Watched) -> dict[str, object]:
    """The unknown figures of the group, for programs; empty where all are known."""
    now = watched.now
    lags = [each.lag for each in now.partitions.values()].count(None)
    found = {"lag_not_known_in": lags} if lags else {}
    return found | ({"not_known": now.not_known} if now.not_known else {})


class _Tell:
    """Writes findings, the worst first: in words, or a line of JSON each and one that counts them.

    In words what is found again and again is folded: places that have the same reason and remedy are one finding, and
    a reason that was given of one file is not given again of the next.
    """

    def __init__(self, output: Output) -> None:
        self._output = output
        self._said: set[tuple[str, ...]] = set()

    def of(
        self,
        title: str,
        found: Sequence[Finding],
        where: dict[str, str],
        silent: Sequence[Rule[Any]] | None = None,
        *,
        unknown: Mapping[str, object] | None = None,
    ) -> None:
        """One file, or the group. `silent`: of a file, the rules that need to know how long a handler takes. `unknown`:
        of the group, for programs."""
        output = self._output
        found = sorted(found, key=lambda each: -each.severity.rank)
        counts = Counter(each.severity for each in found)
        for each in found:
            output.json({"type": "finding", **where, **each.as_dict()})
        counted = {f"{each.value}s": counts[each] for each in Severity}
        judged = {} if silent is None else {"not_judged": [rule.name for rule in silent]}
        output.json({"type": "diagnosis", **where, **counted, **judged, **(unknown or {})})
        parts = [f"{counts[each]} {each.value}{'s' if counts[each] > 1 else ''}" for each in Severity if counts[each]]
        output.say(f"{title}: {', '.join(parts) or 'nothing found'}", tone="head" if parts else "good")
        folded: dict[tuple[str, ...], list[Finding]] = {}
        for each in found:
            folded.setdefault((each.rule, each.severity.value, each.effect.value, each.why, each.remedy), []).append(
                each
            )
        for reason, alike in folded.items():
            self._finding(reason, alike)
        if silent:
            output.say()
            rules = ", ".join(rule.name for rule in silent)
            output.say(f"not checked without --handler TIME (how long a record takes): {rules}")
        output.say()

    def _finding(self, reason: tuple[str, ...], alike: Sequence[Finding]) -> None:
        rule, severity, effect, why, remedy = reason
        places = [f"{each.where}: {each.found}" for each in alike[:_PLACES]]
        if len(alike) > _PLACES:
            places.append(f"and {len(alike) - _PLACES} more (--json has all)")
        again = reason in self._said
        self._said.add(reason)
        times = f"  {len(alike)} times" if len(alike) > 1 else ""
        self._output.say()
        told = f"{severity.upper()}: {effect}  [{rule}]{times}{', for the reason above' if again else ''}"
        self._output.say(told, tone=TONES.get(severity))
        for number, place in enumerate(places):
            self._line("" if number else "found", place)
        if not again:
            self._line("why", why)
            self._line("do", remedy)

    def _line(self, label: str, text: str) -> None:
        safe = shown(text, 2_000)  # names of topics and members are strangers' text
        width = min(self._output.width or _WIDTH, _WIDTH)
        self._output.say_all(wrapped(f"  {label:<6}{safe}", width, 8))
