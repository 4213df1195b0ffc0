"""The examples do what their READMEs say."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.interop import runtimes
from tests.interop.stomp_py import session
from tests.support.process import BrokerProcess

pytestmark = pytest.mark.interop

PYTHON = runtimes.EXAMPLES / "python"
JS = runtimes.EXAMPLES / "js"
PAGE = runtimes.HERE / "js" / "example_page.mjs"

COUNT = 20


def command(language: str, name: str) -> list[str | Path]:
    """The command that starts an example."""
    if language == "python":
        return [sys.executable, PYTHON / f"{name}.py"]
    runtimes.installed(JS / "node_modules" / "ws", "examples/js/node_modules")
    return [runtimes.program("node"), JS / f"{name}.mjs"]


@contextmanager
def running(parts: list[str | Path]) -> Iterator[subprocess.Popen[str]]:
    """A process whose output is read while it runs; killed at the end if it still does."""
    with subprocess.Popen(parts, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    """The next line that `process` prints; empty when it ended."""
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


@pytest.mark.parametrize("publisher", ["python", "js"])
@pytest.mark.parametrize("subscriber", ["python", "js"])
def test_a_subscriber_prints_what_a_publisher_publishes(
    broker: BrokerProcess, topic: str, subscriber: str, publisher: str
) -> None:
    options = ["--port", str(broker.port), "--count", str(COUNT), "--destination"]
    with running([*command(subscriber, "subscriber"), *options, f"{topic}/*"]) as process:
        assert line(process) == "subscribed"
        said = runtimes.run([*command(publisher, "publisher"), *options, f"{topic}/a"])
        assert said == f"published {COUNT} messages to {topic}/a\n"
        output, errors = process.communicate(timeout=runtimes.TIMEOUT)
        assert output.splitlines() == [f"{topic}/a: message {number}" for number in range(1, COUNT + 1)], errors
        assert process.returncode == 0, errors


@pytest.mark.parametrize("language", ["python", "js"])
def test_a_publisher_says_what_the_broker_refused(broker: BrokerProcess, topic: str, language: str) -> None:
    parts = [*command(language, "publisher"), "--port", str(broker.port), "--destination", f"{topic}/*"]
    with running(parts) as process:
        output, errors = process.communicate(timeout=runtimes.TIMEOUT)
    assert (output, process.returncode) == ("", 1)
    assert "wildcard" in errors.lower()


@pytest.mark.parametrize("language", ["python", "js"])
def test_latency_echo_prints_percentiles(broker: BrokerProcess, language: str) -> None:
    said = runtimes.run([*command(language, "latency_echo"), "--port", str(broker.port), "--count", "200"])
    assert re.fullmatch(r"200 round trips: p50 \d+ us, p90 \d+ us, p99 \d+ us, max \d+ us\n", said)


@pytest.mark.timeout(200)
def test_all_in_one_passes_every_case(broker: BrokerProcess) -> None:
    said = runtimes.run([*command("js", "all_in_one"), "--port", str(broker.port)], timeout=180)
    assert re.search(r"^[1-9]\d* passed, 0 failed$", said, re.MULTILINE)


@pytest.mark.timeout(120)
def test_the_page_talks_to_stomp_py(broker: BrokerProcess, topic: str) -> None:
    runtimes.installed(Path(runtimes.CHROMIUM), "Chromium")
    runtimes.installed(PAGE.parent / "node_modules" / "playwright-core", "tests/interop/js/node_modules")
    command("js", "serve")
    with session("tcp-1.2", broker.port) as python:
        python.receipt(python.stomp.subscribe, topic, id="1")
        with running([runtimes.program("node"), PAGE, str(broker.port), topic]) as page:
            assert line(page) == "READY"
            python.stomp.send(topic, "hello <b>page</b>")
            assert python.message().body == "hello <b>page</b>"
            assert python.message().body == "hello from the page"
            output, errors = page.communicate(timeout=runtimes.TIMEOUT)
            assert (output, page.returncode) == ("PASS page\n", 0), errors
