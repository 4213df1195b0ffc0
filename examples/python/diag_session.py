"""Prints the number of clients of a broker, queried in both ways.

python diag_session.py --port 61613
"""

from __future__ import annotations

from diag import show

STATISTICS = {name: name for name in ("clients", "websockets", "stomp_connected", "subscriptions")}

if __name__ == "__main__":
    show(__doc__ or "", "session", STATISTICS)
