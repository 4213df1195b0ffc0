"""JavaScript clients: @stomp/stompjs in Node and on a page in Chromium, stompit over TCP."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.interop import runtimes
from tests.interop.stomp_py import session
from tests.support.process import BrokerProcess

pytestmark = pytest.mark.interop

JS = runtimes.HERE / "js"

BOTH = ["exchange", "versions", "heartbeats", "binary", "transactions", "acks", "nacks", "moves", "errors"]
STOMPJS = [*BOTH, "large", "order", "replies"]


@pytest.fixture(scope="module")
def node() -> str:
    """Returns the path of Node, with the packages installed."""
    found = runtimes.program("node")
    runtimes.installed(JS / "node_modules" / "ws", "tests/interop/js/node_modules")
    return found


@pytest.fixture(scope="module")
def chromium() -> Path:
    """Returns the path of the browser."""
    return runtimes.installed(Path(runtimes.CHROMIUM), "Chromium")


@pytest.mark.parametrize("scenario", STOMPJS)
def test_stompjs_in_node(broker: BrokerProcess, node: str, scenario: str) -> None:
    runtimes.run_scenarios([node, JS / "stompjs.mjs", str(broker.port)], [scenario])


@pytest.mark.parametrize("scenario", BOTH)
def test_stompit_over_tcp(broker: BrokerProcess, node: str, scenario: str) -> None:
    runtimes.run_scenarios([node, JS / "stompit.mjs", str(broker.port)], [scenario])


@pytest.mark.timeout(200)
def test_stompjs_on_a_page_in_chromium(broker: BrokerProcess, node: str, chromium: Path) -> None:
    runtimes.run_scenarios([node, JS / "browser.mjs", str(broker.port)], STOMPJS, timeout=180)


@pytest.mark.timeout(200)
def test_a_page_in_chromium_and_stomp_py_exchange_messages(
    broker: BrokerProcess, node: str, chromium: Path, topic: str
) -> None:
    with session("tcp-1.2", broker.port) as python:
        python.receipt(python.stomp.subscribe, f"{topic}/from-page", id="1")
        chat = f"chat={topic}"
        with subprocess.Popen(
            [node, JS / "browser.mjs", str(broker.port), chat],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as page:
            try:
                hello = python.message(timeout=60)
                assert hello.body == "the page is here"
                assert hello.headers["origin"].startswith("http://127.0.0.1:")
                for body in ("Grüße aus Python, 世界", "bye"):
                    python.stomp.send(f"{topic}/to-page", body, headers={"colour": "blue:green"})
                    answer = python.message()
                    assert (answer.body, answer.headers["colour"]) == (f"received: {body}", "blue:green")
                output, errors = page.communicate(timeout=runtimes.TIMEOUT)
                assert (output, page.returncode) == (f"PASS {chat}\n", 0), errors
            finally:
                page.kill()
