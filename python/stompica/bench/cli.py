"""`stompica bench list|run|compare|report`."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

from stompica import _core
from stompica.bench import BenchError, loadgen, planning, workload
from stompica.bench.campaign import Campaign
from stompica.bench.peers import PEERS, Missing
from stompica.tabular import table


def main(arguments: Sequence[str]) -> int:
    """Runs one command; returns the exit status: 0, 1 if something failed, 3 for --fail-on-regression."""
    options = _parser().parse_args(arguments)
    # Started brokers must end with this process, however it ends.
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell inherit an ignored SIGINT
    try:
        status: int = options.command(options)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except OSError as error:  # a folder that can't be written, a full disk
        where = f"{error.filename}: " if error.filename else ""
        raise BenchError(f"{where}{error.strerror or error}") from None
    return status


def _end(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _list(options: argparse.Namespace) -> int:
    known = workload.load(_workloads(options))
    rows = []
    for one in known:
        points = len(workload.points(one, {})) // len(one["transports"])
        sweep = " × ".join(one.sweep) + (f" ({points})" if one.sweep else "")
        rows.append({"workload": one.name, "over": ",".join(one["transports"]), "sweep": sweep, "about": one.about})
    for line in [*table(rows), "", *table(list(_peers()))]:
        print(line)
    return 0


def _peers() -> Iterator[dict[str, str]]:
    for peer in PEERS.values():
        try:
            yield {"peer": peer.name, "version": peer.find(), "measured with": ", ".join(peer.kinds)}
        except Missing as missing:
            yield {"peer": peer.name, "version": "–", "measured with": str(missing)}


def _run(options: argparse.Namespace) -> int:
    from stompica.bench import export, figures, results, show
    from stompica.bench.runner import Runner

    program = loadgen.find()
    _core.raise_descriptor_limit()  # inherited by all processes: 5,000 connections need 5,000, on both sides
    with tempfile.TemporaryDirectory(prefix="stompica-bench-") as folder:
        scratch = Path(folder)
        campaign = _resumed(options) if options.resume else _new(options, program, scratch)
        try:
            with show.progress(campaign) as progress:
                whole = Runner(campaign, progress, scratch).run()
        except (BenchError, OSError, KeyboardInterrupt):
            if any(campaign.records(case) for case in campaign.plan.cases):
                resume = f"'stompica bench run --resume {campaign.folder}'"
                print(f"finished repetitions are kept; continue with {resume}", file=sys.stderr)
            raise
    export.write(campaign)
    results.write(campaign)
    for line in figures.lines(campaign):
        print(line)
    print(f"recorded in {campaign.folder}; 'stompica bench report {campaign.folder}' makes a report")
    return 0 if whole else 1


def _resumed(options: argparse.Namespace) -> Campaign:
    if options.names or options.into:
        raise BenchError("--resume uses the plan in its folder: leave out workloads and --into")
    return Campaign.open(options.resume)


def _new(options: argparse.Namespace, program: Path, scratch: Path) -> Campaign:
    if not options.names:
        raise BenchError("name a workload, a group or 'all'; 'stompica bench list' shows them")
    picked = workload.pick(workload.load(_workloads(options)), options.names)
    folder = options.into or _results() / f"{time.strftime('%Y-%m-%d', time.gmtime())}" / _name(options)
    plan, notes = planning.plan(folder.name, picked, options)
    loadgen.check(program, [case.point for case in plan.cases if case.variant.target == "stompica"], scratch)
    for note in notes:
        print(note, file=sys.stderr)
    return Campaign.create(folder, plan)


def _name(options: argparse.Namespace) -> str:
    return f"{time.strftime('%H%M%S', time.gmtime())}-{'-'.join(options.names)}"


def _report(options: argparse.Namespace) -> int:
    from stompica.bench import report

    into = options.into or options.folders[0] / "report"
    status, summary = report.report(options.folders, into, options.master)
    print(summary)
    return status if options.fail_on_regression else 0


def _compare(options: argparse.Namespace) -> int:
    from stompica.bench import report

    for line in report.compare(options.folders, options.master):
        print(line)
    return 0


def _results() -> Path:
    tree = next(loadgen.source_trees(), None)
    return (tree / "bench" / "results") if tree else Path("bench-results")


def _workloads(options: argparse.Namespace) -> Path:
    if options.workloads:
        return Path(options.workloads)
    tree = next(loadgen.source_trees(), Path())
    return tree / "bench" / "workloads"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("stompica bench", description="Measures this broker, and others for comparison.")
    commands = parser.add_subparsers(required=True, metavar="list|run|compare|report")
    listing = commands.add_parser("list", help="workloads, and peers that are installed")
    running = commands.add_parser("run", help="run workloads and record what happens", description=_run.__doc__)
    for command in (listing, running):
        command.add_argument("--workloads", metavar="DIR", help="default: bench/workloads of the source tree")
    listing.set_defaults(command=_list)
    running.set_defaults(command=_run)
    planning.add_options(running)
    for name, function, about in (
        ("report", _report, "one HTML page and tables of all runs below the folders"),
        ("compare", _compare, "the comparisons of all runs below the folders, as a table"),
    ):
        command = commands.add_parser(name, help=about, description=about + ". Needs stompica[analysis] and Java.")
        command.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="campaigns, or folders of them")
        command.add_argument("--master", help="Spark's master; default: local[*]")
        command.set_defaults(command=function)
        if name == "report":
            command.add_argument("--into", type=Path, help="default: FOLDER/report")
            command.add_argument(
                "--fail-on-regression", action="store_true", help="exit status 3 if the verdict is bad"
            )
    return parser
