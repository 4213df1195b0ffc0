"""The examples do what their READMEs say."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.interop import runtimes
from tests.interop.stomp_py import session
from tests.support.clients import StartBroker
from tests.support.process import BrokerProcess

pytestmark = pytest.mark.interop

PYTHON = runtimes.EXAMPLES / "python"
JS = runtimes.EXAMPLES / "js"
PAGE = runtimes.HERE / "js" / "example_page.mjs"

COUNT = 20


def command(language: str, name: str) -> list[str | Path]:
    """Returns the command that starts an example."""
    if language == "python":
        return [sys.executable, PYTHON / f"{name}.py"]
    runtimes.installed(JS / "node_modules" / "ws", "examples/js/node_modules")
    return [runtimes.program("node"), JS / f"{name}.mjs"]


@contextmanager
def running(parts: list[str | Path]) -> Iterator[subprocess.Popen[str]]:
    """A process whose output is read while it runs; it is killed at the end if it is still running."""
    with subprocess.Popen(parts, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    """Returns the next line that `process` prints; empty if it has ended."""
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


@pytest.mark.parametrize("publisher", ["python", "js"])
@pytest.mark.parametrize("subscriber", ["python", "js"])
def test_a_subscriber_prints_what_a_publisher_publishes(
    broker: BrokerProcess, topic: str, subscriber: str, publisher: str
) -> None:
    count = ["--count", str(COUNT)]
    with running([*command(subscriber, "subscriber"), *options(broker, f"{topic}/*"), *count]) as process:
        assert line(process) == "subscribed"
        output = runtimes.run([*command(publisher, "publisher"), *options(broker, f"{topic}/a"), *count])
        assert output == f"published {COUNT} messages to {topic}/a\n"
        output, errors = process.communicate(timeout=runtimes.TIMEOUT)
        assert output.splitlines() == [f"{topic}/a: message {number}" for number in range(1, COUNT + 1)], errors
        assert process.returncode == 0, errors


@pytest.mark.parametrize("language", ["python", "js"])
def test_a_publisher_reports_what_the_broker_refused(broker: BrokerProcess, topic: str, language: str) -> None:
    parts = [*command(language, "publisher"), "--port", str(broker.port), "--destination", f"{topic}/*"]
    with running(parts) as process:
        output, errors = process.communicate(timeout=runtimes.TIMEOUT)
    assert (output, process.returncode) == ("", 1)
    assert "wildcard" in errors.lower()


@pytest.mark.parametrize("language", ["python", "js"])
@pytest.mark.parametrize("name", ["subscriber", "publisher", "latency_echo"])
def test_an_example_reports_when_no_broker_answers(language: str, name: str) -> None:
    assert_no_broker(command(language, name))


@pytest.mark.parametrize("name", ["worker", "diag_session"])
def test_the_shared_parts_of_the_examples_report_when_no_broker_answers(name: str) -> None:
    assert_no_broker(command("python", name))


def assert_no_broker(parts: list[str | Path]) -> None:
    """Checks the example's last line when it connects to a port that is bound but does not accept."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        with running([*parts, "--port", str(port)]) as process:
            output, errors = process.communicate(timeout=runtimes.TIMEOUT)
    assert (output, process.returncode) == ("", 1)
    # stomp.py logs each of its attempts before that line.
    assert errors.splitlines()[-1] == f"no broker answers at 127.0.0.1:{port}" and "Traceback" not in errors, errors


@pytest.mark.parametrize("language", ["python", "js"])
def test_latency_echo_prints_percentiles(broker: BrokerProcess, language: str) -> None:
    output = runtimes.run([*command(language, "latency_echo"), "--port", str(broker.port), "--count", "200"])
    assert re.fullmatch(r"200 round trips: p50 \d+ us, p90 \d+ us, p99 \d+ us, max \d+ us\n", output)


def options(broker: BrokerProcess, destination: str, *more: str) -> list[str | Path]:
    """Returns the options for the broker's address and the example's destination."""
    return ["--port", str(broker.port), "--destination", destination, *more]


@pytest.fixture
def queue(topic: str) -> str:
    """A queue that no other test uses."""
    return topic.replace("/topic/", "/queue/")


def ended(process: subprocess.Popen[str]) -> list[str]:
    """Returns what `process` still prints until it ends successfully."""
    output, errors = process.communicate(timeout=runtimes.TIMEOUT)
    assert process.returncode == 0, errors
    return output.splitlines()


def test_workers_share_a_queue_and_do_every_job(broker: BrokerProcess, queue: str) -> None:
    """Each worker does half of the jobs; jobs that are delivered to the second worker for the first time fail there.

    Which worker gets which job, and how often, depends on their speed: a worker that has done its half returns the
    other jobs that it was sent.
    """
    messages = [f"message {number}" for number in range(1, COUNT + 1)]
    half = ["--count", str(COUNT // 2), "--prefetch", str(COUNT // 2)]
    with (
        running([*command("python", "worker"), *options(broker, queue, *half)]) as one,
        running([*command("python", "worker"), *options(broker, queue, *half, "--fail-first")]) as other,
    ):
        assert line(one) == line(other) == "ready"
        runtimes.run([*command("python", "publisher"), *options(broker, queue, "--count", str(COUNT))])
        output, other_output = ended(one), ended(other)
    done = [text for text in output + other_output if text.startswith("done: ")]
    failed = [text for text in other_output if text.startswith("failed: ")]
    assert sorted(text.removeprefix("done: ").rpartition(" (")[0] for text in done) == sorted(messages)
    assert failed, "both workers were ready before the first job, so the second must have failed one"
    assert not any(text.endswith("(delivery 1)") for text in other_output if text.startswith("done: "))


def test_a_killed_worker_leaves_its_jobs_to_the_next(broker: BrokerProcess, queue: str) -> None:
    runtimes.run([*command("python", "publisher"), *options(broker, queue, "--count", str(COUNT))])
    with running([*command("python", "worker"), *options(broker, queue, "--seconds", "60")]) as slow:
        assert line(slow) == "ready"
        assert line(slow) == "took: message 1"
        slow.kill()
        output = runtimes.run([*command("python", "worker"), *options(broker, queue, "--count", str(COUNT))])
    done = [text for text in output.splitlines() if text.startswith("done: ")]
    assert {text.partition(" (")[0] for text in done} == {f"done: message {number}" for number in range(1, COUNT + 1)}
    assert "done: message 1 (delivery 2)" in done


def test_a_service_answers_requests(broker: BrokerProcess, queue: str) -> None:
    with running([*command("python", "service"), *options(broker, queue, "--count", "3")]) as service:
        assert line(service) == "ready"
        ask = [*command("python", "request"), *options(broker, queue)]
        assert runtimes.run([*ask, "hello", "world"]) == "hello: HELLO\nworld: WORLD\n"
        assert runtimes.run([*ask, "again"]) == "again: AGAIN\n"
        assert ended(service) == []


def test_a_durable_subscriber_gets_what_came_while_it_was_away(broker: BrokerProcess, topic: str) -> None:
    named = [*command("python", "durable_subscriber"), *options(broker, topic, "--name", topic.rpartition("/")[2])]
    publish = [*command("python", "publisher"), *options(broker, topic)]
    with running([*named, "--count", "2"]) as process:
        assert line(process) == "ready"
        runtimes.run([*publish, "--count", "2"])
        assert ended(process) == [f"{topic}: message {number}" for number in (1, 2)]
    runtimes.run([*publish, "--count", "3"])
    expected = ["ready", *(f"{topic}: message {number}" for number in (1, 2, 3))]
    assert runtimes.run([*named, "--count", "3"]).splitlines() == expected
    assert runtimes.run([*named, "--forget"]) == "forgotten\n"
    runtimes.run([*publish, "--count", "3"])
    with running([*named, "--count", "1"]) as process:
        assert line(process) == "ready"
        runtimes.run([*publish, "--count", "1"])
        assert ended(process) == [f"{topic}: message 1"]
    runtimes.run([*named, "--forget"])


DIAGNOSTICS = {
    "session": ["clients", "websockets", "stomp_connected", "subscriptions"],
    "ws_buffer": ["allocated", "hits", "misses"],
    "stale": ["in", "out", "stale"],
}


@pytest.mark.parametrize("query", DIAGNOSTICS)
def test_a_broker_answers_diagnostics_by_frame_and_by_topic(broker: BrokerProcess, query: str) -> None:
    output = runtimes.run([*command("python", f"diag_{query}"), "--port", str(broker.port)])
    names = DIAGNOSTICS[query]
    headers = ["input-queue-size", "output-queue-size", "stale-queue-size"] if query == "stale" else names
    by_frame, by_topic = (
        r"by (frame|topic):" + "".join(rf" {name}=\d+" for name in each) + r"\n" for each in (names, headers)
    )
    assert re.fullmatch(by_frame + by_topic, output), output


SCENARIOS = {
    "one-to-one": (["--clients", "50"], "50 clients found their messages\n"),
    "many-to-one": (["--count", "100", "--pause", "0"], "100 messages waited 0 s\n"),
    "workers": (["--clients", "10", "--count", "100"], "10 workers did 100 jobs, each the same number\n"),
    "reconnect": (["--count", "10"], "a listener connected 10 times and received 10 messages\n"),
}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenarios_pass(shared_broker: StartBroker, scenario: str) -> None:
    broker = shared_broker(TTL=60_000)
    more, expected = SCENARIOS[scenario]
    assert runtimes.run([*command("python", "scenarios"), "--port", str(broker.port), scenario, *more]) == expected


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenarios_pass_with_the_commands_of_the_readme(shared_broker: StartBroker, scenario: str) -> None:
    readme = (PYTHON / "README.md").read_text()
    started = re.search(r"^python -m stompica port=61613 (.+)$", readme, re.MULTILINE)
    called = re.search(rf"^python scenarios.py --port 61613 ({scenario} .*)$", readme, re.MULTILINE)
    assert started and called
    broker = shared_broker(**dict(setting.split("=") for setting in started[1].split()))
    runtimes.run([*command("python", "scenarios"), "--port", str(broker.port), *called[1].split()])


@pytest.mark.parametrize("scenario", ["one-to-one", "many-to-one"])
def test_a_scenario_without_its_ttl_names_the_command_that_starts_the_broker(
    broker: BrokerProcess, scenario: str
) -> None:
    more = ["--clients", "1", "--count", "1", "--pause", "0", "--timeout", "0.5"]
    with running([*command("python", "scenarios"), "--port", str(broker.port), scenario, *more]) as process:
        output, errors = process.communicate(timeout=runtimes.TIMEOUT)
    assert (output, process.returncode) == ("", 1)
    assert errors.splitlines()[-1] == (
        f"lost: no message within 0.5 s; {scenario} needs a broker that holds messages until a client subscribes: "
        f"python -m stompica port={broker.port} TTL=60000"
    )


@pytest.mark.timeout(200)
def test_all_in_one_passes_every_case(broker: BrokerProcess) -> None:
    output = runtimes.run([*command("js", "all_in_one"), "--port", str(broker.port)], timeout=180)
    assert re.search(r"^[1-9]\d* passed, 0 failed$", output, re.MULTILINE)


@pytest.mark.timeout(200)
def test_the_example_page_and_stomp_py_exchange_messages(broker: BrokerProcess, topic: str) -> None:
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
