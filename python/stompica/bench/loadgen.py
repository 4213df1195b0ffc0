"""Runs the load generator, `stompica-loadgen`: one process for each repetition."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stompica.bench import BenchError, procfs
from stompica.bench.target import Running
from stompica.bench.workload import Point

PROGRAM = "stompica-loadgen"
VARIABLE = "STOMPICA_BENCH_LOADGEN"
REPETITION_MAX_S = 600.0

BYTE_COUNTER = "bench.peers.bytecount"
"""The generator for peers that do not speak STOMP, a module of the source tree."""

NO_BYTE_COUNTER = "its load generator, bench/peers/bytecount.py, exists only in stompica's source tree: run this there"


@dataclass(frozen=True)
class Order:
    """One repetition to make."""

    point: Point
    target: Running
    series_ms: int
    """Length of the intervals in results over time."""
    samples: Path | None
    """File for single latencies, if they are wanted."""
    cores: tuple[int, ...] = ()
    part: str = ""
    """Which half of a workload of kind `recover`."""


def find(start: Path | None = None) -> Path:
    """The program: named by the environment, built in the source tree around `start` (default: .), or on the path."""
    named = os.environ.get(VARIABLE)
    if named:
        if not os.access(named, os.X_OK):
            raise BenchError(f"{VARIABLE}={named}: there is no such program")
        return Path(named)
    for folder in source_trees(start):
        program = Path(os.environ.get("CARGO_TARGET_DIR", folder / "target")) / "release" / PROGRAM
        if os.access(program, os.X_OK):
            return program
    on_path = shutil.which(PROGRAM)
    if on_path is None:
        raise BenchError(
            f"{PROGRAM} is not built: in the source tree run 'cargo build --release -p {PROGRAM}', "
            f"or name the program in {VARIABLE}"
        )
    return Path(on_path)


def source_trees(start: Path | None = None) -> Iterator[Path]:
    """Source trees that contain the generator: around `start`, then around this file."""
    for begin in ((start or Path.cwd()).absolute(), Path(__file__)):
        for folder in (begin, *begin.parents):
            if (folder / "bench" / "loadgen" / "Cargo.toml").is_file():
                yield folder


def byte_counter(start: Path | None = None) -> Path | None:
    """The source tree with the byte-counting generator; None if there is none."""
    return next((folder for folder in source_trees(start) if (folder / "bench/peers/bytecount.py").is_file()), None)


def check(program: Path, points: Sequence[Point], scratch: Path) -> None:
    """BenchError for the first workload that the load generator would refuse."""
    for number, point in enumerate(points):
        folder = scratch / f"check-{number}"
        folder.mkdir()
        path = _write(point, folder)
        command = [str(program), "check", str(path), "--transport", point.transport]
        checked = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if checked.returncode:
            reason = " ".join(checked.stderr.split()).removeprefix(f"{PROGRAM}: ").removeprefix(f"{path}: ")
            raise BenchError(f"the load generator refuses a workload: {reason}")


def run(program: Path, order: Order, scratch: Path, started: Callable[[int], None]) -> dict[str, Any]:
    """Makes one repetition; returns the load generator's result, which may have a `fault`.

    `started` is called with the id of the generator's process. BenchError if the generator itself fails.
    """
    folder = scratch / "workload"
    folder.mkdir(exist_ok=True)
    file = _write(order.point, folder)
    tree = None
    if order.target.protocol in ("stomp", "relay"):
        command = [str(program), *_arguments(order, file)]
    else:
        tree = byte_counter()
        if tree is None:
            raise BenchError(f"{order.target.name}: {NO_BYTE_COUNTER}")
        command = [sys.executable, "-m", BYTE_COUNTER, *_byte_arguments(order)]
    with procfs.pinned(order.cores):
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tree
        )
    started(process.pid)
    try:
        printed, errors = process.communicate(timeout=REPETITION_MAX_S)
    except subprocess.TimeoutExpired:
        raise BenchError(
            f"{order.point.workload}: the load generator did not end within {REPETITION_MAX_S:.0f} s"
        ) from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait()
    lines = printed.splitlines()
    if len(lines) != 1:
        reason = " ".join(errors.split())[-500:] or f"exit status {process.returncode}"
        raise BenchError(f"{order.point.workload}: the load generator failed: {reason}")
    result: dict[str, Any] = json.loads(lines[0])
    return result


def _write(point: Point, folder: Path) -> Path:
    path = folder / f"{point.workload}.toml"
    path.write_text(point.toml(), encoding="utf-8")
    return path


def _arguments(order: Order, file: Path) -> list[str]:
    target = order.target
    address = target.addresses[order.point.transport]
    arguments = ["run", str(file), "--transport", order.point.transport]
    arguments += ["--connect", f"{address[0]}:{address[1]}", "--pid", str(target.pid)]
    arguments += ["--series", str(order.series_ms), "--vhost", target.vhost, "--ws-path", target.ws_path]
    if target.login:
        arguments += ["--login", target.login, "--passcode", target.passcode]
    if order.point.transport in target.close_is_receipt:
        arguments += ["--close-is-receipt"]
    if target.protocol == "relay":
        arguments += ["--relay"]
    if order.samples is not None and order.point["kind"] == "latency":
        arguments += ["--samples", str(order.samples)]
    if target.store is not None and order.point["kind"] in ("persist", "persist-rate"):
        arguments += ["--store", str(target.store)]
    if order.part:
        arguments += ["--part", order.part]
    return arguments


def _byte_arguments(order: Order) -> list[str]:
    target, point = order.target, order.point
    host, port = target.addresses[point.transport]
    numbers = ("publishers", "connections", "body", "messages", "window")
    arguments = [target.protocol, f"{host}:{port}", str(target.pid), "--series", str(order.series_ms)]
    arguments += [f"--{name}={point[name]}" for name in numbers]
    return [*arguments, f"--min-cpu={point['min_cpu_s']}"]
