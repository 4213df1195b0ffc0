"""Runs the Autobahn test suite against the project's WebSocket code: `ws_echo`, an echo server on that code.

    python tests/conformance/autobahn.py --wstest wstest

The suite (`autobahntestsuite` on PyPI) needs Python 2.7, with autobahn 0.10.9, txaio 2.1.0, Twisted 20.3.0 and
unittest2. `--wstest` is the command that starts it. All cases of chapters 1 to 7, 9 and 10 must pass, strictly; cases
that the suite only reports (INFORMATIONAL) are listed. The exit status is 0 if all cases pass.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CASES = [f"{chapter}.*" for chapter in (1, 2, 3, 4, 5, 6, 7, 9, 10)]
AGENT = "stompica"


@contextlib.contextmanager
def echo_server() -> Iterator[str]:
    """Builds and starts `ws_echo` on a free port; yields its URL."""
    build = ["cargo", "build", "--quiet", "--release", "-p", "stompica-proto", "--example", "ws_echo"]
    subprocess.run(build, cwd=ROOT, check=True)
    command = [str(ROOT / "target/release/examples/ws_echo"), "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            _, _, address = line.strip().partition("listening on ")
            if not address:
                raise SystemExit(f"ws_echo did not start: {line!r}")
            yield f"ws://{address}"
        finally:
            process.terminate()


def run_suite(url: str, *, wstest: list[str], cases: list[str], directory: Path) -> dict[str, dict[str, object]]:
    """Runs the cases; returns the suite's verdict on each, by case number."""
    reports = directory / "reports"
    spec = directory / "fuzzingclient.json"
    settings = {
        "outdir": str(reports),
        "servers": [{"agent": AGENT, "url": url}],
        "cases": cases,
        "exclude-cases": [],
        "exclude-agent-cases": {},
    }
    spec.write_text(json.dumps(settings))
    subprocess.run([*wstest, "-m", "fuzzingclient", "-s", spec], check=True, stdout=subprocess.DEVNULL)
    verdicts: dict[str, dict[str, object]] = json.loads((reports / "index.json").read_text()).get(AGENT, {})
    return verdicts


def main() -> int:
    """Runs the suite and prints the cases that did not pass."""
    parser = argparse.ArgumentParser(description="Autobahn test suite against the WebSocket codec")
    parser.add_argument("--wstest", default="wstest", help="command that starts wstest (default: %(default)s)")
    parser.add_argument("cases", nargs="*", default=CASES, help="cases to run, such as 9.*")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, echo_server() as url:
        verdicts = run_suite(
            url, wstest=shlex.split(arguments.wstest), cases=arguments.cases, directory=Path(directory)
        )
    counts: dict[str, int] = {}
    failed = not verdicts
    for case, verdict in verdicts.items():
        kinds = {str(verdict["behavior"]), str(verdict["behaviorClose"])}
        kind = "OK" if kinds == {"OK"} else "/".join(sorted(kinds))
        counts[kind] = counts.get(kind, 0) + 1
        if kind != "OK":
            print(f"{case}: {kind}, closed with {verdict['remoteCloseCode']}")
        failed |= not kinds <= {"OK", "INFORMATIONAL"}
    print(f"{len(verdicts)} cases: {counts}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
