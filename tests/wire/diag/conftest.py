"""Fixtures of the tests of diagnostics."""

from __future__ import annotations

import socket

import pytest


def external_address() -> str | None:
    """An address of this machine that is not on the loopback interface, if there is one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            return None
        address: str = probe.getsockname()[0]
    return None if address.startswith("127.") else address


@pytest.fixture
def host() -> str:
    """An address of this machine that is not loopback; without one the test is skipped."""
    found = external_address()
    if found is None:
        pytest.skip("this machine has no address but loopback")
    return found
