"""Rules over the times of a Kafka client's configuration. The arithmetic is plugin/budget.py's. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.plugin import budget
from holdfast.plugin.budget import HEARTBEAT, MAX_POLL, SESSION
from holdfast.tools.advice.rules.conf import Client
from holdfast.tools.advice.rules.finding import Effect, Rule, Seen, Severity
from holdfast.tools.advice.rules.membership import STATIC_ID

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.plugin.budget import Misfit
    from holdfast.tools.advice.rules.conf import ClientConf

#: As long as a partition of a member that has died may stand still before it is worth a word.
_LONG_SESSION_MS = 60_000
#: Kafka's default until 3.0, which was raised since pauses of clouds are longer (KIP-735).
_SHORT_SESSION_MS = 10_000
#: As long as one member that hangs may hold up a rebalance of all.
_LONG_POLL_MS = 600_000


def _classic(conf: ClientConf) -> bool:
    return conf.kafka and not conf.consumer_protocol


def _seen(conf: ClientConf, misfit: Misfit | None) -> Iterator[Seen]:
    if misfit is not None:
        yield Seen(misfit.field, conf.shown(misfit.field), misfit.effect, misfit.remedy)


def _heartbeat(conf: ClientConf) -> Iterator[Seen]:
    heartbeat_ms, session_ms = conf.number(HEARTBEAT), conf.number(SESSION)
    if not _classic(conf) or heartbeat_ms is None or session_ms is None:
        return
    for each in _seen(conf, budget.heartbeat_fits(heartbeat_ms, session_ms)):
        # Java's client refuses it, librdkafka's loses its membership again and again.
        yield each._replace(severity=Severity.ERROR) if heartbeat_ms >= session_ms else each


def _session_refused(conf: ClientConf) -> Iterator[Seen]:
    session_ms = conf.number(SESSION)
    if _classic(conf) and session_ms is not None:
        yield from _seen(conf, budget.session_allowed(session_ms))


def _session_above_poll(conf: ClientConf) -> Iterator[Seen]:
    session_ms, max_poll_ms = conf.number(SESSION), conf.number(MAX_POLL)
    # Java's client makes a consumer of it.
    if _classic(conf) and conf.librdkafka and session_ms is not None and max_poll_ms is not None:
        yield from _seen(conf, budget.session_below_poll(session_ms, max_poll_ms))


def _restart(conf: ClientConf) -> Iterator[Seen]:
    session_ms, restart_s = conf.number(SESSION), conf.circumstances.restart_s
    if not conf.said(STATIC_ID):
        return
    if _classic(conf) and session_ms is not None:
        yield from _seen(conf, budget.restart_fits(session_ms, restart_s))
    elif conf.consumer_protocol and restart_s is not None:
        misfit = budget.restart_fits(budget.DEFAULT_SESSION_MS, restart_s, session=budget.GROUP_SESSION)
        if misfit is not None:
            yield Seen(
                misfit.field,
                f"{budget.DEFAULT_SESSION_MS} (the default; a setting of the group at the broker, not of the client)",
                misfit.effect,
                misfit.remedy,
            )


def _session_short(conf: ClientConf) -> Iterator[Seen]:
    session_ms = conf.number(SESSION)
    if not _classic(conf) or session_ms is None or budget.session_allowed(session_ms) is not None:
        return  # refused at any length: another rule tells
    if session_ms < _SHORT_SESSION_MS and not any(_restart(conf)):
        yield Seen(
            SESSION,
            conf.shown(SESSION),
            f"the broker removes a member that sends no heartbeat for {session_ms / 1000:g} s: a pause of its "
            "machine, network or broker of that length causes two rebalances, and its records in progress run again "
            "on another member",
            f"use {budget.DEFAULT_SESSION_MS}, the default since Kafka 3.0, or less if you cannot wait that long "
            f"after a crash; go below {_SHORT_SESSION_MS} only if nothing ever pauses",
        )


def _session_long(conf: ClientConf) -> Iterator[Seen]:
    session_ms, restart_s = conf.number(SESSION), conf.circumstances.restart_s
    if not _classic(conf) or session_ms is None:
        return
    # A static member's has to outlast a restart; nobody has said how long that is, so give it five minutes.
    enough_ms = _LONG_SESSION_MS
    if conf.said(STATIC_ID):
        enough_ms = 300_000 if restart_s is None else max(_LONG_SESSION_MS, round(restart_s * 2_000))
    if session_ms > enough_ms:
        yield Seen(
            SESSION,
            conf.shown(SESSION),
            f"when a member dies, its partitions stand still for {session_ms / 1000:g} s; what producers write "
            "meanwhile is a backlog for the member that takes them over",
            f"{enough_ms} is enough"
            + (" for the restart time that you gave" if restart_s and conf.said(STATIC_ID) else ""),
        )


def _turn(conf: ClientConf) -> Iterator[Seen]:
    max_poll_ms, turn = conf.number(MAX_POLL), conf.turn
    if conf.kafka and turn is not None and max_poll_ms is not None:
        yield from _seen(conf, budget.turn_fits(turn, max_poll_ms))


def _poll_long(conf: ClientConf) -> Iterator[Seen]:
    max_poll_ms, turn = conf.number(MAX_POLL), conf.turn
    if conf.client is Client.ROCKETMQ or max_poll_ms is None:
        return
    needed_ms = 0 if turn is None else round(turn.total_s * 2_000)
    if max_poll_ms > max(_LONG_POLL_MS, needed_ms):
        yield Seen(
            MAX_POLL,
            conf.shown(MAX_POLL),
            "it is also the rebalance timeout: a member that hangs in its handler keeps its partitions that long, and "
            "a rebalance of the whole group waits for it",
            "set it to a little more than batch, drain and commit take"
            + (f": {turn}" if turn is not None else "")
            + ", or poll while handlers run, as holdfast does",
        )


RULES = (
    Rule(
        name="session-refused",
        severity=Severity.WARNING,
        effect=Effect.REFUSED,
        title="`session.timeout.ms` outside the range that brokers allow by default",
        look=_session_refused,
    ),
    Rule(
        name="session-above-poll",
        severity=Severity.ERROR,
        effect=Effect.REFUSED,
        title="`session.timeout.ms` above `max.poll.interval.ms` (librdkafka)",
        look=_session_above_poll,
    ),
    Rule(
        name="poll-interval-short",
        severity=Severity.ERROR,
        effect=Effect.STORM,
        title="batch, drain and commit together take `max.poll.interval.ms` or longer; needs `--handler`",
        look=_turn,
        needs_handler=True,
    ),
    Rule(
        name="heartbeat-slow",
        severity=Severity.WARNING,
        effect=Effect.STORM,
        title="`heartbeat.interval.ms` above a third of the session timeout",
        look=_heartbeat,
        also=((Severity.ERROR, "if it is not below the session timeout"),),
    ),
    Rule(
        name="restart-outlasts-session",
        severity=Severity.WARNING,
        effect=Effect.STORM,
        title="a static member whose restart takes longer than its session timeout",
        look=_restart,
    ),
    Rule(
        name="session-short",
        severity=Severity.WARNING,
        effect=Effect.STORM,
        title="a session timeout below 10 s",
        look=_session_short,
    ),
    Rule(
        name="session-long",
        severity=Severity.NOTE,
        effect=Effect.STANDSTILL,
        title="a session timeout above a minute; for a static member, above what its restart needs",
        look=_session_long,
    ),
    Rule(
        name="poll-interval-long",
        severity=Severity.NOTE,
        effect=Effect.STANDSTILL,
        title="`max.poll.interval.ms` above ten minutes",
        look=_poll_long,
    ),
)
