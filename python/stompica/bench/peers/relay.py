"""The ideal relay: forwards bytes without looking at them, so that a figure can be compared with what is possible."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from stompica.bench import BenchError, loadgen
from stompica.bench.fields import KINDS
from stompica.bench.peers.base import Missing, Peer, launch, version
from stompica.bench.target import Running
from stompica.bench.workload import Point

_LISTENING = re.compile(r"listening on (\S+):(\d+)")


class Relay(Peer):
    """The load generator's program as a relay. It serves workloads with `relay = true`."""

    name = "relay"
    kinds = KINDS

    def find(self) -> str:
        try:
            return version([str(loadgen.find()), "--version"])
        except BenchError as error:
            raise Missing(str(error)) from None

    def refuses(self, point: Point) -> str:
        """It can serve workloads that need no more than bytes forwarded; the workload's file says so."""
        reason = super().refuses(point)
        return reason or ("" if point["relay"] else "the workload needs more than bytes forwarded")

    @contextlib.contextmanager
    def start(self, scratch: Path, cores: Sequence[int] = ()) -> Iterator[Running]:
        """As for every peer."""
        found = self.find()
        with launch([str(loadgen.find()), "relay"], scratch, cores) as process:
            process.wait_until(lambda: _LISTENING.search(process.log()) is not None, "does not listen")
            host, port = _LISTENING.findall(process.log())[0]
            addresses = dict.fromkeys(("tcp", "ws"), (host, int(port)))
            yield self.running(found, process, addresses, protocol="relay", writers=1)
