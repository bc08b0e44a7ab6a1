"""Static members: a process that keeps its name over a restart (group.instance.id), so that nothing moves meanwhile.

Two processes with one static id (Kafka 4.3.1): in the classic protocol the newer process takes the place of the older
one, whose client ends. In the consumer protocol the newer one is refused as long as the older one's session lasts,
whether that process lives or was killed.

`_FATAL` hides the error's code, so the protocol decides about it. Classic: this member was fenced, and it stops;
otherwise the two would throw each other out for ever. Consumer protocol: this member was refused, because of a living
process or of a dead one's session; it tries again for a limited time.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from holdfast.errors import SettingError, SourceError, SourceFatal, StaticIdTaken

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.adapters.kafka._client import KafkaError

PROPERTY = "group.instance.id"
#: The rule of Kafka's own clients, as for a topic's name (Topic.validate, JoinGroupRequest.validateGroupInstanceId).
_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")

#: How long a refusal may be due to a dead predecessor: the longest session that brokers allow by default
#: (group.consumer.max.session.timeout.ms), and half of it in addition.
_REFUSED_S = 90.0


def check_name(field: str, name: object) -> str:
    """Check a static id. Raises SettingError."""
    said = "" if name is None else str(name)
    if not _NAME.fullmatch(said) or said in (".", ".."):
        raise SettingError(
            field,
            name,
            "use a name that one member alone has, of 1 to 249 letters, digits, '.', '_' and '-', such as a pod's name",
        )
    return said


def with_id(conf: Mapping[str, object], static_id: object) -> dict[str, object]:
    """The configuration with this static id. Raises SettingError."""
    name = check_name("static_id", static_id)
    if conf.get(PROPERTY, name) != name:
        raise SettingError("static_id", static_id, f"{PROPERTY}={conf[PROPERTY]!r} says another: leave one of them out")
    return {**conf, PROPERTY: name}


def chosen(conf: Mapping[str, object], asked: Callable[[], str] | None, static_id: str) -> Callable[[], str]:
    """A function that returns the static id given to a source without one. Raises SettingError.

    Args:
        conf: of the source.
        asked: the function that the source would call for its static id.
        static_id: the name.
    """
    if asked is not None:
        raise SettingError("static_id", static_id, "the source asks a function for its name: leave one of the two out")
    with_id(conf, static_id)
    return lambda: static_id


def id_from(told: Callable[[], str]) -> str:
    """Call the user's function for the static id. Raises SettingError."""
    try:
        return check_name("static_id", told())
    except SettingError:
        raise
    except Exception as error:
        raise SettingError(
            "static_id", told, f"it failed ({type(error).__name__}: {error}): let it return this member's name"
        ) from error


class Refusals:
    """Refusals of a static member whose id another process has. One thread."""

    def __init__(self, static_id: str, group: str, now: Callable[[], float], *, waits: bool) -> None:
        """Args: waits: True under the consumer protocol, in which a refused member may be let in once a session
        ends."""
        self._id, self._group, self._now, self._waits = static_id, group, now, waits
        self._since: float | None = None
        #: This member will not come back.
        self.final = False

    @property
    def waiting(self) -> bool:
        """Whether the member was refused, and has not been let in since."""
        return self._since is not None

    def judge(self, error: KafkaError) -> SourceError | None:
        """The error to raise about a refusal; None = it was raised before."""
        if not self._waits:
            # If this member came back, it would take the other's place, and so on for ever.
            self.final = True
            return StaticIdTaken(
                f"another process joined {self._group} as {PROPERTY}={self._id} and has this member's place "
                f"({error.str()}): give each process its own, see that the old one is gone before its name is used "
                "again, and start this one anew"
            )
        if self._since is None:
            self._since = self._now()
            return SourceFatal(
                f"{self._group}: {PROPERTY}={self._id} is still another member's ({error.str()}); one that was killed "
                f"has it until its session ends. The member tries again silently, for {_REFUSED_S:.0f} s at most"
            )
        if self._now() - self._since < _REFUSED_S:
            return None
        self.final = True
        return StaticIdTaken(
            f"another member of {self._group} has had {PROPERTY}={self._id} for {_REFUSED_S:.0f} s, longer than a dead "
            f"one's session lasts ({error.str()}): give each process its own, or end the other one and start this one "
            "anew"
        )

    def let_in(self) -> float:
        """Note that it is a member again. Returns the seconds since its first refusal."""
        since, self._since = self._since, None
        return 0.0 if since is None else self._now() - since
