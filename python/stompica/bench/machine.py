"""The machine and the commit of a measurement."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

from stompica.recording import Machine

CODE = ("rust", "python", "bench/loadgen", "bench/workloads", "Cargo.lock")
"""Files that a figure depends on: if they were changed, it does not belong to the commit alone."""


def here() -> Machine:
    """This machine."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Machine(cores, _cpu(), platform.release(), memory)


def commit(folder: Path) -> str:
    """The commit of a source tree, with `+` if the code differs from it; empty if it has none."""
    named = _git(folder, "rev-parse", "--short=12", "HEAD")
    if not named:
        return ""
    return f"{named}+" if _git(folder, "status", "--porcelain", "--", *CODE) else named


def commit_of(folder: Path | None, target: str, python: str) -> str:
    """The commit of what was measured: this source tree's; empty for another broker or another installation."""
    return commit(folder) if folder and target == "stompica" and not python else ""


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def _git(folder: Path, *arguments: str) -> str:
    try:
        printed = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return printed.stdout.strip() if printed.returncode == 0 else ""
