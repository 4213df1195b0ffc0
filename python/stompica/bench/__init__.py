"""The bench harness: runs workloads against this broker and others, in turns, and records the results.

`stompica bench` is its command line; `stompica record` records a broker in use. The load generator,
`stompica-loadgen`, is a separate program. docs/recording.md describes recordings; `stompica.analysis` analyses them.
"""

from __future__ import annotations

from stompica.errors import StompicaError


class BenchError(StompicaError):
    """A measurement is not possible. The message says what is missing or wrong, and what to do."""
