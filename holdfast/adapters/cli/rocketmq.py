"""The tools of RocketMQ, from what the command line says of it."""

from __future__ import annotations

import ssl
from functools import partial
from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.names import leased_record, push_record
from holdfast.adapters.rocketmq.remoting import Credentials, RemotingClient
from holdfast.adapters.rocketmq.remoting.admin import Admin
from holdfast.adapters.rocketmq.tools.dead_letters import RocketMQDeadLetterTool
from holdfast.adapters.rocketmq.tools.groups import RocketMQGroupViews
from holdfast.adapters.rocketmq.tools.offsets import RocketMQOffsetTool
from holdfast.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.dedup.coordinator import Coordinator
    from holdfast.timing import Deadline


def offset_tool(conf: Mapping[str, str], group: str) -> RocketMQOffsetTool:
    """Raises SettingError."""
    return RocketMQOffsetTool(_connect(conf), group)


def group_views(conf: Mapping[str, str], group: str, coordinator: Coordinator | None) -> RocketMQGroupViews:
    """Raises SettingError."""
    return RocketMQGroupViews(_connect(conf), group, coordinator)


def dead_letter_tool(conf: Mapping[str, str]) -> RocketMQDeadLetterTool:
    """Raises SettingError."""
    return RocketMQDeadLetterTool(_connect(conf))


def records_of(group: str, topic: str) -> tuple[str, ...]:
    """The names under which the members of a group are in the store, by the kind of their source."""
    return group, leased_record(group, topic), push_record(group)


def version(conf: Mapping[str, str], deadline: Deadline) -> str:
    """The brokers' oldest. Raises SettingError, SourceError."""
    with _connect(conf)() as client:
        return Admin(client).version(deadline)


def _connect(conf: Mapping[str, str]) -> Callable[[], RemotingClient]:
    credentials = None
    if "access_key" in conf:
        credentials = Credentials(
            access_key=conf["access_key"], secret_key=conf["secret_key"], security_token=conf.get("security_token")
        )
    return partial(RemotingClient, conf["namesrv"], credentials=credentials, tls=_tls(conf))


def _tls(conf: Mapping[str, str]) -> ssl.SSLContext | None:
    if conf.get("tls", "false").lower() != "true" and "tls_ca_file" not in conf:
        return None
    try:
        return ssl.create_default_context(cafile=conf.get("tls_ca_file"))
    except OSError as error:  # ssl.SSLError too
        raise SettingError("tls_ca_file", conf.get("tls_ca_file"), f"it cannot be used ({error.strerror})") from None
