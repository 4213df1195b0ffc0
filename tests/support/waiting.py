"""Waits by polling for conditions that have no event."""

from __future__ import annotations

import time
from collections.abc import Callable


def eventually(check: Callable[[], bool], what: str, timeout: float = 30.0) -> None:
    """Polls until `check` holds; fails after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not check():
        assert time.monotonic() < deadline, f"not within {timeout} s: {what}"
        time.sleep(0.02)
