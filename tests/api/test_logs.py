"""The log on stderr: as text, as JSON, and with readers that fail."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from datetime import datetime
from typing import IO

import pytest

from stompica import logs
from tests.support.process import BrokerProcess

ENVIRONMENT = {key: value for key, value in os.environ.items() if not key.startswith("STOMPICA_")}


def test_text_lines_have_timestamps_and_levels() -> None:
    with BrokerProcess() as broker:
        broker.wait_for_log("writers=")
        lines = broker.log_text().splitlines()
    for line in lines:
        assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (DEBUG|INFO |WARN |ERROR) \S", line), line


def test_json_lines_are_objects() -> None:
    with BrokerProcess(log_format="json") as broker:
        broker.terminate()
        broker.wait()
        records = [json.loads(line) for line in broker.log_text().splitlines()]
    assert records[1]["message"].startswith("listening on ") and records[1]["level"] == "info"
    assert all(datetime.fromisoformat(record["time"].replace("Z", "+00:00")) for record in records)


def test_debug_logs_frames_but_no_passcode() -> None:
    with BrokerProcess(debug=1) as broker, socket.create_connection(("127.0.0.1", broker.port), timeout=20) as client:
        client.sendall(b"CONNECT\naccept-version:1.2\nhost:x\nlogin:anna\npasscode:hush-hush\n\n\0")
        assert client.recv(4096).startswith(b"CONNECTED")
        broker.wait_for_log("CONNECT")
        broker.terminate()
        broker.wait()
        assert "hush-hush" not in broker.log_text() and "anna" in broker.log_text()


def test_a_record_is_one_line_whatever_it_contains() -> None:
    record: logs.Record = (0.0, "warn", "bad destination", [("destination", "/a\n2030-01-01 INFO forged\x1b[2J")])
    assert logs.render_text(record) == (
        "1970-01-01T00:00:00.000Z WARN  bad destination destination=/a\\n2030-01-01 INFO forged\\x1b[2J"
    )
    assert "\n" not in logs.render_json(record)
    assert json.loads(logs.render_json(record))["destination"] == record[3][0][1]


def test_json_escapes_what_is_not_printable_and_stays_readable() -> None:
    """Some readers take U+0085 and U+2028 for the end of a line, and a terminal acts on U+009B."""
    text = "\x9b2J\x85\u2028\x7f\U000e0001 é €"
    line = logs.render_json((0.0, "warn", text, []))
    assert line.isprintable() and "é €" in line
    assert json.loads(line)["message"] == text


def session(port: int) -> None:
    """Makes one connection whose frames are all logged: about 20 KB."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        client.sendall(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0")
        assert client.recv(4096).startswith(b"CONNECTED")
        for _ in range(50):
            client.sendall(b"SEND\ndestination:/topic/x\nfiller:" + b"y" * 300 + b"\n\n\0")
        client.sendall(b"SEND\ndestination:/topic/x\nreceipt:last\n\n\0")
        assert b"receipt-id:last" in client.recv(4096)


def address(log: IO[bytes]) -> int:
    """Returns the port, once it is logged; the rest of the log stays unread."""
    while True:
        line = log.readline()
        assert line, "the broker ended"
        found = re.search(rb"listening on \S+:(\d+)", line)
        if found:
            return int(found[1])


@pytest.mark.parametrize("reader", ["closes", "stalls", "stalls-nonblocking"])
def test_a_failing_reader_of_the_log_does_not_stop_the_broker(reader: str) -> None:
    """A pipe holds 64 KiB; the sessions log far more. The broker continues, and still ends on a signal."""
    out, into = os.pipe()
    os.set_blocking(into, reader != "stalls-nonblocking")
    command = [sys.executable, "-m", "stompica", "port=0", "debug=1"]
    with (
        os.fdopen(out, "rb", buffering=0) as log,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=into, env=ENVIRONMENT) as process,
    ):
        os.close(into)
        port = address(log)
        if reader == "closes":
            log.close()
        for _ in range(20):
            session(port)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_a_closed_log_descriptor_is_not_written_again() -> None:
    out, into = os.pipe()
    os.close(out)
    os.close(into)
    sink = logs.StderrSink("text", into)
    sink([(0.0, "info", "lost", [])])
    sink([(0.0, "info", "lost too", [])])


def test_without_stderr_a_bad_setting_still_sets_the_exit_status() -> None:
    command = ["/bin/sh", "-c", 'exec "$0" -m stompica port=x 2>&-', sys.executable]
    assert subprocess.run(command, env=ENVIRONMENT, timeout=60).returncode == 2
