"""What several commands take from their command line."""

from __future__ import annotations

import argparse
from collections.abc import Callable


def seconds(least: float, most: float, hint: str = "") -> Callable[[str], float]:
    """A `type` for argparse: a number of seconds within these bounds. `hint` is said where there is no number."""

    def parse(word: str) -> float:
        try:
            value = float(word)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{word!r} is no number of seconds{hint}") from None
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"from {least:g} to {most:.10g} seconds")
        return value

    return parse
