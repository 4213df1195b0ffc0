"""Makes a plan from the command line: which workloads, against what, how often."""

from __future__ import annotations

import argparse
import dataclasses
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from stompica.bench import BenchError, procfs
from stompica.bench.campaign import Case, Plan, Variant
from stompica.bench.peers import PEERS, Missing
from stompica.bench.workload import Workload, parse_sweep, points
from stompica.settings import check as check_settings

REPETITIONS = 5
QUICK_REPETITIONS = 2


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `stompica bench run`."""
    add = parser.add_argument
    add(
        "names",
        nargs="*",
        metavar="WORKLOAD",
        help="workloads or groups, which 'stompica bench list' shows; all: each without a sweep",
    )
    add(
        "--repetitions", type=_repetitions, metavar="N", help=f"default {REPETITIONS}; with --quick {QUICK_REPETITIONS}"
    )
    add(
        "--peers", default="installed", metavar="LIST", help="installed (default), none, or names: relay,rabbitmq,redis"
    )
    add("--transport", choices=("tcp", "ws"), help="only this one")
    add("--sweep", action="append", default=[], metavar="NAME=V,V", help="vary body, subscribers, publishers, writers, "
        "ack, prefetch, rate, window or messages; may be repeated")  # fmt: skip
    add("--variant", action="append", default=[], metavar="LABEL:KEY=VALUE,…", help="this broker with these settings, "
        "in turn with the others; python=PATH is another installation, stages=on|off overrides --stages; the first is "
        "the baseline")  # fmt: skip
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of every variant of this broker")
    add("--quick", action="store_true", help="a smoke run: the figures mean nothing")
    add("--samples", action="store_true", help="keep every single latency (latency workloads)")
    add("--every", type=float, default=0.5, metavar="SECONDS", help="interval of DIAG, CPU and memory samples, "
        "and of throughput and latency over time; default 0.5")  # fmt: skip
    add(
        "--stages",
        action="store_true",
        help="let this broker time its stages, which makes its figures several percent worse",
    )
    add("--no-diag", action="store_true", help="send the broker no DIAG queries while it is measured")
    add("--pin", default="auto", metavar="CORES", help="auto (default), off, or TARGET:GENERATOR such as 0-2:3")
    add("--into", type=Path, metavar="DIR", help="folder of the campaign; default: bench/results/DATE/TIME-WORKLOADS")
    add("--resume", type=Path, metavar="DIR", help="continue an interrupted campaign")


def plan(name: str, picked: Sequence[Workload], options: argparse.Namespace) -> tuple[Plan, list[str]]:
    """The plan, and notes on what it leaves out. BenchError or ConfigError for wrong options."""
    if not 0.05 <= options.every <= 60:
        raise BenchError(f"--every {options.every:g}: a number of seconds from 0.05 to 60")
    procfs.pinning(options.pin)
    repetitions = options.repetitions or (QUICK_REPETITIONS if options.quick else REPETITIONS)
    sweep = parse_sweep(options.sweep)
    if options.transport and "transport" in sweep:
        raise BenchError(f"--transport {options.transport}: --sweep varies the transport")
    if options.transport:
        sweep["transport"] = [options.transport]
    peers, notes = _peers(options.peers)
    shared = _settings(options.set, "--set")
    own = [_variant(text, shared) for text in options.variant] or [Variant("stompica", settings=shared)]
    labels = [variant.label for variant in own]
    for label in labels:
        if labels.count(label) > 1:
            raise BenchError(f"--variant: two have the label {label!r}")
    for variant in own:
        if not variant.python:  # another version may have different settings
            where = f"--variant {variant.label}" if variant.label else "--set"
            check_settings([(key, value, where) for key, value in variant.settings.items()])
            for workload in picked:
                where = f"workload {workload.name}"
                check_settings([(key, value, where) for key, value in (workload["settings"] or {}).items()])
    cases: list[Case] = []
    for workload in picked:
        found = points(workload, sweep, options.quick)
        first_writers = found[0].writers
        for point in found:
            for variant in own:
                writers = variant.writers if point.writers is None else point.writers
                settings = {**point.settings, **variant.settings}
                made = dataclasses.replace(variant, writers=writers, settings=settings)
                cases.append(Case(len(cases), point, made))
            if point.writers != first_writers:
                continue  # the setting does not apply to peers: they are measured once
            for peer in peers:
                reason = PEERS[peer].refuses(point)
                if not reason:
                    cases.append(Case(len(cases), point, Variant(peer)))
                elif (note := f"{workload.name} without {peer}: {reason}") not in notes:
                    notes.append(note)
    switches = {"quick": options.quick, "stages": bool(options.stages), "diag": not options.no_diag}
    every_s, samples = float(options.every), bool(options.samples)
    if options.samples and not any(case.point["kind"] == "latency" for case in cases):
        notes.append("--samples: single latencies are kept only for workloads of kind latency")
    whole = Plan(name, repetitions, tuple(cases), **switches, samples=samples, every_s=every_s, pin=options.pin)
    return whole, notes


def _repetitions(word: str) -> int:
    if not word.isdecimal() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"{word!r} is not a whole number of at least 1")
    return int(word)


def _peers(text: str) -> tuple[list[str], list[str]]:
    """Names of the peers, and notes on those left out. BenchError if a named peer is not installed."""
    if text == "none":
        return [], []
    named = [] if text == "installed" else text.split(",")
    unknown = [name for name in named if name not in PEERS]
    if unknown:
        raise BenchError(f"unknown peer {unknown[0]!r}; known peers are {', '.join(PEERS)}")
    found, notes = [], []
    for name in named or PEERS:
        try:
            PEERS[name].find()
            found.append(name)
        except Missing as missing:
            if named:
                raise BenchError(f"{name}: {missing}") from None
            notes.append(f"without {name}: {missing}")
    return found, notes


def _variant(text: str, shared: Mapping[str, str]) -> Variant:
    label, _, rest = text.partition(":")
    settings = {**shared, **_settings([part for part in rest.split(",") if part], f"--variant {text}")}
    python = settings.pop("python", "")
    writers = settings.pop("writers", None)
    stages = settings.pop("stages", None)
    if not label:
        raise BenchError(f"--variant {text}: write LABEL:KEY=VALUE,…")
    if python and shutil.which(python) is None:
        raise BenchError(f"--variant {text}: python={python} is not a program")
    if writers is not None and not (writers.isdecimal() and int(writers) >= 1):
        raise BenchError(f"--variant {text}: writers={writers} is not a whole number of at least 1")
    if stages not in (None, "on", "off"):
        raise BenchError(f"--variant {text}: stages={stages} is neither on nor off")
    timed = None if stages is None else stages == "on"
    return Variant("stompica", label, int(writers) if writers else None, settings, python, timed)


def _settings(texts: Sequence[str], where: str) -> dict[str, str]:
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise BenchError(f"{where} {text}: write KEY=VALUE")
        found[key] = value
    return found
