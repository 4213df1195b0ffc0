"""ActiveMQ Artemis: an unpacked distribution (ARTEMIS_HOME), or the archive in Maven's local repository."""

from __future__ import annotations

import contextlib
import os
import re
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from stompica.bench import BenchError
from stompica.bench.peers.base import Missing, Peer, launch, program
from stompica.bench.target import Running, free_ports

_ACCEPTOR = (
    '<acceptors><acceptor name="stomp">tcp://127.0.0.1:{port}?protocols=STOMP;anycastPrefix=/queue/;'
    "multicastPrefix=/topic/;stompMaxFramePayloadLength=16777216</acceptor></acceptors>"
)


class Artemis(Peer):
    """An instance created for the measurement; one port for STOMP over TCP and WebSocket."""

    name = "artemis"
    share = 0.1

    def find(self) -> str:
        program("java")
        home = os.environ.get("ARTEMIS_HOME")
        if home:
            found = re.search(r"artemis-server-(\d[\d.]*\d)", " ".join(map(str, Path(home).glob("lib/*.jar"))))
            if found is None:
                raise Missing(f"ARTEMIS_HOME={home} contains no Artemis")
            return found[1]
        return self._archive().name.split("-")[2]

    @contextlib.contextmanager
    def start(self, scratch: Path, cores: Sequence[int] = ()) -> Iterator[Running]:
        version = self.find()
        home = Path(os.environ.get("ARTEMIS_HOME") or self._unpack(scratch))
        (port,) = free_ports(1)
        instance = scratch / "instance"
        create = [str(home / "bin" / "artemis"), "create", str(instance), "--silent", "--user", "bench"]
        create += ["--password", "bench", "--allow-anonymous", "--no-autotune", "--nio", "--host", "127.0.0.1"]
        with launch(create, scratch, ()) as made:
            made.wait_until(lambda: not made.alive, "does not end")
        settings = instance / "etc" / "broker.xml"
        if not settings.is_file():
            raise BenchError(f"artemis create failed:\n{made.log()}")
        text = settings.read_text(encoding="utf-8")
        text = re.sub(r"<acceptors>.*</acceptors>", _ACCEPTOR.format(port=port), text, flags=re.DOTALL)
        settings.write_text(text, encoding="utf-8")
        # The web console would listen on a fixed port.
        bootstrap = instance / "etc" / "bootstrap.xml"
        text = bootstrap.read_text(encoding="utf-8")
        bootstrap.write_text(re.sub(r"<web .*</web>", "", text, flags=re.DOTALL), encoding="utf-8")
        with launch([str(instance / "bin" / "artemis"), "run"], scratch, cores) as process:
            process.wait_for_ports([port])
            addresses = dict.fromkeys(("tcp", "ws"), ("127.0.0.1", port))
            # It closes without the RECEIPT while it stores that persistent messages were consumed.
            early = {"close_is_receipt": ("tcp", "ws")}
            yield self.running(version, process, addresses, login="bench", passcode="bench", ws_path="/stomp", **early)

    @staticmethod
    def _archive() -> Path:
        repository = Path.home() / ".m2" / "repository" / "org" / "apache" / "activemq" / "apache-artemis"
        found = sorted(repository.glob("*/apache-artemis-*-bin.zip"))
        if not found:
            raise Missing("not installed: no ARTEMIS_HOME, and no apache-artemis (bin, zip) in Maven's repository")
        return found[-1]

    def _unpack(self, scratch: Path) -> Path:
        with zipfile.ZipFile(self._archive()) as archive:
            archive.extractall(scratch)
        home = next(scratch.glob("apache-artemis-*"))
        (home / "bin" / "artemis").chmod(0o755)
        return home
