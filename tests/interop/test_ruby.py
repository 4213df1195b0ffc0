"""The stomp gem of Ruby (Debian: ruby-stomp)."""

from __future__ import annotations

import pytest

from tests.interop import runtimes
from tests.support.process import BrokerProcess

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def ruby() -> str:
    """Returns the path of Ruby, with the library installed."""
    found = runtimes.program("ruby")
    runtimes.library([found, "-e", "require 'stomp'"], "Ruby's library stomp (ruby-stomp)")
    return found


SCENARIOS = [
    *("exchange", "crlf", "heartbeats", "binary", "transactions"),
    *("acks", "nacks", "moves", "client", "errors"),
]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_ruby_stomp(broker: BrokerProcess, ruby: str, scenario: str) -> None:
    runtimes.run_scenarios([ruby, runtimes.HERE / "ruby" / "client.rb", str(broker.port)], [scenario])
