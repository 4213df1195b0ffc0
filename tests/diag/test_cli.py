"""`stompica diag`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stompica.cli import main
from stompica.diag import Bucket, Queue, Session, Stage, records
from stompica.diag.cli import render
from tests.support.clients import Clients, StartBroker
from tests.support.process import BrokerProcess


def run_diag(capsys: pytest.CaptureFixture[str], broker: BrokerProcess, *words: str) -> str:
    assert main(["diag", *words, "--address", f"127.0.0.1:{broker.port}"]) == 0
    return capsys.readouterr().out


def test_a_record_is_printed_as_lines(capsys: pytest.CaptureFixture[str], broker: BrokerProcess) -> None:
    lines = run_diag(capsys, broker).splitlines()
    assert [line.split()[0] for line in lines] == ["clients", "websockets", "stomp_connected", "subscriptions"]


def test_queues_are_printed_as_a_table(
    capsys: pytest.CaptureFixture[str], broker: BrokerProcess, client: Clients
) -> None:
    client().send_and_wait("/queue/of-the-cli", "one")
    heading, *rows = run_diag(capsys, broker, "queues").splitlines()
    assert heading.split()[:3] == ["name", "kind", "size"]
    assert any(row.split()[0] == "/queue/of-the-cli" for row in rows)


def test_names_cannot_act_on_the_terminal(
    capsys: pytest.CaptureFixture[str], broker: BrokerProcess, client: Clients
) -> None:
    wire = client()
    wire.send_and_wait("/queue/cli\\n\x1b[2J", "one")
    wire.subscribe("/topic/cli\\n\x1b[2J")
    for query, line in (("queues", "/queue/cli\\n\\x1b[2J"), ("subs", "/topic/cli\\n\\x1b[2J")):
        lines = run_diag(capsys, broker, query).split("\n")
        assert [found for found in lines if found.startswith(line)], lines
        assert all(found.isprintable() for found in lines), lines


def test_json_is_printed_as_one_line(capsys: pytest.CaptureFixture[str], broker: BrokerProcess) -> None:
    printed = run_diag(capsys, broker, "session", "--json")
    assert records.decode("session", json.loads(printed)).clients >= 1
    assert printed.count("\n") == 1


def test_watch_prints_until_its_reader_closes(broker: BrokerProcess, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "stompica", "diag", "memory", "--json", "--watch", "0.1"]
    with subprocess.Popen(
        [*command, "--address", f"127.0.0.1:{broker.port}"], stdout=subprocess.PIPE, text=True
    ) as watching:
        assert watching.stdout is not None
        lines = [watching.stdout.readline() for _ in range(2)]
        watching.stdout.close()
        assert watching.wait(60) == 0, "the watch did not end when its reader closed the pipe"
    assert all("held_bytes" in line for line in lines)


@pytest.mark.parametrize("words", [["--watch"], ["--watch", "0.1"]])
def test_ctrl_c_ends_a_watch_gracefully(broker: BrokerProcess, words: list[str]) -> None:
    command = [sys.executable, "-m", "stompica", "diag", "store", "--address", f"127.0.0.1:{broker.port}", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        assert watching.stdout.readline().startswith("-- ")
        watching.send_signal(signal.SIGINT)
        _, errors = watching.communicate(timeout=60)
    assert (watching.returncode, errors) == (0, "")


def test_the_end_of_the_broker_is_printed_as_one_line(start_broker: StartBroker) -> None:
    broker = start_broker()
    command = [sys.executable, "-m", "stompica", "diag", "--watch", "--address", f"127.0.0.1:{broker.port}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        watching.stdout.readline()
        broker.kill()
        _, errors = watching.communicate(timeout=60)
    assert watching.returncode == 1
    assert errors.startswith(f"stompica: stomp://127.0.0.1:{broker.port}: ") and errors.count("\n") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_is_printed_as_one_line(broker: BrokerProcess) -> None:
    command = [sys.executable, "-m", "stompica", "diag", "--address", f"127.0.0.1:{broker.port}"]
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (1, "stompica: No space left on device\n")


def test_a_refused_connection_is_one_line_and_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diag", "--address", "127.0.0.1:1"]) == 1
    assert capsys.readouterr().err == "stompica: stomp://127.0.0.1:1: Connection refused\n"


@pytest.mark.parametrize("words", [["sesion"], ["--watch", "0"], ["--watch", "soon"], ["--watch", "network"]])
def test_bad_usage_is_status_2(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["diag", *words])
    assert ended.value.code == 2
    assert "stompica diag" in capsys.readouterr().err


def test_values_are_rendered_for_readers() -> None:
    assert list(render("session", Session(1, 0, 1, 12)))[-1] == "subscriptions    12"
    assert list(render("queues", ())) == ["(none)"]
    assert list(render("subs", ("/topic/a",))) == ["/topic/a"]
    assert list(render("pubsub-size", 3)) == ["3"]
    table = list(render("queues", (Queue("/queue/a", "work", 5, 0, 0, 0, 100, 95),)))
    assert table[1].split() == ["/queue/a", "work", "5", "0", "0", "0", "100", "95"]
    stages = {"read": Stage(2, 3000, (Bucket(1000, 2000, 2),))}
    timed = list(render("benchmark", records.Benchmark(60_000, stages)))
    assert timed[1].split() == ["read", "2", "0.0", "1500", "2000", "2000"]
