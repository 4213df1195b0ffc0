"""Redis, NATS and Mosquitto: fan-out only; deliveries are counted in bytes and not checked one by one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from stompica.bench import loadgen
from stompica.bench.peers.base import Missing, Peer, launch, program, version
from stompica.bench.target import Running, free_ports
from stompica.bench.workload import Point


class _Counted(Peer):
    """A server that does not speak STOMP."""

    kinds = ("window",)
    transports = ("tcp",)
    protocol: str
    programs: Sequence[str]
    version_option = "--version"

    def find(self) -> str:
        found = version([str(program(*self.programs)), self.version_option])
        if loadgen.byte_counter() is None:
            raise Missing(loadgen.NO_BYTE_COUNTER)
        return found

    def refuses(self, point: Point) -> str:
        """Only plain fan-out is comparable."""
        reason = super().refuses(point)
        if not reason and any(point.fields.get(name) for name in ("joint", "pattern", "spread")):
            reason = "it is measured with plain fan-out only"
        if not reason and point["subscriptions"] != 1:
            reason = "it does not send one message twice on a connection"
        return reason

    def command(self, scratch: Path, port: int) -> list[str]:
        """Arguments to start it."""
        raise NotImplementedError

    @contextlib.contextmanager
    def start(self, scratch: Path, cores: Sequence[int] = ()) -> Iterator[Running]:
        """As for every peer."""
        found = self.find()
        (port,) = free_ports(1)
        with launch([str(program(*self.programs)), *self.command(scratch, port)], scratch, cores) as process:
            process.wait_for_ports([port])
            addresses = {"tcp": ("127.0.0.1", port)}
            generator = {"generator": "counts bytes"}
            yield self.running(found, process, addresses, protocol=self.protocol, versions=generator)


class Redis(_Counted):
    """Redis's pub/sub, without persistence."""

    name = "redis"
    protocol = "redis"
    programs = ("redis-server", "valkey-server")

    def command(self, scratch: Path, port: int) -> list[str]:
        """Its options on the command line."""
        options = {"port": str(port), "bind": "127.0.0.1", "save": "", "appendonly": "no", "dir": str(scratch)}
        return [word for name, value in options.items() for word in (f"--{name}", value)]


class Nats(_Counted):
    """NATS without streams."""

    name = "nats"
    protocol = "nats"
    programs = ("nats-server",)

    def command(self, scratch: Path, port: int) -> list[str]:
        """Its options on the command line."""
        return ["-a", "127.0.0.1", "-p", str(port)]


class Mosquitto(_Counted):
    """MQTT 3.1.1 at QoS 0, without persistence."""

    name = "mosquitto"
    protocol = "mqtt"
    programs = ("mosquitto",)
    share = 0.5
    version_option = "-h"

    def command(self, scratch: Path, port: int) -> list[str]:
        """A settings file in the scratch folder, since it takes an address in no other way."""
        settings = scratch / "mosquitto.conf"
        # Without the last line it drops messages that a subscriber does not take at once.
        settings.write_text(
            f"listener {port} 127.0.0.1\nallow_anonymous true\npersistence false\nmax_queued_messages 0\n"
        )
        return ["-c", str(settings)]
