"""Processes that are started to be measured, and listen on loopback."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from stompica.bench import BenchError, disk, procfs

START_MAX_S = 90.0
"""Longest time of a start: some peers are slow."""
STOP_MAX_S = 20.0
ENDING_MAX_S = 0.5

Address = tuple[str, int]


@dataclass(frozen=True)
class Running:
    """A broker that listens."""

    name: str
    version: str
    pid: int
    addresses: Mapping[str, Address]
    """By transport: `tcp`, `ws`."""
    protocol: str = "stomp"
    """`stomp`, `relay`, or a protocol of `bench/peers/bytecount.py`."""
    login: str = ""
    passcode: str = ""
    vhost: str = "localhost"
    """Header `host` of CONNECT."""
    ws_path: str = "/ws"
    close_is_receipt: Sequence[str] = ()
    """Transports over which it closes without sending the RECEIPT of DISCONNECT."""
    diag_url: str | None = None
    writers: int = 0
    """Worker threads; 0: unknown."""
    store: Path | None = None
    """The folder of its store; None if it keeps messages in memory, or is a peer."""
    listens_unix_s: float = 0.0
    """When it began to listen, according to its log; 0: unknown."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Further versions worth recording."""
    ended: Callable[[], str] = lambda: ""
    """How its process ended; empty while it runs."""


class Process:
    """A child process with its own process group, its output in a file. The whole group ends with the context.

    Variables of `environment` are added to those of this process; None removes one.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        environment: Mapping[str, str | None] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self._log = log
        self.shown = command[0]
        variables = {**os.environ, **(environment or {})}
        with log.open("wb") as output:
            try:
                self._child = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={name: value for name, value in variables.items() if value is not None},
                    cwd=cwd,
                    start_new_session=True,
                )
            except OSError as error:
                raise BenchError(f"can't start {command[0]}: {error.strerror}") from None

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._child.pid

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._child.poll() is None

    def ended(self) -> str:
        """How it ended, with the last line it printed; empty while it runs. Waits a moment for a crash to complete."""
        try:
            status = self._child.wait(ENDING_MAX_S)
        except subprocess.TimeoutExpired:
            return ""
        last = self.log(1).strip()
        return (f"by signal {-status}" if status < 0 else f"with status {status}") + (f": {last}" if last else "")

    def log(self, lines: int = 12) -> str:
        """The end of what it printed."""
        return "\n".join(self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])

    def wait_until(self, ready: Callable[[], bool], what: str) -> None:
        """Waits until `ready`. BenchError if the process ends first or it takes too long."""
        deadline = time.monotonic() + START_MAX_S
        while not ready():
            if not self.alive or time.monotonic() > deadline:
                raise BenchError(f"{self.shown} {what}:\n{self.log()}")
            time.sleep(0.02)

    def wait_for_ports(self, ports: Sequence[int]) -> None:
        """Waits until all these ports of loopback accept connections."""
        self.wait_until(lambda: all(map(_listens, ports)), f"does not listen on {', '.join(map(str, ports))}")

    def stop(self) -> None:
        """Terminates the group, and kills it if it does not end."""
        for number, patience in ((signal.SIGTERM, STOP_MAX_S), (signal.SIGKILL, STOP_MAX_S)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(patience)
                break
        # Its children may outlive the first process.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def free_ports(count: int) -> list[int]:
    """Currently unused ports of loopback, for programs that can't choose one themselves."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 1.0):
            return True
    except OSError:
        return False


_LISTENING = re.compile(r"(\S+) INFO +listening on (\S+):(\d+).*\n(?:.*?\bwriters=(?P<writers>\d+) )?")


@dataclass(frozen=True)
class OwnBroker:
    """This broker, as a separate process."""

    python: str = sys.executable
    """The interpreter; another environment may have another version of stompica."""
    writers: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)

    @contextlib.contextmanager
    def start(self, scratch: Path, cores: Sequence[int] = ()) -> Iterator[Running]:
        """Runs it until the context ends. BenchError with the end of its log if it does not start.

        A store without a setting `dir` is in the scratch folder, which has to be on a disk then.
        """
        settings = {"port": "0", "host": "127.0.0.1", **self.settings}
        store = None
        if settings.get("store", "memory") != "memory":
            store = Path(settings.setdefault("dir", str(scratch / "store")))
            disk.check(store.parent)
        if self.writers is not None:
            settings["writers"] = str(self.writers)
        command = [self.python, "-m", "stompica", *(f"{key}={value}" for key, value in settings.items())]
        with procfs.pinned(cores):
            process = Process(command, scratch / "stompica.log", _without_settings())
        with process:
            found: list[re.Match[str]] = []

            def listening() -> bool:
                found.extend(_LISTENING.finditer(process.log(99)))
                return bool(found) and found[-1]["writers"] is not None

            process.wait_until(listening, "does not listen")
            at, host, port, writers = found[-1].groups()
            version = re.search(r"stompica (\d\S*)", process.log(99))
            addresses = {transport: (host, int(port)) for transport in ("tcp", "ws")}
            yield Running(
                "stompica",
                version[1] if version else "",
                process.pid,
                addresses,
                diag_url=f"stomp://{host}:{port}",
                writers=int(writers),
                store=store,
                listens_unix_s=datetime.fromisoformat(at.replace("Z", "+00:00")).timestamp(),
                versions={"python": sys.version.split()[0]} if self.python == sys.executable else {},
                ended=process.ended,
            )


def _without_settings() -> dict[str, str | None]:
    """Removes settings from the environment: the measured broker has only the settings that it is given."""
    return dict.fromkeys(name for name in os.environ if name.startswith("STOMPICA_"))
