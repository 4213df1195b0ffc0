"""The command line: help, version, options of both styles, the first log lines, a port in use."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import stompica as package
from stompica import _core
from tests.api.command_line import TEXT, CommandLine, effective, refused
from tests.support.process import BrokerProcess
from tests.support.waiting import eventually


def test_help_does_not_break_words(stompica: CommandLine) -> None:
    """A line does not end inside `drop-newest`, as `drop-`."""
    words = " ".join(stompica("--help").stdout.split())
    for setting in _core.settings():
        assert setting.doc in words
        assert setting.accepted is not None or f"Allowed: {setting.allowed}." in words


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_names_every_setting_with_its_default(stompica: CommandLine, option: str) -> None:
    result = stompica(option)
    assert (result.returncode, result.stderr) == (0, "")
    for setting in _core.settings():
        assert f"  {setting.key}={setting.default}\n" in result.stdout
    assert max(len(line) for line in result.stdout.splitlines()) <= 100


def test_version_is_printed(stompica: CommandLine) -> None:
    assert stompica("--version").stdout == f"stompica {package.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["-p", "1"], {"port": 1}),
        (["-p1"], {"port": 1}),
        (["-p=1"], {"port": 1}),
        (["--port", "1"], {"port": 1}),
        (["--port=1"], {"port": 1}),
        (["-b", "::1"], {"host": "::1"}),
        (["--host", "::1"], {"host": "::1"}),
        (["-q", "memory"], {"store": "memory"}),
        (["--queuetype=memory"], {"store": "memory"}),
        (["-s", "x"], {"dir": "x"}),
        (["--storage", "x", "--working_dir", "."], {"dir": "x", "working_dir": "."}),
        (["-d"], {"debug": 1}),
        (["-dp1"], {"debug": 1, "port": 1}),
        (["--debug", "port=1"], {"debug": 1, "port": 1}),
        (["--slow-consumer", "disconnect"], {"slow_consumer": "disconnect"}),
    ],
)
def test_options_of_both_styles_are_accepted(
    stompica: CommandLine, arguments: list[str], shown: dict[str, object]
) -> None:
    result = effective(stompica("config", *arguments))
    assert {key: result[key] for key in shown} == shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-z"], "unknown option '-z': the short options are -p -b -q -w -s -d -a -c -C -h"),
        (["-p"], "setting 'port' (value '', command line): must be a whole number, 0 to 65535"),
        (["-C"], f"setting 'config' (value '', command line): {TEXT}"),
        (["--prot", "1"], "unknown setting 'prot' (value '1', command line): did you mean 'port'?"),
        (["-a"], "setting 'auth' (value '1', command line): not built yet in this version; only 0 is"),
        (
            ["-c", "1d"],
            "setting 'checkpoint' (value '1d', command line): must be 0 (always), or a number of seconds up to 3600",
        ),
        (["3000"], "'3000' is not a setting: write key=value; 'stompica --help' lists the settings"),
        (["sevre"], "'sevre' is not a setting: write key=value; 'stompica --help' lists the settings"),
    ],
)
def test_a_bad_option_is_one_line_and_status_2(stompica: CommandLine, arguments: list[str], message: str) -> None:
    assert refused(stompica(*arguments)) == message


def test_a_port_in_use_is_one_line_and_status_1(stompica: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        message = refused(stompica(f"port={port}"), status=1)
    assert f"port {port}" in message and "in use" in message


def test_an_address_of_another_machine_is_one_line_and_status_1(stompica: CommandLine) -> None:
    message = refused(stompica("port=0", "host=192.0.2.1"), status=1)
    assert "host '192.0.2.1'" in message


def test_the_first_lines_say_version_address_and_limits() -> None:
    with BrokerProcess(writers=3, max_connections=500) as broker:
        broker.wait_for_log("raise 'ulimit -n'")
        lines = [line.split(maxsplit=2)[2] for line in broker.log_text().splitlines()]
    assert lines[0] == f"stompica {package.__version__}"
    assert lines[1].startswith(f"listening on 127.0.0.1:{broker.port} ")
    assert re.match(r"writers=3 max_connections=500 memory_limit=\S+ outbox_limit=32MiB ", lines[2])
    assert lines[3].startswith("max_connections is 500: ")


def test_a_warning_is_logged_for_more_connections_than_descriptors() -> None:
    with BrokerProcess(descriptors=100, max_connections=1000) as broker:
        broker.wait_for_log("max_connections is 1000, but 'ulimit -n' allows only 100: raise that limit")


def test_the_address_is_logged_at_every_log_level() -> None:
    with BrokerProcess(log_level="error") as broker:
        assert broker.port > 0


def test_ipv6_addresses_are_bracketed() -> None:
    with BrokerProcess(host="::1") as broker:
        assert broker.host == "[::1]"
        socket.create_connection(("::1", broker.port)).close()


def test_the_soft_descriptor_limit_is_raised() -> None:
    with BrokerProcess(args=[]) as broker:
        limits = Path(f"/proc/{broker.pid}/limits").read_text()
    soft, hard = re.findall(r"Max open files\s+(\d+)\s+(\d+)", limits)[0]
    assert soft == hard


def test_serve_is_the_default_command() -> None:
    with BrokerProcess(args=["serve"]) as broker:
        assert broker.port > 0


def test_the_console_script_is_the_same_command() -> None:
    script = shutil.which("stompica", path=str(Path(sys.executable).parent))
    assert script is not None
    printed = subprocess.run([script, "--version"], capture_output=True, text=True, check=True, timeout=60)
    assert printed.stdout == f"stompica {package.__version__}\n"


@pytest.mark.parametrize("command", ["--help", "--version", "config"])
def test_output_that_cannot_be_written_is_one_line(command: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "stompica", command],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=30, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "stompica: standard output: No space left on device\n")


def test_a_reader_that_closes_early_causes_no_error() -> None:
    piped = subprocess.run(
        ["/bin/sh", "-c", '"$0" -m stompica --help | head -1', sys.executable],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (piped.returncode, piped.stderr) == (0, "")


def test_a_closed_output_is_no_failure() -> None:
    with BrokerProcess() as broker:
        command = f'"$0" -m stompica diag --address {broker.host}:{broker.port} >&-'
        done = subprocess.run(
            ["/bin/sh", "-c", command, sys.executable], stderr=subprocess.PIPE, text=True, timeout=60
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_the_log_is_never_written_to_a_socket_in_place_of_a_closed_stderr() -> None:
    server = subprocess.Popen(["/bin/sh", "-c", 'exec "$0" -m stompica port=0 <&- >&- 2>&-', sys.executable])
    try:
        folder = Path(f"/proc/{server.pid}")
        eventually(lambda: "stompica-0" in [name.read_text().strip() for name in folder.glob("task/*/comm")], "a start")
        assert {(folder / "fd" / number).readlink() for number in "012"} == {Path(os.devnull)}
    finally:
        server.terminate()
        assert server.wait(30) == 0
