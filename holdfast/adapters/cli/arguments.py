"""The values that users write on a command line: times, partitions, files with addresses and credentials."""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from holdfast.errors import SettingError
from holdfast.timing import wall_ms

_UNITS_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_SPAN = re.compile(r"(\d+)([smhd])")
_TIME = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)?")
_TIME_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0}
_PARTITIONS = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")
_MOST_PARTITIONS = 100_000
#: Each is an object here, or a process.
_MOST_PROCESSES = 10_000
_MOST = 10**12
_MOST_S = 86_400
#: Ten years.
_LONGEST_S = 10 * 365 * 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a group is to go on."""

    kind: Literal["earliest", "latest", "offset", "time", "shift"]
    #: The offset; milliseconds since 1970; or how many records back (negative) or ahead.
    value: int = 0


def target(text: str) -> Target:
    """earliest, latest, 4711, 2026-11-20T10:00:00Z, -1000, +1000. Raises ArgumentTypeError."""
    if text == "earliest":
        return Target(kind="earliest")
    if text == "latest":
        return Target(kind="latest")
    if re.fullmatch(r"[+-]\d{1,18}", text):
        return Target(kind="shift", value=int(text))
    if re.fullmatch(r"[0-9]{1,18}", text):
        return Target(kind="offset", value=int(text))
    if not re.match(r"\d{4}-", text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither earliest, latest, an offset (4711), so many records back or ahead (-1000, +1000) nor "
            "a point in time (2026-11-20T10:00:00Z)"
        )
    return Target(kind="time", value=instant_ms(text))


def instant_ms(text: str) -> int:
    """A point in time with its zone, in milliseconds since 1970. Raises ArgumentTypeError."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no point in time: write it as 2026-11-20T10:00:00Z") from None
    if when.tzinfo is None:
        raise argparse.ArgumentTypeError(f"{text!r} has no zone: append Z for UTC, or an offset such as +02:00")
    return round(when.timestamp() * 1000)


def since_ms(text: str) -> int:
    """A point in time, or how long ago (90s, 15m, 2h, 7d), in milliseconds since 1970. Raises ArgumentTypeError."""
    if (found := _SPAN.fullmatch(text)) is not None:
        return wall_ms() - int(found[1]) * _UNITS_S[found[2]] * 1000
    if not text[:1].isdigit() or text.isdigit():
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a time ago nor a point in time: write it as 90s, 15m, 2h or 7d, or as "
            "2026-11-20T10:00:00Z"
        )
    return instant_ms(text)


def partitions(text: str) -> frozenset[int]:
    """Numbers and ranges: 0,3-5. Raises ArgumentTypeError."""
    found: set[int] = set()
    for part in text.split(","):
        match = _PARTITIONS.fullmatch(part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last < _MOST_PARTITIONS:
            raise argparse.ArgumentTypeError(f"{text!r} names no partitions: write them as 0,3-5")
        found.update(range(first, last + 1))
    return frozenset(found)


def at_least_0(text: str) -> int:
    """A whole number. Raises ArgumentTypeError."""
    return _whole(text, 0, _MOST)


def at_least_1(text: str) -> int:
    """A whole number above 0. Raises ArgumentTypeError."""
    return _whole(text, 1, _MOST)


def processes(text: str) -> int:
    """How many, one at least. Raises ArgumentTypeError."""
    return _whole(text, 1, _MOST_PROCESSES)


def members(text: str) -> int:
    """How many members a group has, or none. Raises ArgumentTypeError."""
    return _whole(text, 0, _MOST_PROCESSES)


def _whole(text: str, least: int, most: int) -> int:
    digits = text if text.isascii() and text.isdigit() and len(text) <= len(str(most)) else "-1"
    if not least <= int(digits) <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from {least} to {most:,}")
    return int(digits)


def port(text: str) -> int:
    """A port to listen at; 0: any that is free. Raises ArgumentTypeError."""
    if not (re.fullmatch(r"[0-9]{1,5}", text) and int(text) < 1 << 16):
        raise argparse.ArgumentTypeError(f"{text!r} is no port: give a number up to 65535, 0 for any that is free")
    return int(text)


def token(text: str) -> str:
    """A token for the endpoint. Raises ArgumentTypeError, without the token."""
    from holdfast.adapters.watching.access import check_token  # noqa: PLC0415 - a command loads what it uses

    try:
        check_token(text)
    except SettingError as error:
        raise argparse.ArgumentTypeError(error.remedy) from None
    return text


def topic_counts(text: str) -> dict[str, int]:
    """Topics with numbers of partitions: orders=12,payments=4. Raises ArgumentTypeError."""
    found: dict[str, int] = {}
    for part in text.split(","):
        topic, _, count = (each.strip() for each in part.partition("="))
        if not topic or not count.isascii() or not count.isdigit() or not 0 < int(count) < _MOST_PARTITIONS:
            raise argparse.ArgumentTypeError(
                f"{text!r} names no topics with partitions: write them as orders=12,payments=4"
            )
        found[topic] = int(count)
    return found


def assignor_list(text: str) -> tuple[str, ...]:
    """Assignors as partition.assignment.strategy has them, a favourite first. Raises ArgumentTypeError."""
    found = tuple(part.strip() for part in text.split(","))
    if not all(found):
        raise argparse.ArgumentTypeError(f"{text!r} names no assignors: write them as cooperative-sticky,range")
    return found


def seconds(text: str) -> float:
    """A positive number of seconds. Raises ArgumentTypeError."""
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < _MOST_S:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0 and below {_MOST_S:,}")
    return found


def span_s(text: str) -> float:
    """How long, in seconds: 200ms, 2s, 5m, or a number of seconds. Raises ArgumentTypeError."""
    match = _TIME.fullmatch(text.strip())
    found = _LONGEST_S if match is None else float(match[1]) * _TIME_UNITS_S[match[2] or "s"]
    if found >= _LONGEST_S:
        raise argparse.ArgumentTypeError(f"{text!r} is no time: write it as 200ms, 2s or 5m")
    return found


def redis_url(said: str) -> str:
    """The URL itself, or what stands in the file: `@path`, so that a password need not be on the command line.

    Raises SettingError, without the file's content.
    """
    if not said.startswith("@"):
        return said
    lines = [line.strip() for line in text_of("--redis", said[1:]).splitlines()]
    found = [line for line in lines if line and not line.startswith("#")]
    if len(found) != 1:
        raise SettingError("--redis", said, f"the file has {len(found)} lines: it must have exactly one, the URL")
    return found[0]


def kafka_conf(bootstrap: str | None, file: str | None) -> dict[str, object]:
    """A client's configuration: the file's properties (JSON, or lines of name=value), `bootstrap` above them.

    Raises SettingError, without the file's content.
    """
    conf = {} if file is None else _properties("--kafka-config", file)
    if bootstrap:
        conf["bootstrap.servers"] = bootstrap
    if not conf.get("bootstrap.servers") and not conf.get("metadata.broker.list"):
        raise SettingError("--bootstrap", bootstrap, "give host:port of a broker, or --kafka-config with a file")
    return conf


#: What a file of --rocketmq-config may say.
ROCKETMQ_NAMES = ("namesrv", "access_key", "secret_key", "security_token", "tls", "tls_ca_file")


def rocketmq_conf(namesrv: str | None, file: str | None) -> dict[str, str]:
    """The name servers and how to log in: the file's (JSON, or lines of name=value), `namesrv` above it.

    Raises SettingError, without the file's content.
    """
    option = "--rocketmq-config"
    conf = {} if file is None else {name: str(value) for name, value in _properties(option, file).items()}
    if unknown := sorted(conf.keys() - set(ROCKETMQ_NAMES)):
        raise SettingError(option, file, f"{unknown[0]} is not a known name: use {', '.join(ROCKETMQ_NAMES)}")
    if namesrv:
        conf["namesrv"] = namesrv
    if not conf.get("namesrv"):
        raise SettingError(
            "--namesrv", namesrv, f"give host:port of a name server, or {option} with a file that names one"
        )
    if ("access_key" in conf) != ("secret_key" in conf):
        raise SettingError(option, file, "the file has only one of access_key and secret_key: give both")
    if conf.get("tls", "false").lower() not in ("true", "false"):
        raise SettingError(option, file, "set tls to true or false")
    return conf


def _properties(option: str, file: str) -> dict[str, object]:
    text = text_of(option, file)
    if text.lstrip().startswith("{"):
        return {str(name): value for name, value in parse_json(text, file, option).items()}
    return parse_properties(text, file, option)


def parse_json(text: str, file: str, option: str) -> Any:  # noqa: ANN401 - whatever it says
    """Raises SettingError that names the line's number, not its content."""
    try:
        return json.loads(text)
    except ValueError as error:
        where = f"line {error.lineno}" if isinstance(error, json.JSONDecodeError) else "somewhere"
        raise SettingError(option, file, f"the file is no valid JSON, from {where} on") from None


def parse_properties(text: str, file: str, option: str = "--kafka-config") -> dict[str, object]:
    """Lines of name=value; # and ! begin comments. A value is taken as it stands: there are no escapes.

    Raises SettingError that names the line's number, not its content.
    """
    found: dict[str, object] = {}
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if not line or line[0] in "#!":
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise SettingError(option, file, f"line {number} is no name=value")
        found[name.strip()] = value.strip()
    return found


def text_of(option: str, path: str) -> str:
    """A file's text. Raises SettingError, without the file's content."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise SettingError(option, path, f"the file cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise SettingError(option, path, "the file is no UTF-8") from None
