"""Fixtures of the tests of `stompica store`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.stored import Stored

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def store() -> Run:
    """Runs `stompica store …` in a process of its own; a `Path` is passed on as `--dir`."""

    def run(command: str, directory: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "stompica", "store", command, *map(str, words), "--dir", str(directory)]
        return subprocess.run(line, capture_output=True, text=True, timeout=100, check=False)

    return run


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[Stored]:
    """A directory with a broker that has just been started on it."""
    stored = Stored(tmp_path / "store", writers=2)
    stored.start()
    yield stored
    stored.close()
