"""Workloads of kind `recover`: how long this broker takes to read its store at a start."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stompica.bench import BenchError, procfs
from stompica.bench.target import OwnBroker, Running

READY_MAX_S = 120.0
"""Longest time of a recovery."""
EVERY_S = 0.002
"""How often the broker is asked whether it is ready."""

FILL, DRAIN = "fill", "drain"
"""Parts of such a workload, for the load generator."""


@dataclass(frozen=True)
class Ready:
    """A start that has ended."""

    seconds: float
    """From the moment that the broker listens, according to its log."""
    cpu_us: int
    """CPU that the process has used, the start of the interpreter included."""
    rss_bytes: int


def measure(
    broker: OwnBroker, folder: Path, cores: tuple[int, ...], part: Callable[[str, Running], dict[str, Any]]
) -> tuple[dict[str, Any], Running]:
    """Fills a store, starts the broker again, and consumes everything; returns the result and what was measured.

    `part` makes one part with the load generator. A fault of either part is that of the result.
    """
    with broker.start(folder, cores) as running:
        empty = wait(running)
        filled = part(FILL, running)
    if filled.get("fault"):
        return filled, running
    with broker.start(folder, cores) as running:
        ready = wait(running)
        run = part(DRAIN, running)
    if not run.get("fault"):
        run["recovery"] = figures(filled["messages"], empty, ready, run)
    return run, running


def figures(messages: int, empty: Ready, ready: Ready, drained: dict[str, Any]) -> dict[str, float]:
    """What is shown of a recovery; `empty` is the start without messages."""
    return {
        "recovered": messages,
        "ready_ms": ready.seconds * 1e3,
        "recovered_per_s": messages / ready.seconds,
        "recovery_cpu_us_each": (ready.cpu_us - empty.cpu_us) / messages,
        "resident_bytes": ready.rss_bytes,
        "resident_bytes_each": (ready.rss_bytes - empty.rss_bytes) / messages,
        "drained_per_s": drained["deliveries_per_s"],
    }


def wait(running: Running) -> Ready:
    """Waits until `/readyz` says 200. BenchError if it does not within `READY_MAX_S`."""
    host, port = running.addresses["tcp"]
    deadline = time.monotonic() + READY_MAX_S
    while not _is_ready(running, host, port):
        if time.monotonic() > deadline:
            raise BenchError(f"{running.name} is not ready after {READY_MAX_S:.0f} s")
        time.sleep(EVERY_S)
    seconds = time.time() - running.listens_unix_s
    used = procfs.usage(running.pid)
    return Ready(seconds, used.cpu_us if used else 0, used.rss_bytes if used else 0)


def _is_ready(running: Running, host: str, port: int) -> bool:
    connection = http.client.HTTPConnection(host, port, timeout=READY_MAX_S)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except OSError as error:
        how = f"ended {ended}" if (ended := running.ended()) else f"does not answer: {error}"
        raise BenchError(f"{running.name} {how}, before it was ready") from None
    finally:
        connection.close()
