"""SIGTERM and SIGINT drain, a second signal stops at once, SIGHUP reads the settings file again."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.process import BrokerProcess


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The name of a settings file that does not exist yet."""
    return tmp_path / "s.toml"


@contextlib.contextmanager
def broker_with_file(file: Path, text: str, **settings: Any) -> Iterator[BrokerProcess]:
    """A broker whose settings file has this text."""
    file.write_text(text)
    with BrokerProcess(config=file, **settings) as broker:
        yield broker


def reload(broker: BrokerProcess, file: Path, text: str, logged: str = "SIGHUP: read") -> None:
    """Writes the settings file, sends SIGHUP and waits for this log line."""
    file.write_text(text)
    broker.signal(signal.SIGHUP)
    broker.wait_for_log(logged)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_and_the_exit_status_is_0(number: signal.Signals) -> None:
    with BrokerProcess() as broker:
        broker.signal(number)
        assert broker.wait() == 0
        assert f"{number.name}: draining" in broker.log_text()
        assert broker.log_text().rstrip().endswith("stopped")


def test_a_second_signal_stops_at_once() -> None:
    """An open connection keeps the broker draining for a minute; the second signal ends that."""
    with BrokerProcess(drain="60s") as broker, socket.create_connection(("127.0.0.1", broker.port)) as client:
        client.sendall(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0")
        assert client.recv(1000).startswith(b"CONNECTED")
        broker.signal(signal.SIGTERM)
        broker.wait_for_log("SIGTERM: draining")
        if broker.alive:
            broker.signal(signal.SIGTERM)
        assert broker.wait() == 0


def test_a_pipe_in_place_of_the_settings_file_is_not_waited_for(file: Path) -> None:
    """Opening a pipe waits for a writer, and no signal would be handled meanwhile."""
    with broker_with_file(file, "") as broker:
        file.unlink()
        os.mkfifo(file)
        broker.signal(signal.SIGHUP)
        broker.wait_for_log("it is no regular file, so it can be read only once")
        broker.signal(signal.SIGTERM)
        assert broker.wait() == 0


def test_sighup_reloads_the_file(file: Path) -> None:
    with broker_with_file(file, "max_headers = 20\n") as broker:
        reload(broker, file, "max_headers = 5\n", f"SIGHUP: read {file} again")
        assert b"ERROR" in first_answer_to_headers(broker, 10)


def first_answer_to_headers(broker: BrokerProcess, count: int) -> bytes:
    """Returns what a new connection gets for a CONNECT with this many extra headers."""
    headers = "".join(f"h{i}:x\n" for i in range(count))
    with socket.create_connection(("127.0.0.1", broker.port)) as client:
        client.sendall(f"CONNECT\naccept-version:1.2\nhost:x\n{headers}\n\0".encode())
        client.settimeout(20)
        return client.recv(4096)


def test_an_invalid_file_changes_nothing_and_logs_one_line(file: Path) -> None:
    with broker_with_file(file, "max_headers = 20\n") as broker:
        before = broker.log_text().count("\n")
        reload(
            broker,
            file,
            "max_headers = 5\nprot = 1\n",
            "nothing changed: unknown setting 'prot' .* line 2.: did you mean 'port'",
        )
        assert first_answer_to_headers(broker, 10).startswith(b"CONNECTED")
        logged = [line for line in broker.log_text().splitlines()[before:] if "SIGHUP" in line]
        assert len(logged) == 1


def test_changed_settings_that_need_a_restart_are_named(file: Path) -> None:
    with broker_with_file(file, "log_level = 'info'\n") as broker:
        reload(
            broker,
            file,
            "wildcards = 'segment'\nids = 'sequential'\nport = 1\n",
            "these changed settings need a restart: wildcards, ids$",
        )


def test_the_command_line_has_priority_over_a_reloaded_file(file: Path) -> None:
    with broker_with_file(file, "", max_headers=20) as broker:
        reload(broker, file, "max_headers = 5\n")
        assert first_answer_to_headers(broker, 10).startswith(b"CONNECTED")


def test_sighup_without_a_settings_file_is_only_logged() -> None:
    with BrokerProcess() as broker:
        broker.signal(signal.SIGHUP)
        broker.wait_for_log("SIGHUP: no settings file was named; nothing to reload")
        assert broker.alive


def test_sighup_changes_the_log_level(file: Path) -> None:
    with broker_with_file(file, "") as broker:
        reload(broker, file, "debug = true\n")
        assert first_answer_to_headers(broker, 1).startswith(b"CONNECTED")
        broker.wait_for_log("DEBUG")


def test_sighup_changes_the_log_format(file: Path) -> None:
    with broker_with_file(file, "") as broker:
        reload(broker, file, "log_format = 'json'\n")
        assert json.loads(broker.log_text().splitlines()[-1])["message"] == f"SIGHUP: read {file} again"
        reload(broker, file, "log_format = 'text'\n", "Z INFO  SIGHUP: read")
