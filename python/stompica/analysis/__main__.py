"""`python -m stompica.analysis`; this file is also a script for spark-submit."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from stompica.analysis import follow, report
from stompica.errors import StompicaError

_ABOUT = "Analyses recorded runs with Spark; see docs/analysis.md."


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status: 0, 1 for a failure, 2 for bad usage, 3 for a detected regression."""
    parsed = _parser().parse_args(arguments)
    try:
        if parsed.command == "follow":
            stop = threading.Event()
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda *_: stop.set())
            follow(parsed.source, parsed.into, stop, quarantine=parsed.quarantine, master=parsed.master,
                   watermark=parsed.watermark, once=parsed.once)  # fmt: skip
            return 0
        done = report(parsed.source, parsed.into, quarantine=parsed.quarantine, master=parsed.master)
    except StompicaError as error:
        print(f"stompica: {error}", file=sys.stderr)
        return 1
    print(done.summary)
    return 3 if done.verdict == "bad" and parsed.fail_on_regression else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("stompica.analysis", description=_ABOUT)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, about in (
        ("report", "turn all recorded runs below SOURCE into tables and one HTML page"),
        ("follow", "turn the growing live recordings below SOURCE into aggregates per minute"),
    ):
        command = commands.add_parser(name, help=about, description=about)
        command.add_argument("source", metavar="SOURCE", help="folder with the runs")
        command.add_argument("--into", type=Path, required=True, help="folder for the results, shared by all workers")
        command.add_argument("--quarantine", help="folder that bad files are moved to; default: SOURCE/_quarantine")
        command.add_argument("--master", help="Spark's master; default: that of spark-submit, or local[*]")
        if name == "report":
            command.add_argument("--fail-on-regression", action="store_true", help="exit status 3 for a bad verdict")
        else:
            command.add_argument("--watermark", default="2 minutes", help="how late a file may arrive")
            command.add_argument("--once", action="store_true", help="process the existing files, then exit")
    return parser


if __name__ == "__main__":
    sys.exit(main())
