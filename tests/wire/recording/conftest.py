"""Fixtures of the tests of `record=`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.recorded import RECORD
from tests.support.stored import RESTARTS, Restart, Stored


@pytest.fixture
def stored(tmp_path: Path, writers: int) -> Iterator[Stored]:
    """A directory with a broker that records and has just been started on it."""
    stored = Stored(tmp_path / "store", writers=writers, record=RECORD)
    stored.start()
    yield stored
    stored.close()


@pytest.fixture(params=list(RESTARTS))
def restart(request: pytest.FixtureRequest) -> Restart:
    """Ends the broker in one of the ways in which a process ends, and starts another one."""
    return RESTARTS[request.param]
