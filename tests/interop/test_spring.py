"""Spring (Java): ReactorNettyTcpStompClient, WebSocketStompClient, and an application with a StompBrokerRelay."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.interop import runtimes
from tests.support.process import BrokerProcess

pytestmark = pytest.mark.interop

PACKAGE = "org.stompica.interop"
TARGET = runtimes.HERE / "java" / "target"

SCENARIOS = ["exchange", "escapes", "heartbeats", "binary", "acks", "errors"]
RELAY = ["topic", "queue", "shared", "user"]


@pytest.fixture(scope="module")
def spring() -> Sequence[str | Path]:
    """Returns the command that starts one of the programs; the program's name follows."""
    java = runtimes.program("java")
    libraries = runtimes.installed(TARGET / "classpath.txt", "the compiled Java client").read_text().strip()
    # The JVM runs only for seconds: the first compiler and the simplest collector start fastest.
    speed = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
    return (java, *speed, "-cp", f"{TARGET / 'classes'}:{libraries}")


@pytest.mark.timeout(200)
@pytest.mark.parametrize("transport", ["tcp", "websocket"])
def test_spring(broker: BrokerProcess, spring: Sequence[str | Path], transport: str) -> None:
    program = [*spring, f"{PACKAGE}.SpringClients", str(broker.port), transport]
    runtimes.run_scenarios(program, SCENARIOS, timeout=180)


@pytest.mark.timeout(200)
def test_spring_relay(broker: BrokerProcess, spring: Sequence[str | Path]) -> None:
    """Web clients connect to a Spring application that relays to the broker: topics, queues and user destinations."""
    runtimes.run_scenarios([*spring, f"{PACKAGE}.SpringRelay", str(broker.port)], RELAY, timeout=180)
