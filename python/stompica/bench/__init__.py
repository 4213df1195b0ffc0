"""The harness: runs workloads against this broker and others, side by side, and records what they do.

`stompica bench` is its command line; `stompica record` records a broker in use. The load generator is a program of its
own, `stompica-loadgen`. What is recorded has the format of docs/recording.md; `stompica.analysis` explains it.
"""

from __future__ import annotations

from stompica.errors import StompicaError


class BenchError(StompicaError):
    """A measurement can't be made; the message says what is missing or wrong, and what to do."""
