"""Lifetimes of messages in dialogues."""

from __future__ import annotations

import time

from tests.support import frames

EXPIRY_HEADERS = ["expires", "ttl", "expiration"]
"""The headers that limit the lifetime of a message; the first names a point in time, the others a duration."""


def epoch_ms(from_now: int) -> int:
    """A point in time as `expires` expresses it."""
    return int(time.time() * 1000) + from_now


def lifetime(header: str, ms: int) -> frames.Header:
    """The header by which a message expires `ms` milliseconds from now."""
    return header, str(epoch_ms(ms) if header == "expires" else ms)
