"""SIGTERM and SIGINT drain, a second one stops at once, SIGHUP reads the settings again."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path

import pytest

from tests.support.process import BrokerProcess


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_and_the_status_is_0(number: signal.Signals) -> None:
    with BrokerProcess() as broker:
        broker.signal(number)
        assert broker.wait() == 0
        assert f"{number.name}: draining" in broker.log_text()
        assert broker.log_text().rstrip().endswith("stopped")


def test_a_second_signal_stops_at_once() -> None:
    """A client that never reads its CONNECTED keeps nothing: the drain of a minute is cut short."""
    with BrokerProcess(drain="60s") as broker, socket.create_connection(("127.0.0.1", broker.port)) as client:
        client.sendall(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0")
        assert client.recv(1000).startswith(b"CONNECTED")
        broker.signal(signal.SIGTERM)
        broker.wait_for_log("SIGTERM: draining")
        if broker.alive:
            broker.signal(signal.SIGTERM)
        assert broker.wait() == 0


def test_sighup_reloads_the_file(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text("max_headers = 20\n")
    with BrokerProcess(config=file) as broker:
        file.write_text("max_headers = 5\n")
        broker.signal(signal.SIGHUP)
        broker.wait_for_log(f"SIGHUP: read {file} again")
        assert b"ERROR" in first_answer_to_headers(broker, 10)


def first_answer_to_headers(broker: BrokerProcess, count: int) -> bytes:
    """What a new connection gets for a CONNECT with this many headers of its own."""
    headers = "".join(f"h{i}:x\n" for i in range(count))
    with socket.create_connection(("127.0.0.1", broker.port)) as client:
        client.sendall(f"CONNECT\naccept-version:1.2\nhost:x\n{headers}\n\0".encode())
        client.settimeout(20)
        return client.recv(4096)


def test_an_invalid_file_changes_nothing_and_logs_one_line(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text("max_headers = 20\n")
    with BrokerProcess(config=file) as broker:
        before = broker.log_text().count("\n")
        file.write_text("max_headers = 5\nprot = 1\n")
        broker.signal(signal.SIGHUP)
        broker.wait_for_log("nothing changed: unknown setting 'prot' .* line 2.: did you mean 'port'")
        assert first_answer_to_headers(broker, 10).startswith(b"CONNECTED")
        logged = [line for line in broker.log_text().splitlines()[before:] if "SIGHUP" in line]
        assert len(logged) == 1


def test_changed_settings_that_need_a_restart_are_named(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text("log_level = 'info'\n")
    with BrokerProcess(config=file) as broker:
        file.write_text("wildcards = 'segment'\nids = 'sequential'\nport = 1\n")
        broker.signal(signal.SIGHUP)
        broker.wait_for_log("these changed settings need a restart: wildcards, ids$")


def test_the_command_line_wins_over_a_reloaded_file_too(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text("")
    with BrokerProcess(config=file, max_headers=20) as broker:
        file.write_text("max_headers = 5\n")
        broker.signal(signal.SIGHUP)
        broker.wait_for_log("SIGHUP: read")
        assert first_answer_to_headers(broker, 10).startswith(b"CONNECTED")


def test_sighup_without_a_file_only_logs() -> None:
    with BrokerProcess() as broker:
        broker.signal(signal.SIGHUP)
        broker.wait_for_log("SIGHUP: no settings file was named; nothing to reload")
        assert broker.alive


def test_sighup_changes_the_log_level(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text("")
    with BrokerProcess(config=file) as broker:
        file.write_text("debug = true\n")
        broker.signal(signal.SIGHUP)
        broker.wait_for_log("SIGHUP: read")
        assert first_answer_to_headers(broker, 1).startswith(b"CONNECTED")
        broker.wait_for_log("DEBUG")


def test_sighup_changes_the_format_of_the_log(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text("")
    with BrokerProcess(config=file) as broker:
        file.write_text("log_format = 'json'\n")
        broker.signal(signal.SIGHUP)
        broker.wait_for_log("SIGHUP: read")
        assert json.loads(broker.log_text().splitlines()[-1])["message"] == f"SIGHUP: read {file} again"
        file.write_text("log_format = 'text'\n")
        broker.signal(signal.SIGHUP)
        broker.wait_for_log("Z INFO  SIGHUP: read")
