"""One process of a Kafka cluster: broker and controller in one, with its ports and its data in a folder of its own."""

from __future__ import annotations

import base64
import os
import shutil
import signal
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from tests.harness.kafka_wire import KafkaWire
from tests.harness.processes import end, spawn, tail

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping, Sequence

_HERE = Path(__file__).parent / "kafka"
_LIB = Path(__file__).parents[3] / ".servers" / "kafka" / "lib"
_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
# C1 only and the serial collector: a broker that lives for minutes on shared cores never earns C2's and G1's work back.
_JAVA = ("-Xms128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")


def jars() -> Path:
    """Kafka's, which `make setup` has put there."""
    return Path(os.environ.get("HOLDFAST_KAFKA_LIB", _LIB))


def new_id() -> str:
    """A uuid as Kafka writes it. Not beginning with "-", which one in 64 does: tools would take that for an option."""
    return "h" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]


def java_tool(lib: Path, main: str, *arguments: str) -> list[str]:
    """The command of one of Kafka's own programs."""
    logging = f"-Dlog4j2.configurationFile={_HERE / 'log4j2.properties'}"
    # One argument, no shell: 'lib/*' is Java's own wildcard.
    return ["java", *_JAVA, logging, "-cp", f"{lib}/*", main, *arguments]


class KafkaNode:
    """It starts and ends on the same ports with the same data, until its folder is removed."""

    def __init__(
        self, number: int, home: Path, lib: Path, *, ports: Sequence[int], listeners: Mapping[str, str], heap_mb: int
    ) -> None:
        """Args:
        ports: of the broker, of the controller, of further listeners.
        listeners: those, each behind a wire: name -> security protocol.
        """
        self.number, self._home, self._lib, self._heap_mb = number, home, lib, heap_mb
        self._protocols = listeners
        self.port, self.controller_port, *more = ports
        self._ports = dict(zip(listeners, more, strict=True))
        self.wires = {
            name: KafkaWire(port, encrypted=listeners[name].endswith("SSL")) for name, port in self._ports.items()
        }
        self.directory_id = new_id()
        self.log_file = home / f"broker-{number}.log"
        self._settings = home / f"server-{number}.properties"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def controller(self) -> str:
        """As the other nodes know it from the first moment."""
        return f"{self.number}@127.0.0.1:{self.controller_port}:{self.directory_id}"

    def format(self, cluster: str, nodes: list[KafkaNode], properties: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Write its settings, and begin to format its storage."""
        filled = {
            "node": self.number,
            "port": self.port,
            "controller_port": self.controller_port,
            "controllers": ",".join(f"127.0.0.1:{each.controller_port}" for each in nodes),
            "more_listeners": "".join(f",{name}://127.0.0.1:{port}" for name, port in self._ports.items()),
            "more_addresses": "".join(f",{name}://127.0.0.1:{wire.port}" for name, wire in self.wires.items()),
            "more_protocols": "".join(f",{name}:{protocol}" for name, protocol in self._protocols.items()),
            "replicas": len(nodes),
            # Of three, one may be away.
            "in_sync": min(2, len(nodes)),
            # Before they have elected a leader, controllers know no rule, and refuse each other's votes.
            "authorizer": _AUTHORIZER if len(nodes) == 1 else "",
            "data": self._home / f"data-{self.number}",
        }
        settings = (_HERE / "server.properties").read_text()
        for name, value in filled.items():
            settings = settings.replace(f"{{{name}}}", str(value))
        self._settings.write_text(settings + "".join(f"\n{name}={value}" for name, value in properties.items()))
        controllers = ",".join(each.controller for each in nodes)
        how = ("format", "-t", cluster, "--initial-controllers", controllers, "-c", str(self._settings))
        return spawn(java_tool(self._lib, "kafka.tools.StorageTool", *how), self.log_file)

    def run(self) -> None:
        """Start; does not wait for it."""
        main = java_tool(self._lib, "kafka.Kafka", str(self._settings))
        self.process = spawn([main[0], f"-Xmx{self._heap_mb}m", *main[1:]], self.log_file)

    def halt(self, patience_s: float) -> None:
        """SIGTERM, and SIGKILL after `patience_s`; 0 = SIGKILL at once. Idempotent."""
        if self.process is not None:
            if not patience_s:
                self.process.kill()
            end(self.process, patience_s)
            self.process = None

    def close_wires(self) -> None:
        """Idempotent."""
        for each in self.wires.values():
            each.close()

    def pause(self) -> None:
        """SIGSTOP: connections stay, answers do not come."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    @property
    def ended(self) -> int | None:
        """The status with which it has ended by itself."""
        return None if self.process is None else self.process.poll()

    @property
    def log(self) -> str:
        """The last lines that it wrote."""
        return tail(self.log_file)

    def _signal(self, number: signal.Signals) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)


def has_java() -> bool:
    """Whether there is one on PATH."""
    return shutil.which("java") is not None
