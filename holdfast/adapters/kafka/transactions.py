"""Transactions: the settings of a source whose commits are transactions, and what of them is checked before any client
exists. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from holdfast.adapters.kafka.callbacks import ClientLog
from holdfast.adapters.kafka.properties import CONSUMER_ONLY, for_helpers
from holdfast.errors import SettingError
from holdfast.plugin.librdkafka import PROPERTIES
from holdfast.plugin.setting_names import check_number, known, meant

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.adapters.kafka.config import CheckedConfig

#: After so long without an end the broker aborts a transaction. The next owner of a partition that has lost its member
#: in the middle of one waits for that.
TIMEOUT_MS = 10_000

_OWN: Mapping[str, object] = MappingProxyType(
    {
        "acks": "all",
        "enable.idempotence": True,
        "transaction.timeout.ms": TIMEOUT_MS,
        # How long a topic may be missing in metadata before the client calls it missing; 30 s by default.
        "topic.metadata.propagation.max.ms": 5_000,
    }
)
_UNLESS_SAID: Mapping[str, object] = MappingProxyType(
    {
        # A record that was fetched can be sent, as a dead letter too: the broker's limit decides.
        "message.max.bytes": 100_000_000,
        # All outputs of a transaction are there when it begins; its end waits for no linger.
        "linger.ms": 5,
    }
)
_REMEDIES = {
    "transactional.id": "leave it out: it is made of the group and of the static id, or of a random name",
    "bootstrap.servers": "leave it out: a transaction that commits the group's offsets is of the group's own brokers",
}


@known
@dataclass(frozen=True, slots=True, kw_only=True)
class Transactions:
    """Let each commit of the group's offsets be a transaction, in which the outputs of the handlers are written too.

    Raises:
        SettingError: a value that cannot work.
    """

    #: Seconds between two transactions. Whoever reads what they write waits so long for it, and each costs the brokers
    #: some writes.
    interval_s: float = 0.1
    #: More properties of the producer, such as {"compression.type": "lz4"}; it has addresses and credentials of the
    #: consumer.
    producer: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_number("interval_s", self.interval_s, 0, "use 0 or more seconds")
        for name, value in self.producer.items():
            if name in _REMEDIES or name in _OWN:
                remedy = _REMEDIES.get(name, f"leave it out: with transactions it is {_OWN.get(name)}")
                raise SettingError(f"producer[{name!r}]", value, remedy)
            if name in CONSUMER_ONLY or name not in PROPERTIES:
                raise SettingError(
                    f"producer[{name!r}]", value, f"a producer has no such property: {meant(name, PROPERTIES)}"
                )


def check_transactions(transactions: object, checked: CheckedConfig) -> None:
    """Raises SettingError: it is no `Transactions`, or the consumer would read what no transaction has committed."""
    if not isinstance(transactions, Transactions):
        raise SettingError("transactions", type(transactions).__name__, "use Transactions(interval_s=0.1)")
    level = str(checked.conf.get("isolation.level", "read_committed")).strip().lower()
    if level != "read_committed":
        raise SettingError(
            "isolation.level",
            checked.conf["isolation.level"],
            "leave it out, or use read_committed: with transactions the client then waits for a former owner's "
            "transaction before it reads the group's offset",
        )


def producer_conf(transactions: Transactions, conf: Mapping[str, object], name: str) -> dict[str, Any]:
    """The configuration of the producer. Args: conf: the consumer's; name: the transactional.id."""
    said = {"logger": ClientLog(), **_UNLESS_SAID, **for_helpers(conf), **transactions.producer}
    return {**said, **_OWN, "transactional.id": name}
