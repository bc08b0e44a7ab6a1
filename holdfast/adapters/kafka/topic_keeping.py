"""How topics keep their records (cleanup.policy, retention), read from the broker, and whether retry topics and dead
letter topics keep theirs long enough. Needs DESCRIBE_CONFIGS on them, which neither READ nor WRITE includes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from holdfast.adapters.kafka._client import ResourceType
from holdfast.adapters.kafka.admin import Admin
from holdfast.adapters.kafka.properties import addresses
from holdfast.errors import SourceError, SourceUnavailable, TopicUnfit
from holdfast.plugin.retrying.keeping import Keeping, flaws_of_letters, flaws_of_retries, flaws_of_size

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from holdfast.plugin.retrying.keeping import Flaw
    from holdfast.timing import Deadline

_log = logging.getLogger("holdfast.kafka")


def keeping_of(admin: Admin, topics: Collection[str], deadline: Deadline) -> dict[str, Keeping | SourceError]:
    """How each topic keeps its records; or the error, if the broker does not tell."""
    if not topics:
        return {}
    found = admin.configs(ResourceType.TOPIC, topics, deadline, "asking how {} keeps its records")
    return {name: each if isinstance(each, SourceError) else _keeping(each) for name, each in found.items()}


def check_topics(
    conf: Mapping[str, object],
    delays: Mapping[str, float],
    origins: Mapping[str, Collection[str]],
    deadline: Deadline,
) -> None:
    """Check at the start that retry topics keep their records until they are due. Flaws that are not fatal are logged.
    If the broker does not allow this user to ask, that is logged once; for topics that are only read it is not needed.

    Args:
        conf: of a client, with its credentials.
        delays: retry topic -> seconds that a record waits in it.
        origins: retry topic or dead letter topic -> the topics whose records come there.
        deadline: of the start.

    Raises:
        TopicUnfit: a retry topic loses records.
        SourceUnavailable: there are retry topics, and no broker answers by the deadline.
    """
    admin, untold = Admin(conf), dict[str, SourceError]()
    unfit = []
    if admin.is_mock(deadline):
        return
    found = keeping_of(admin, {*origins, *(each for some in origins.values() for each in some)}, deadline)
    for topic, told in ((topic, found[topic]) for topic in sorted(origins)):
        if isinstance(told, SourceError):
            if isinstance(told, SourceUnavailable) and topic in delays:
                raise told
            untold[topic] = told
            continue
        known = {each: keeping for each in origins[topic] if isinstance(keeping := found[each], Keeping)}
        for flaw in (*flaws(topic, delays.get(topic), told), *flaws_of_size(topic, told, known)):
            if flaw.fatal:
                unfit.append(flaw)
            else:
                _log.warning("%s", flaw)
    if unfit:
        raise TopicUnfit("; ".join(map(str, unfit)) + f" ({_command(unfit, addresses(conf))})")
    if untold:
        topic, why = next(iter(untold.items()))
        _log.log(
            logging.WARNING if untold.keys() & delays.keys() else logging.INFO,
            "could not check whether %s keep their records (cleanup.policy, retention.ms): allow this user "
            "DESCRIBE_CONFIGS on them, or look yourself; of %s: %s",
            ", ".join(sorted(untold)),
            topic,
            why,
        )


def flaws(topic: str, delay_s: float | None, keeping: Keeping) -> Iterator[Flaw]:
    """Find the flaws of a topic. Args: delay_s: of a retry topic; None = it is a dead letter topic."""
    return flaws_of_letters(topic, keeping) if delay_s is None else flaws_of_retries(topic, delay_s, keeping)


def _command(unfit: Collection[Flaw], where: str) -> str:
    topic = next(iter(unfit)).topic
    return (
        f"kafka-configs.sh --bootstrap-server {where} --alter --entity-type topics --entity-name {topic} --add-config "
        "cleanup.policy=delete,retention.ms=604800000"
    )


def _keeping(settings: Mapping[str, str | None]) -> Keeping:
    policies = [each.strip() for each in (settings.get("cleanup.policy") or "").split(",")]
    deletes = "delete" in policies
    return Keeping(
        compacted="compact" in policies,
        kept_s=None if not deletes or (kept_ms := _bound(settings, "retention.ms")) is None else kept_ms / 1000,
        kept_bytes=_bound(settings, "retention.bytes") if deletes else None,
        most_bytes=_bound(settings, "max.message.bytes"),
    )


def _bound(settings: Mapping[str, str | None], name: str) -> int | None:
    """Read a limit; None = there is none (-1)."""
    said = settings.get(name)
    return None if said is None or int(said) < 0 else int(said)
