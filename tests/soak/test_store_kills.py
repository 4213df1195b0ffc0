"""200 kills of a broker with a store on disk under load; tests/faults/test_store_kill.py has 20."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.faults.store_rounds import Rounds

ROUNDS = 200


@pytest.mark.timeout(60 + 10 * ROUNDS)
def test_what_receipts_have_confirmed_survives_many_kills(tmp_path: Path, store: str) -> None:
    seed = int(os.environ.get("STORE_KILL_SEED", random.randrange(1 << 32)))
    print(f"STORE_KILL_SEED={seed} repeats the choices of this run")
    Rounds(tmp_path / "store", seed, store).run(ROUNDS)
