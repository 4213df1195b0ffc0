"""Prints how many frames and messages wait in a broker, queried in both ways: in mailboxes, in outboxes, stale.

python diag_stale.py --port 61613
"""

from __future__ import annotations

from diag import show

STATISTICS = {"in": "input-queue-size", "out": "output-queue-size", "stale": "stale-queue-size"}

if __name__ == "__main__":
    show(__doc__ or "", "stale", STATISTICS)
