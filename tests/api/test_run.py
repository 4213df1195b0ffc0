"""`run` and `run_default`, the functions of C stompica's module: five numbers, blocking until a signal."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import stompica

NAMES = "processors, port, max_input_queue_size, max_stale_queue_size, TTL"


@pytest.mark.parametrize(
    "numbers",
    [
        (),
        (1,),
        (4, 0, 0, 0),
        (4, 0, 0, 0, 0, 0),
        (True, 0, 0, 0, 0),
        ("4", 0, 0, 0, 0),
        (4, 0, 0, 0, 1.0),
        (4, 0, 0, 0, None),
    ],
)
def test_anything_but_five_integers_is_a_type_error(numbers: tuple[int, ...]) -> None:
    with pytest.raises(TypeError, match=f"five whole numbers: {NAMES}; it got "):
        stompica.run(*numbers)


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ((4, 70000, 0, 0, 0), "setting 'port' (value '70000', argument of run): must be a whole number, 0 to 65535"),
        ((-1, 0, 0, 0, 0), "setting 'processors' (value '-1', argument of run): must be a whole number, 0 to 66"),
        (
            (0, 0, 0, 0, -5),
            "setting 'TTL' (value '-5', argument of run): must be a time, 0 to 365d (a bare number is in ms)",
        ),
    ],
)
def test_a_number_out_of_range_is_a_config_error(numbers: tuple[int, ...], message: str) -> None:
    with pytest.raises(stompica.ConfigError) as caught:
        stompica.run(*numbers)
    assert str(caught.value) == message


@contextmanager
def running(code: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A Python process that runs this code, and its log up to the line with the limits."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("STOMPICA_")}
    with subprocess.Popen(
        [sys.executable, "-c", code], stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        try:
            assert process.stderr is not None
            log = ""
            while "writers=" not in log:
                line = process.stderr.readline()
                assert line, log
                log += line
            yield process, log
        finally:
            process.kill()


@pytest.fixture
def port() -> int:
    """A port that was free a moment ago: `run` has no way to request a free one."""
    with stompica.Broker() as broker:
        return broker.port


def test_run_blocks_until_a_signal(port: int) -> None:
    code = f"import stompica; stompica.run(5, {port}, 1000, 1000, 0); print('after', flush=True)"
    with running(code) as (process, log):
        assert f"listening on 127.0.0.1:{port} " in log and "writers=3 " in log
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_run_ignores_the_environment_and_restores_signal_handlers(port: int) -> None:
    code = (
        "import os, signal, stompica\n"
        "os.environ['STOMPICA_WRITERS'] = '7'\n"
        f"before = signal.getsignal(signal.SIGTERM)\nstompica.run(3, {port}, 0, 0, 0)\n"
        "assert signal.getsignal(signal.SIGTERM) is before\n"
    )
    with running(code) as (process, log):
        assert re.search(r"writers=1 ", log)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
