"""The broker as a process of its own on a free port."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

START_TIMEOUT = 30.0
"""Seconds until a broker that has not logged its address counts as failed."""

_LISTENING = re.compile(r"listening on (\S+):(\d+)")


class BrokerProcess:
    """`python -m stompica port=0 …`, started on entering the context (or by `start`), always reaped on leaving it.

    `settings` become `key=value` arguments; `args` go before them as they are; `env` is added to the environment,
    from which every STOMPICA_ variable is taken out first; `descriptors` is the process's `ulimit -n`.
    """

    def __init__(
        self,
        *,
        args: Sequence[str] = (),
        env: dict[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        descriptors: int | None = None,
        **settings: object,
    ) -> None:
        settings = {"port": 0, "host": "127.0.0.1", **settings}
        self.settings = settings
        self.command = [sys.executable, "-m", "stompica", *args, *(f"{key}={value}" for key, value in settings.items())]
        if descriptors is not None:
            self.command = ["/bin/sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh", *self.command]
        self._env = {key: value for key, value in os.environ.items() if not key.startswith("STOMPICA_")} | (env or {})
        self._cwd = cwd
        self._process: subprocess.Popen[str] | None = None
        self._lines: list[str] = []
        self._changed = threading.Condition()
        self._log_ended = False
        self._reader: threading.Thread | None = None
        self.host = ""
        self.port = 0

    def start(self) -> BrokerProcess:
        """Starts the process and returns when it has logged its address."""
        self._process = subprocess.Popen(
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=self._env,
            cwd=self._cwd,
        )
        self._reader = threading.Thread(target=self._collect, daemon=True)
        self._reader.start()
        try:
            found = self.wait_for_log(_LISTENING, START_TIMEOUT)
        except AssertionError:
            self.kill()
            raise
        self.host, self.port = found.group(1), int(found.group(2))
        return self

    def __enter__(self) -> BrokerProcess:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _collect(self) -> None:
        assert self._process is not None and self._process.stderr is not None
        with self._process.stderr as log:
            for line in log:
                with self._changed:
                    self._lines.append(line)
                    self._changed.notify_all()
        with self._changed:
            self._log_ended = True
            self._changed.notify_all()

    def _running(self) -> subprocess.Popen[str]:
        assert self._process is not None, "not started"
        return self._process

    @property
    def pid(self) -> int:
        """The process id."""
        return self._running().pid

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._running().poll() is None

    def log_text(self) -> str:
        """Returns everything that is on stderr so far."""
        with self._changed:
            return "".join(self._lines)

    def wait_for_log(self, pattern: str | re.Pattern[str], timeout: float = 20.0) -> re.Match[str]:
        """Returns the first match of `pattern` in a line of stderr, and waits for it."""
        pattern = re.compile(pattern)
        deadline = time.monotonic() + timeout
        seen = 0
        with self._changed:
            while True:
                for line in self._lines[seen:]:
                    found = pattern.search(line)
                    if found:
                        return found
                seen = len(self._lines)
                left = deadline - time.monotonic()
                log = "".join(self._lines)
                assert not self._log_ended, f"{self.command} ended without {pattern.pattern!r}:\n{log}"
                assert left > 0, f"no {pattern.pattern!r} within {timeout} s:\n{log}"
                self._changed.wait(left)

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal."""
        self._running().send_signal(number)

    def terminate(self) -> None:
        """Sends SIGTERM, which asks for an ordered end; `wait` waits for it."""
        self.signal(signal.SIGTERM)

    def wait(self, timeout: float = 30.0) -> int:
        """Returns the exit status; fails if the process still runs after `timeout` seconds."""
        process = self._running()
        try:
            status = process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {timeout} s:\n{self.log_text()}") from None
        self._join()
        return status

    def log_of_ordered_end(self) -> str:
        """Asks for an ordered end, which must come with status 0; returns the whole log."""
        self.terminate()
        assert self.wait() == 0
        return self.log_text()

    def kill(self) -> None:
        """Sends SIGKILL and reaps the process."""
        process = self._running()
        process.kill()
        process.wait()
        self._join()

    def stop(self) -> None:
        """Ends the process by SIGTERM, or by SIGKILL if it does not end."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._join()

    def _join(self) -> None:
        if self._reader is not None:
            self._reader.join(5)
