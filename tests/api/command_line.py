"""What the command line printed, taken apart."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import TypeAlias

Result: TypeAlias = subprocess.CompletedProcess[str]
CommandLine: TypeAlias = Callable[..., Result]

TEXT = "must be a text that is not empty, without control characters"


def effective(result: Result) -> dict[str, object]:
    """What `stompica config` printed. Its TOML is `key = value  # source`, where the values are JSON's too."""
    assert result.returncode == 0, result.stderr
    rows = (line.rpartition("  # ")[0].partition(" = ") for line in result.stdout.splitlines())
    return {key: json.loads(value) for key, _, value in rows if not key.startswith("# ")}


def sources(result: Result) -> dict[str, str]:
    """Where each setting of `stompica config` came from."""
    rows = (line.rpartition("  # ") for line in result.stdout.splitlines())
    return {setting.split(" = ")[0].removeprefix("# "): source for setting, _, source in rows}


def refused(result: Result, status: int = 2) -> str:
    """The one line on stderr of a command that was refused."""
    assert result.returncode == status, (result.stdout, result.stderr)
    assert result.stderr.count("\n") == 1 and result.stderr.startswith("stompica: "), result.stderr
    assert result.stdout == ""
    return result.stderr.removeprefix("stompica: ").rstrip("\n")
