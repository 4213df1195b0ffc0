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


class Relay(Peer):
    """Part of the load generator's program, as a process of its own. It serves workloads with `relay = true`."""

    name = "relay"
    kinds = KINDS

    def find(self) -> str:
        try:
            return version([str(loadgen.find()), "--version"])
        except BenchError as error:
            raise Missing(str(error)) from None

    def refuses(self, point: Point) -> str:
        """It can serve what needs no STOMP; the workload says so."""
        reason = super().refuses(point)
        return reason or ("" if point["relay"] else "the workload needs more than bytes forwarded")

    @contextlib.contextmanager
    def start(self, scratch: Path, cores: Sequence[int] = ()) -> Iterator[Running]:
        """As every peer."""
        found = self.find()
        with launch([str(loadgen.find()), "relay"], scratch, cores) as process:
            process.wait_until(lambda: "listening on " in process.log(), "does not listen")
            listening = re.search(r"listening on (\S+):(\d+)", process.log())
            assert listening is not None
            addresses = dict.fromkeys(("tcp", "ws"), (listening[1], int(listening[2])))
            yield Running(self.name, found, process.pid, addresses, "relay", writers=1, ended=process.ended)
