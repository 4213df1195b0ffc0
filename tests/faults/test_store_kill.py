"""A broker is killed again and again under load; its successors have in the store what RECEIPTs have promised."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.faults.store_rounds import Rounds

ROUNDS = int(os.environ.get("STORE_KILL_ROUNDS", "20"))


@pytest.mark.timeout(60 + 10 * ROUNDS)
@pytest.mark.parametrize(("store", "rounds"), [("file", ROUNDS), ("sqlite", (ROUNDS + 1) // 2)])
def test_what_receipts_have_confirmed_survives_kills_under_load(tmp_path: Path, store: str, rounds: int) -> None:
    """SIGKILL, now and then SIGTERM, after a random number of RECEIPTs; `writers` changes with each start."""
    seed = int(os.environ.get("STORE_KILL_SEED", random.randrange(1 << 32)))
    print(f"STORE_KILL_SEED={seed} repeats the choices of this run")
    Rounds(tmp_path / "store", seed, store).run(rounds)
