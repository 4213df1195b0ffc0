"""Prints what waits in a broker, asked in both ways: frames to be routed, messages to be written or for a subscriber.

python diag_stale.py --port 61613
"""

from __future__ import annotations

from diag import show

STATISTICS = {"in": "input-queue-size", "out": "output-queue-size", "stale": "stale-queue-size"}

if __name__ == "__main__":
    show(__doc__ or "", "stale", STATISTICS)
