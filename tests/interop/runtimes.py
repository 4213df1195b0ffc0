"""Finds the runtimes that the clients need and runs client programs.

A client program gets the broker's address and the names of scenarios. It runs them in that order, prints `PASS name`
for each one and exits with 0; at the first failure it prints the reason on stderr and exits with 1.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import pytest

HERE = Path(__file__).parent
"""The folder of these tests."""

EXAMPLES = HERE.parent.parent / "examples"
"""The project's examples."""

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
"""The browser; the environment variable names another one."""

TIMEOUT = 100.0
"""Seconds until a client program counts as hung. Its own timeouts are shorter and have better error messages."""

_PASS = re.compile(r"^PASS (\S+)$", re.MULTILINE)


def missing(what: str) -> NoReturn:
    """Skips the test because `what` is missing; in CI, where nothing may be missing, fails it."""
    reason = f"{what} is missing: tests/interop/setup.sh installs it"
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def program(name: str) -> str:
    """Returns the path of an executable."""
    return shutil.which(name) or missing(name)


def installed(path: Path, what: str) -> Path:
    """Returns `path`, which the installation of `what` creates."""
    return path if path.exists() else missing(what)


def library(command: Sequence[str], what: str) -> None:
    """Checks that the library `what` can be loaded, by running `command`."""
    if (
        subprocess.run(command, check=False, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT).returncode
        != 0
    ):
        missing(what)


def run(command: Sequence[str | Path], *, timeout: float = TIMEOUT, cwd: Path | None = None) -> str:
    """Returns what `command` prints on stdout; fails with all its output unless it exits with 0 in time."""
    named = " ".join(str(part) if len(str(part)) <= 80 else f"{str(part)[:40]}…" for part in command)
    try:
        done = subprocess.run(
            command,
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            cwd=cwd,
        )
    except subprocess.TimeoutExpired as late:
        pytest.fail(
            f"{named} is still running after {timeout} s:\n{_text(late.stdout)}\n{_text(late.stderr)}", pytrace=False
        )
    if done.returncode != 0:
        pytest.fail(f"{named} exited with {done.returncode}:\n{done.stdout}\n{done.stderr}", pytrace=False)
    return done.stdout


def run_scenarios(command: Sequence[str | Path], scenarios: Sequence[str], *, timeout: float = TIMEOUT) -> None:
    """Runs a client program through `scenarios` and checks that it reports each as passed."""
    assert _PASS.findall(run([*command, *scenarios], timeout=timeout)) == list(scenarios)


def _text(output: bytes | str | None) -> str:
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""
