"""Prints how a broker's output buffers are used, queried in both ways.

python diag_ws_buffer.py --port 61613
"""

from __future__ import annotations

from diag import show

STATISTICS = {name: name for name in ("allocated", "hits", "misses")}

if __name__ == "__main__":
    show(__doc__ or "", "ws_buffer", STATISTICS)
