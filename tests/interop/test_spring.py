"""Spring's STOMP clients (Java): ReactorNettyTcpStompClient and WebSocketStompClient."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.interop import runtimes
from tests.support.process import BrokerProcess

pytestmark = pytest.mark.interop

TARGET = runtimes.HERE / "java" / "target"

SCENARIOS = ["exchange", "escapes", "heartbeats", "binary", "errors"]


@pytest.fixture(scope="module")
def spring() -> Sequence[str | Path]:
    """The command that starts the clients' program."""
    java = runtimes.program("java")
    libraries = runtimes.installed(TARGET / "classpath.txt", "the compiled Java client").read_text().strip()
    # The JVM lives for seconds: the first compiler and the simplest collector start fastest.
    speed = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
    return (java, *speed, "-cp", f"{TARGET / 'classes'}:{libraries}", "org.stompica.interop.SpringClients")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("transport", ["tcp", "websocket"])
def test_spring(broker: BrokerProcess, spring: Sequence[str | Path], transport: str) -> None:
    runtimes.run_scenarios([*spring, str(broker.port), transport], SCENARIOS, timeout=100)
