"""stompest 2.3.0 (PyPI): the integration tests that it contains, on queues in every version.

Its TLS tests are left out: the broker has no certificate here.
"""

from __future__ import annotations

import pytest

from tests.interop import runtimes
from tests.support.clients import StartBroker

pytestmark = pytest.mark.interop

HERE = runtimes.HERE / "stompest"

TESTS = [
    "test_1_integration",
    "test_2_transaction",
    "test_3_socket_failure_and_replay",
    "test_3_timeout",
    "test_4_integration_stomp_1_1",
    "test_4_integration_stomp_1_2",
    "test_5_integration_stomp_1_1_heartbeat",
    "test_6_integration_stomp_1_1_encoding_and_escaping_headers",
]


def test_the_suite_of_stompest_passes(start_broker: StartBroker) -> None:
    """The heart-beats are slow enough for a busy machine: the suite does not tolerate late ones."""
    python = runtimes.installed(HERE / ".venv" / "bin" / "python", "stompest")
    broker = start_broker(heartbeat="1000,1000")
    runtimes.run_scenarios([python, HERE / "suite.py", str(broker.port)], TESTS)
