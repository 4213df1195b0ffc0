"""Argument types shared by several commands."""

from __future__ import annotations

import argparse
from collections.abc import Callable


def seconds(least: float, most: float, hint: str = "") -> Callable[[str], float]:
    """A `type` for argparse: seconds from `least` to `most`. `hint` is added to the error if there is no number."""

    def parse(word: str) -> float:
        try:
            value = float(word)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{word!r} is not a number of seconds{hint}") from None
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"must be from {least:g} to {most:.10g} seconds")
        return value

    return parse
