"""Measures round trips of a pair of connections while a firehose into 5,000 subscribers loads the broker.

.venv/bin/python bench/pair_beside_firehose.py [writers=2 …]

Prints one line of JSON with percentiles in milliseconds; exit status 1 if the p99 exceeds 20 ms. The firehose and its
subscribers are the load generator, which must be built: cargo build --release -p stompica-loadgen
"""

from __future__ import annotations

import json
import re
import socket
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
P99_MS_MAX = 20.0
REPETITIONS = 5
WARM_UP_S = 4.0
PAUSE_S = 0.002


def connected(port: int, first: bytes = b"") -> socket.socket:
    """A STOMP connection that has received CONNECTED and the answer to `first`."""
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for frame in (b"CONNECT\naccept-version:1.2\nhost:x\nheart-beat:0,0\n\n\0", first):
        if frame:
            sock.sendall(frame)
            sock.recv(4096)
    return sock


class Firehose(threading.Thread):
    """Runs repetitions of the workload fanout-5000, one after the other."""

    def __init__(self, port: int, pid: int) -> None:
        super().__init__()
        self._command = [ROOT / "target/release/stompica-loadgen", "run", ROOT / "bench/workloads/fanout-5000.toml"]
        self._command += ["--connect", f"127.0.0.1:{port}", "--pid", str(pid)]
        self._rates: list[float] = []
        self.start()

    def run(self) -> None:
        for _ in range(REPETITIONS):
            made = subprocess.run(self._command, stdout=subprocess.PIPE, text=True)
            self._rates.append(json.loads(made.stdout)["deliveries_per_s"] if made.returncode == 0 else 0.0)

    def per_s(self) -> float:
        """Median of its deliveries per second; a repetition that failed counts as 0."""
        self.join()
        return statistics.median(self._rates)


def round_trips_ms(port: int, firehose: Firehose) -> list[float]:
    """Sorted times from SEND to MESSAGE while the firehose runs."""
    with connected(port) as near, connected(port, b"SUBSCRIBE\nid:0\ndestination:/topic/pair\nreceipt:r\n\n\0") as far:
        times = []
        while firehose.is_alive():
            began = time.perf_counter()
            near.sendall(b"SEND\ndestination:/topic/pair\n\nhello\0")
            far.recv(4096)
            times.append(1000 * (time.perf_counter() - began))
            time.sleep(PAUSE_S)
    return sorted(times)


def main() -> int:
    command = [sys.executable, "-m", "stompica", "port=0", *sys.argv[1:]]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as broker:
        assert broker.stderr is not None
        found = None
        while found is None:
            found = re.search(r"listening on 127\.0\.0\.1:(\d+)", broker.stderr.readline())
        port = int(found[1])
        firehose = Firehose(port, broker.pid)
        time.sleep(WARM_UP_S)
        times = round_trips_ms(port, firehose)
        broker.terminate()
    at = {
        name: round(times[int(len(times) * share)], 2)
        for name, share in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999))
    }
    print(
        json.dumps({"settings": sys.argv[1:], "round_trips": len(times), "ms": at, "firehose_per_s": firehose.per_s()})
    )
    return int(at["p99"] > P99_MS_MAX)


if __name__ == "__main__":
    sys.exit(main())
