"""Fixtures of the tests of durable subscriptions."""

from __future__ import annotations

import pytest


@pytest.fixture
def name(topic: str) -> str:
    """A subscription name that no other test uses."""
    return "d-" + topic.removeprefix("/topic/")
