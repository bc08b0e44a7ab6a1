"""A real RocketMQ (name server, brokers, proxy) from the jars that `make setup` puts into .servers/rocketmq/lib."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import struct
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tests.harness.processes import ServerFailed, end, free_ports, is_free, spawn, tail

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Mapping, Sequence

    from tests.harness.servers.certificates import Certificates

_LIB = Path(__file__).parents[3] / ".servers" / "rocketmq" / "lib"
_START_S = 240.0
_CALL_S = 2.0
_LOOK_S = 0.1
_CLUSTER = "holdfast"
_CLUSTER_INFO = 106
_UPDATE_CONFIG = 25
_SLAVE = "-slave"
# C1 only and the serial collector: servers that live for minutes on shared cores never earn C2's and G1's work back.
_JAVA = (
    "-Xms128m", "-Xmx512m", "-XX:MaxDirectMemorySize=512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
)  # fmt: skip


def jars() -> Path:
    """RocketMQ's, which `make setup` has put there."""
    return Path(os.environ.get("HOLDFAST_ROCKETMQ_LIB", _LIB))


class RocketMQServer:
    """One name server, brokers called "broker-a", "broker-b", ..., each alone in its name, and by choice the proxy for
    gRPC; on free loopback ports, with their data in a folder of their own. A slave may be added to a broker.

    Topics and groups are made by who first uses them. Raises ServerFailed with the end of a log where one cannot start.
    """

    def __init__(
        self,
        lib: Path | None = None,
        *,
        brokers: int = 1,
        proxy: bool = False,
        settings: Mapping[str, str] | None = None,
        name_server: Mapping[str, str] | None = None,
        certificates: Certificates | None = None,
    ) -> None:
        """Args:
        settings: more lines of every broker.conf.
        name_server: more lines of namesrv.conf.
        certificates: all servers speak TLS alone, with these.
        """
        self._lib = lib or jars()
        self._home = Path(tempfile.mkdtemp(prefix="holdfast-rocketmq-"))
        self._settings, self._name_server = dict(settings or {}), dict(name_server or {})
        self._with_proxy = proxy
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._ports: dict[str, int] = {}
        self._certificates = certificates
        #: Names of the brokers.
        self.brokers = [f"broker-{chr(ord('a') + number)}" for number in range(brokers)]
        #: The name server, host:port.
        self.namesrv = ""
        #: The proxy's gRPC endpoint, host:port; "" without one.
        self.endpoints = ""

    # -- its life ------------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Returns when the name server knows all brokers, and the proxy accepts connections."""
        java = shutil.which("java")
        if java is None or not any(self._lib.glob("rocketmq-broker-*.jar")):
            missing = "no java on PATH" if java is None else f"no RocketMQ jars in {self._lib}"
            self._remove()
            msg = f"{missing}: run `make setup` (it needs a JDK, 17 or later, and Maven)"
            raise ServerFailed(msg)
        (self._home / "home").mkdir()
        self.namesrv = self.start_name_server()
        for name in self.brokers:
            self._add_broker(name)
        self.await_brokers()
        if self._with_proxy:
            self.start_proxy()
        return self

    def stop(self) -> None:
        """End all and remove their data. Idempotent."""
        for name in reversed(list(self._processes)):
            self._halt(name, patience_s=0.0)  # nobody needs their data any more
        self._remove()

    def __enter__(self) -> Self:
        """Started already or not, it is stopped at the end."""
        return self if self._processes else self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- what tests do to it -------------------------------------------------------------------------------------------

    def stop_broker(self, name: str = "broker-a") -> None:
        """SIGTERM: it writes offsets and logs."""
        self._halt(name, patience_s=30.0)

    def kill_broker(self, name: str = "broker-a") -> None:
        """SIGKILL: what it had not flushed is lost (offsets reach the disk each 5 s)."""
        self._halt(name, patience_s=0.0)

    def start_broker(self, name: str = "broker-a") -> None:
        """Start on the same port with the same data; returns when the name server knows it."""
        self._run_broker(name)
        self._await_broker(name)

    def add_slave(self, master: str = "broker-a") -> str:
        """Start a slave of this broker; returns its name when the name server knows it.

        It knows the topics and groups of this moment. By itself it asks for them a minute after its start.
        """
        name = master + _SLAVE
        for each in ("topics.json", "subscriptionGroup.json"):
            file = self._home / master / "config" / each
            if file.exists():  # else there are none yet
                (self._home / name / "config").mkdir(parents=True, exist_ok=True)
                shutil.copy(file, self._home / name / "config")
        self._add_broker(name)
        self._await_broker(name)
        return name

    def remove_slave(self, name: str) -> None:
        """End it for good."""
        self._halt(name, patience_s=0.0)

    def promote(self, slave: str) -> None:
        """Start a slave that was ended as the master, at its own address: by hand, as the master is gone for good."""
        self._configure(slave, is_slave=False)
        self.start_broker(slave)

    def pause_broker(self, name: str = "broker-a") -> None:
        """SIGSTOP: connections stay, nothing is answered."""
        self._processes[name].send_signal(signal.SIGSTOP)

    def resume_broker(self, name: str = "broker-a") -> None:
        """SIGCONT."""
        self._processes[name].send_signal(signal.SIGCONT)

    def stop_name_server(self, name: str = "namesrv") -> None:
        """It keeps nothing: brokers tell it anew, each 10 s here."""
        self._halt(name, patience_s=10.0)

    def start_name_server(self, name: str = "namesrv") -> str:
        """Start on the same port, or one of a new name; returns its address when it answers, which may be before
        brokers have told it of themselves."""
        if name not in self._ports:
            [self._ports[name]] = free_ports(1)
        file = self._write(f"{name}.conf", {"listenPort": self._ports[name], **self._name_server})
        self._processes[name] = self._java(name, "namesrv.NamesrvStartup", "-c", str(file))
        self._await(name, lambda: self.cluster(name) is not None, "answers")
        return self.address(name)

    def tell_name_servers(self, addresses: Sequence[str]) -> None:
        """Tell the brokers that these are the name servers from now on, as `mqadmin updateBrokerConfig` does. They take
        it up with `updateNameServerAddrPeriod`."""
        for name in self.brokers:
            assert self._answer(name, _UPDATE_CONFIG, f"namesrvAddr={';'.join(addresses)}\n".encode())

    def await_known(self, name: str) -> None:
        """Returns when that name server knows all brokers that run."""
        running = [self.address(each) for each in self.brokers if each in self._processes]
        self._await(name, lambda: all(f'"{each}"' in (self.cluster(name) or "") for each in running), "knows brokers")

    def await_brokers(self) -> None:
        """Returns when the name server knows all brokers that run."""
        for name in self.brokers:
            if name in self._processes:
                self._await_broker(name)

    def start_proxy(self) -> None:
        """Start the proxy, anew on the same port where it ran before; returns when it accepts connections."""
        if "proxy" not in self._ports:
            self._ports["proxy"], self._ports["proxy remoting"] = free_ports(2)
        port = self._ports["proxy"]
        file = self._home / "proxy.json"
        file.write_text(
            json.dumps(
                {
                    "rocketMQClusterName": _CLUSTER,
                    "namesrvAddr": self.namesrv,
                    "grpcServerPort": port,
                    "remotingListenPort": self._ports["proxy remoting"],
                }
            )
        )
        self._processes["proxy"] = self._java(
            "proxy", "proxy.ProxyStartup", "-pm", "cluster", "-pc", str(file), "-n", self.namesrv
        )
        self._await("proxy", lambda: _accepts(port), "accepts connections")
        self.endpoints = f"127.0.0.1:{port}"

    def stop_proxy(self) -> None:
        """SIGTERM."""
        self._halt("proxy", patience_s=10.0)

    def kill_proxy(self) -> None:
        """SIGKILL."""
        self._halt("proxy", patience_s=0.0)

    def cluster(self, name: str = "namesrv") -> str | None:
        """What a name server says of its brokers, as it is (no JSON: its keys are bare numbers); None = no answer."""
        return self._answer(name, _CLUSTER_INFO)

    def told(self) -> dict[str, Any]:
        """What another process needs to ask these servers: `SharedRocketMQ(**told)`."""
        return {"namesrv": self.namesrv, "brokers": self.brokers, "ports": self._ports, "home": self._home}

    def address(self, name: str = "broker-a") -> str:
        """Of a broker, or of a name server."""
        return f"127.0.0.1:{self._ports[name]}"

    def mqadmin(self, *arguments: str, access_key: str, secret_key: str) -> str:
        """Run RocketMQ's own tool, as that user; what it printed."""
        keys = self._home / "home" / "conf" / "tools.yml"
        keys.parent.mkdir(exist_ok=True)
        keys.write_text(f"accessKey: {access_key}\nsecretKey: {secret_key}\n")
        (self._home / "mqadmin.log").unlink(missing_ok=True)
        process = self._java("mqadmin", "tools.command.MQAdminStartup", *arguments, "-n", self.namesrv)
        process.wait(_START_S)
        return self.log("mqadmin")

    def log(self, name: str = "broker-a") -> str:
        """The last lines that a server wrote: "namesrv", "broker-a", "proxy"."""
        return tail(self._home / f"{name}.log")

    # -- its parts -----------------------------------------------------------------------------------------------------

    def _answer(self, name: str, code: int, body: bytes = b"") -> str | None:
        """Header and body of an answer, as they are; None = no answer."""
        header = json.dumps(
            {"code": code, "language": "OTHER", "version": 453, "opaque": 1, "flag": 0, "extFields": {}}
        ).encode()
        try:
            with self._connected(name) as connection:
                connection.sendall(struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body)
                reader = connection.makefile("rb")
                [length] = struct.unpack(">i", reader.read(4))
                return reader.read(length).decode()
        except (OSError, struct.error):
            return None

    def _connected(self, name: str) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self._ports[name]), _CALL_S)
        if self._certificates is None:
            return connection
        return self._certificates.client().wrap_socket(connection, server_hostname="127.0.0.1")

    def _configure(self, name: str, *, is_slave: bool) -> None:
        data = self._home / name
        settings: dict[str, Any] = {
            "brokerClusterName": _CLUSTER,
            "brokerName": name.removesuffix(_SLAVE),
            "brokerId": int(is_slave),
            "brokerRole": "SLAVE" if is_slave else "ASYNC_MASTER",
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",  # where slaves fetch the log
            "listenPort": self._ports[name],
            "autoCreateTopicEnable": "true",
            "autoCreateSubscriptionGroup": "true",
            "storePathRootDir": data,
            "storePathCommitLog": data / "commitlog",
            "mappedFileSizeCommitLog": 64 << 20,
            "mappedFileSizeConsumeQueue": 1 << 20,
            "registerNameServerPeriod": 10_000,
            "diskMaxUsedSpaceRatio": 98,
            # Requests that have waited for 200 ms are refused by default: on shared cores that says nothing.
            "waitTimeMillsInSendQueue": 10_000,
            "osPageCacheBusyTimeOutMills": 10_000,
            # By default the thread that ends transactions spins: half a core for a broker that has nothing to do.
            "transactionOpBatchInterval": 600_000,
            # Each flush of what is delayed costs a quarter of a second of a core. A broker that stops flushes too.
            "timerFlushIntervalMs": 60_000,
            **self._settings,
        }
        self._write(f"{name}.conf", settings)

    def _write(self, name: str, settings: Mapping[str, Any]) -> Path:
        file = self._home / name
        file.write_text("".join(f"{each}={value}\n" for each, value in settings.items()))
        return file

    def _add_broker(self, name: str) -> None:
        self._ports[name] = _broker_port()
        self._configure(name, is_slave=name.endswith(_SLAVE))
        self._run_broker(name)

    def _run_broker(self, name: str) -> None:
        file = str(self._home / f"{name}.conf")
        self._processes[name] = self._java(name, "broker.BrokerStartup", "-c", file, "-n", self.namesrv)

    def _await_broker(self, name: str) -> None:
        port, address = self._ports[name], self.address(name)
        # Registered before it listens, or still registered from before: both are asked.
        self._await(name, lambda: f'"{address}"' in (self.cluster() or "") and _accepts(port), "has registered")

    def _await(self, name: str, condition: Callable[[], bool], what: str) -> None:
        end_at = time.monotonic() + _START_S
        while not condition():
            status = self._processes[name].poll()
            if status is not None or time.monotonic() > end_at:
                cause = f"ended with status {status}" if status is not None else f"not within {_START_S} s: {what}"
                said = self.log(name)
                self.stop()
                msg = f"RocketMQ: {name}: {cause}; it said last:\n{said}"
                raise ServerFailed(msg)
            time.sleep(_LOOK_S)

    def _java(self, name: str, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        home = self._home / "home"  # RocketMQ writes its logs under the user's home
        tls = () if self._certificates is None else self._certificates.java()
        command = ["java", *_JAVA, *tls, f"-Duser.home={home}", "-cp", f"{self._lib}/*", f"org.apache.rocketmq.{main}"]
        environment = os.environ | {"ROCKETMQ_HOME": str(home)}
        return spawn([*command, *arguments], self._home / f"{name}.log", cwd=self._home, environment=environment)

    def _halt(self, name: str, patience_s: float) -> None:
        process = self._processes.pop(name, None)
        if process is not None:
            if not patience_s:
                process.kill()
            end(process, patience_s)

    def _remove(self) -> None:
        shutil.rmtree(self._home, ignore_errors=True)


class SharedRocketMQ(RocketMQServer):
    """Servers that another process has started: asked as one's own, ended there. Nobody stops one of them."""

    def __init__(self, namesrv: str, brokers: list[str], ports: dict[str, int], home: Path) -> None:
        self.namesrv, self.brokers, self.endpoints = namesrv, brokers, ""
        self._ports, self._home, self._certificates = ports, home, None
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> Self:
        """They run."""
        return self

    def stop(self) -> None:
        """Let them go."""

    def __enter__(self) -> Self:
        return self

    def _halt(self, name: str, patience_s: float) -> None:
        raise AssertionError(f"others use {name}: start servers of your own")

    def pause_broker(self, name: str = "broker-a") -> None:
        """Others use it."""
        raise AssertionError(f"others use {name}: start servers of your own")


def _broker_port() -> int:
    """A broker takes its port, the one above and the one two below: all three have to be free."""
    for _ in range(100):
        [port] = free_ports(1)
        if all(is_free(each) for each in (port - 2, port, port + 1)):
            return port
    msg = "no free ports for a broker"
    raise ServerFailed(msg)


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), _CALL_S).close()
    except OSError:
        return False
    return True
