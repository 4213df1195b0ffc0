"""A fake load generator that only reports what it is told: the harness is tested without load."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stompica.cli import main

FAKE = """#!{python}
import json, os, signal, socket, sys
arguments = sys.argv[1:]
if arguments[0] in ("check", "--version"):
    sys.exit("0.1.0" if arguments[0] == "--version" else 0)
if arguments[0] == "relay":
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print("listening on 127.0.0.1:%d" % listener.getsockname()[1], flush=True)
        signal.pause()
option = lambda name: arguments[arguments.index(name) + 1]
folder = os.path.dirname(os.path.abspath(__file__))
calls = os.path.join(folder, "calls.jsonl")
with open(calls, "a") as file:
    file.write(json.dumps(arguments) + "\\n")
number = sum(1 for _ in open(calls))
run = json.load(open(os.path.join(folder, "run.json")))
fault = json.load(open(os.path.join(folder, "faults.json"))).get(str(number))
if fault == "crash":
    sys.exit("out of order")
if fault == "hang":
    sys.stdin.close()
    signal.pause()
if fault == "kill":
    os.kill(int(option("--pid")), signal.SIGKILL)
if fault:
    run = {{"fault": fault, "seconds": 0.0, "messages": 0, "deliveries": 0, "deliveries_per_s": 0.0}}
print(json.dumps({{"peak_rss_bytes": 1000000, **run}}))
sys.exit(1 if fault else 0)
"""

RUN: dict[str, Any] = {
    "fault": None,
    "begun_unix_us": 1_790_000_000_000_000,
    "seconds": 1.0,
    "rounds": 1,
    "messages": 1_000,
    "deliveries": 75_000,
    "deliveries_per_s": 75_000.0,
    "target_cpu_s": 0.3,
    "cpu_us_per_delivery": 4.0,
    "generator_cpu_s": 0.2,
    "generator_share": 0.2,
    "series": [
        {"at_us": 0, "duration_us": 500_000, "messages": 600, "deliveries": 45_000},
        {"at_us": 500_000, "duration_us": 500_000, "messages": 400, "deliveries": 30_000},
    ],
    "latency": {
        "from_intended": {"p50_us": 100.0, "p99_us": 300.0, "p999_us": 500.0, "max_us": 600.0},
        "from_write": {"p50_us": 90.0, "p99_us": 290.0, "p999_us": 490.0, "max_us": 590.0},
        "intervals": [{"at_us": 0, "duration_us": 500_000, "intended_us": [[100, 7], [301, 1]], "write_us": [[90, 8]]}],
    },
}


class Loadgen:
    """The fake program: the arguments of its calls, and the results it prints."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.program = folder / "stompica-loadgen"
        self.program.write_text(FAKE.format(python=sys.executable))
        self.program.chmod(0o755)
        self.says(RUN)
        self.fails({})

    def says(self, run: dict[str, Any]) -> None:
        """Sets the result of every repetition."""
        (self.folder / "run.json").write_text(json.dumps(run))

    def fails(self, faults: dict[int, str]) -> None:
        """Sets which calls, counted from 1, fail, and how."""
        (self.folder / "faults.json").write_text(json.dumps(faults))

    @property
    def calls(self) -> list[list[str]]:
        """The arguments of each call."""
        path = self.folder / "calls.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def generator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loadgen:
    folder = tmp_path / "generator"
    folder.mkdir()
    made = Loadgen(folder)
    monkeypatch.setenv("STOMPICA_BENCH_LOADGEN", str(made.program))
    return made


@pytest.fixture
def workloads(tmp_path: Path) -> Callable[[str, str], Path]:
    """Writes a workload; returns the folder."""
    folder = tmp_path / "workloads"
    folder.mkdir()

    def write(name: str, text: str) -> Path:
        (folder / f"{name}.toml").write_text(f'name = "{name}"\n{text}')
        return folder

    return write


@pytest.fixture
def bench(workloads: Callable[[str, str], Path], tmp_path: Path, generator: Loadgen) -> Callable[..., int]:
    folder = workloads("fan", 'transports = ["tcp", "ws"]\nconnections = 75\nbody = 200\n')

    def run(*words: str) -> int:
        return main(["bench", "run", *words, "--workloads", str(folder)])

    return run


def base(tmp_path: Path) -> list[str]:
    """Arguments of a run of workload `fan` into a folder of the test."""
    return ["fan", "--transport", "tcp", "--peers", "none", "--repetitions", "2", "--into", str(tmp_path / "out")]


def runs(tmp_path: Path) -> list[Path]:
    """The folders of the runs that it recorded."""
    return sorted((tmp_path / "out" / "runs").iterdir())


def labels(generator: Loadgen) -> list[str]:
    """Ports of the measured calls, as letters in the order of their first use, without the warm-ups."""
    ports = [call[call.index("--connect") + 1] for call in generator.calls]
    order = list(dict.fromkeys(ports))
    seen: set[str] = set()
    found = []
    for port in ports:
        if port in seen:
            found.append("ABC"[order.index(port)])
        seen.add(port)
    return found
