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
    """The command that starts one of the programs, whose name comes next."""
    java = runtimes.program("java")
    libraries = runtimes.installed(TARGET / "classpath.txt", "the compiled Java client").read_text().strip()
    # The JVM lives for seconds: the first compiler and the simplest collector start fastest.
    speed = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
    return (java, *speed, "-cp", f"{TARGET / 'classes'}:{libraries}")


@pytest.mark.timeout(200)
@pytest.mark.parametrize("transport", ["tcp", "websocket"])
def test_spring(broker: BrokerProcess, spring: Sequence[str | Path], transport: str) -> None:
    program = [*spring, f"{PACKAGE}.SpringClients", str(broker.port), transport]
    runtimes.run_scenarios(program, SCENARIOS, timeout=180)


@pytest.mark.timeout(200)
def test_spring_relay(broker: BrokerProcess, spring: Sequence[str | Path]) -> None:
    """Web clients talk to a Spring application, which passes them on: topics, queues and user destinations."""
    runtimes.run_scenarios([*spring, f"{PACKAGE}.SpringRelay", str(broker.port)], RELAY, timeout=180)
