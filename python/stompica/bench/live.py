"""`stompica record`: records a broker in use."""

from __future__ import annotations

import argparse
import math
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from stompica.arguments import seconds
from stompica.bench import BenchError, procfs
from stompica.bench.sampler import QUERIES, STAGES, Sampler, Stages, now_us
from stompica.diag import connect
from stompica.logs import tell

if TYPE_CHECKING:
    from stompica.recording import RunInfo, RunWriter

ANSWER_TIMEOUT_S = 5.0
"""If the broker takes longer to answer, the rest of this sample is skipped."""

SECONDS_MAX = 31_536_000
"""A year."""


def main(arguments: Sequence[str]) -> int:
    """Records until the time is over or a signal arrives; returns the exit status."""
    options = _parser().parse_args(arguments)
    ended = threading.Event()

    def end(_number: int, _: FrameType | None) -> None:
        ended.set()

    former = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        folder = record(options, ended)
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
    print(f"recorded in {folder}", flush=True)
    return 0


def record(options: argparse.Namespace, ended: threading.Event) -> Path:
    """Records into a new folder of `options.into`; returns it.

    BenchError or DiagError if it can't start, RecordingError if it can't write.
    """
    from stompica.recording import RunWriter

    if options.pid is not None and procfs.usage(options.pid) is None:
        raise BenchError(f"--pid {options.pid}: no such process here")
    info = _info(options)
    with RunWriter(options.into, info) as writer:
        tell(f"recording into {writer.folder}")
        _record(options, ended, writer)
    return writer.folder


def _info(options: argparse.Namespace) -> RunInfo:
    from stompica.bench import machine
    from stompica.recording import RunInfo, Target, Workload, new_run_id

    with connect(options.diag, timeout=ANSWER_TIMEOUT_S) as diag:
        version, address, writers = diag.server, diag.address, len(diag("shards"))
    transport = "ws" if address.startswith("ws:") else "tcp"
    return RunInfo(
        new_run_id(),
        Target("stompica", version),
        Workload("live", transport, publishers=0, subscribers=0),
        machine.here(),
        now_us(),
        kind="live",
        writers=writers,
        settings={"diag": address},
    )


def _record(options: argparse.Namespace, ended: threading.Event, writer: RunWriter) -> None:
    from stompica.bench.export import write_answers

    queries = (*QUERIES, STAGES) if options.stages else QUERIES
    processes = {} if options.pid is None else {"target": options.pid}
    # Its thread is not started: samples are taken here, so that only one thread uses the writer.
    sampler = Sampler(options.every, options.diag, processes, queries)
    stages, primed, told = Stages(), False, 0
    begun = due = flushed = time.monotonic()
    until = begun + options.seconds
    going_on = True
    while going_on:
        sampler.take()
        seen = sampler.take_samples()
        for fault in seen.faults[told:]:
            tell(f"stompica: {fault}; trying again every {options.every:g} s")
        told = len(seen.faults)
        timings = [answer for _, query, answer in seen.answers if query == STAGES]
        if timings and not primed:
            # Earlier timings belong to no interval of this recording.
            primed = True
            stages.since(timings[0])
        write_answers(writer, seen.answers, stages)
        for at_us, process, cpu_us, rss_bytes, threads in seen.processes:
            row = {"process": process, "cpu_us": cpu_us, "rss_bytes": rss_bytes, "threads": threads}
            writer.add("process", {"repetition": 0, "at_us": at_us, **row})
        if time.monotonic() - flushed >= options.file_every:
            writer.flush()
            flushed = time.monotonic()
        due = max(due + options.every, time.monotonic())
        going_on = not ended.wait(max(0.0, min(due, until) - time.monotonic())) and due < until
    sampler.close()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "stompica record", description="Records a running broker: DIAG, and CPU and memory of its process."
    )
    add = parser.add_argument
    add("--diag", required=True, metavar="URL", help="the broker: stomp://HOST:PORT, ws://HOST:PORT/")
    add("--into", required=True, type=Path, metavar="DIR", help="the recording's folder is created here")
    add("--every", type=seconds(0.1, SECONDS_MAX), default=1.0, metavar="SECONDS", help="interval, default 1")
    add(
        "--for",
        type=seconds(0.1, SECONDS_MAX),
        dest="seconds",
        default=math.inf,
        metavar="SECONDS",
        help="default: until Ctrl-C or SIGTERM",
    )
    add("--pid", type=int, help="the broker's process, if it runs on this machine")
    add(
        "--file-every",
        type=seconds(0.1, SECONDS_MAX),
        default=60.0,
        metavar="SECONDS",
        help="how often files are written, default 60",
    )
    add("--stages", action="store_true", help="let the broker time its stages, which costs a little")
    return parser
