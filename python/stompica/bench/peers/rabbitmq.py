"""RabbitMQ with its plugins rabbitmq_stomp and rabbitmq_web_stomp."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from stompica.bench.peers.base import Missing, Peer, launch, program
from stompica.bench.target import Running, free_ports

_HOMES = ("/usr/lib/rabbitmq", "/opt/rabbitmq", "/usr/local/lib/rabbitmq")

_CONFIGURATION = """\
listeners.tcp = none
stomp.listeners.tcp.1 = 127.0.0.1:{tcp}
web_stomp.tcp.ip = 127.0.0.1
web_stomp.tcp.port = {ws}
log.console = true
log.console.level = warning
"""


class RabbitMQ(Peer):
    """As installed by Debian. Its name server, epmd, is started and stopped with it."""

    name = "rabbitmq"
    share = 0.02

    def find(self) -> str:
        home = self._home()
        plugins = [path.name for path in home.glob("**/plugins/rabbitmq_*stomp-*")]
        for plugin in ("rabbitmq_stomp", "rabbitmq_web_stomp"):
            if not any(name.startswith(f"{plugin}-") for name in plugins):
                raise Missing(f"{home} has no plugin {plugin}")
        server = next(iter(sorted(home.glob("**/plugins/rabbit-[0-9]*"))), None)
        return server.name.removeprefix("rabbit-").removesuffix(".ez") if server else ""

    @contextlib.contextmanager
    def start(self, scratch: Path, cores: Sequence[int] = ()) -> Iterator[Running]:
        version, home = self.find(), self._home()
        tcp, ws, names, distribution = free_ports(4)
        (scratch / "rabbitmq.conf").write_text(_CONFIGURATION.format(tcp=tcp, ws=ws))
        (scratch / "enabled_plugins").write_text("[rabbitmq_stomp,rabbitmq_web_stomp].\n")
        environment = {
            "HOME": str(scratch),
            "ERL_EPMD_PORT": str(names),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"bench{os.getpid()}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_CONF_ENV_FILE": str(scratch / "none"),
            "RABBITMQ_CONFIG_FILE": str(scratch / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(scratch / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(scratch / "data"),
            "RABBITMQ_LOG_BASE": str(scratch / "logs"),
            "RABBITMQ_SCHEMA_DIR": str(scratch / "schema"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(scratch / "config"),
            "RABBITMQ_PID_FILE": str(scratch / "pid"),
        }
        folder = scratch / "epmd"
        folder.mkdir()
        epmd = [str(program("epmd")), "-address", "127.0.0.1", "-port", str(names)]
        with launch(epmd, folder, (), environment) as name_server:
            name_server.wait_for_ports([names])
            server = next(home.glob("**/rabbitmq-server"))
            with launch([str(server)], scratch, cores, environment) as process:
                process.wait_for_ports([tcp, ws])
                addresses = {"tcp": ("127.0.0.1", tcp), "ws": ("127.0.0.1", ws)}
                login = {"login": "guest", "passcode": "guest", "vhost": "/"}
                yield self.running(version, process, addresses, **login, close_is_receipt=("ws",))

    @staticmethod
    def _home() -> Path:
        for name in (os.environ.get("RABBITMQ_HOME", ""), *_HOMES):
            # Debian's program on the path is not used: it changes the user and uses the settings of the machine.
            if name and any(Path(name).glob("**/rabbitmq-server")):
                return Path(name)
        raise Missing("not installed: no rabbitmq-server below " + ", ".join(_HOMES) + " or RABBITMQ_HOME")
