"""A fixture that runs the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.api.command_line import CommandLine, Result


@pytest.fixture
def stompica(tmp_path: Path) -> CommandLine:
    """Runs `python -m stompica …` to its end, in an empty folder and with only the given STOMPICA_ variables."""

    def run(*arguments: str, env: dict[str, str] | None = None) -> Result:
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("STOMPICA_")}
        return subprocess.run(
            [sys.executable, "-m", "stompica", *arguments],
            env=inherited | (env or {}),
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run
