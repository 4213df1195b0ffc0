"""Net::Stomp of Perl (Debian: libnet-stomp-perl)."""

from __future__ import annotations

import pytest

from tests.interop import runtimes
from tests.support.process import BrokerProcess

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def perl() -> str:
    """Returns the path of Perl, with the library installed."""
    found = runtimes.program("perl")
    runtimes.library([found, "-MNet::Stomp", "-e", "1"], "Perl's library Net::Stomp (libnet-stomp-perl)")
    return found


SCENARIOS = ["exchange", "heartbeats", "binary", "transactions", "acks", "nacks", "moves", "errors"]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_perl_net_stomp(broker: BrokerProcess, perl: str, scenario: str) -> None:
    runtimes.run_scenarios([perl, runtimes.HERE / "perl" / "client.pl", str(broker.port)], [scenario])
