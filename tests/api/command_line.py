"""The types of the command line, and functions that read its output."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import TypeAlias

Result: TypeAlias = subprocess.CompletedProcess[str]
CommandLine: TypeAlias = Callable[..., Result]

TEXT = "must be a non-empty text without control characters"


def effective(result: Result) -> dict[str, object]:
    """Returns the settings that `stompica config` printed: TOML lines `key = value  # source`, with JSON values."""
    assert result.returncode == 0, result.stderr
    rows = (line.rpartition("  # ")[0].partition(" = ") for line in result.stdout.splitlines())
    return {key: json.loads(value) for key, _, value in rows if not key.startswith("# ")}


def sources(result: Result) -> dict[str, str]:
    """Returns where each setting that `stompica config` printed came from."""
    rows = (line.rpartition("  # ") for line in result.stdout.splitlines())
    return {setting.split(" = ")[0].removeprefix("# "): source for setting, _, source in rows}


def refused(result: Result, status: int = 2) -> str:
    """Returns the one line that a refused command printed on stderr."""
    assert result.returncode == status, (result.stdout, result.stderr)
    assert result.stderr.count("\n") == 1 and result.stderr.startswith("stompica: "), result.stderr
    assert result.stdout == ""
    return result.stderr.removeprefix("stompica: ").rstrip("\n")
