"""`python -m stompica`."""

from __future__ import annotations

import sys

from stompica.cli import main

if __name__ == "__main__":
    sys.exit(main())
