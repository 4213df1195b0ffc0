"""`run` and `run_default`, compatible with the Python module of C stompica, the broker that this one succeeds."""

from __future__ import annotations

from stompica.server import serve

_NUMBERS = ("processors", "port", "max_input_queue_size", "max_stale_queue_size", "TTL")


def run(*numbers: int) -> None:
    """Runs a broker until a signal ends it: `run(processors, port, max_input_queue_size, max_stale_queue_size, TTL)`.

    Takes five whole numbers, TTL in milliseconds; 0 means the default: port 61613, as many writers as cores. Blocks. In
    the main thread it handles SIGTERM, SIGINT and SIGHUP while it runs. TypeError for anything but five whole numbers,
    ConfigError for one that is out of range.
    """
    if len(numbers) != len(_NUMBERS) or any(type(number) is not int for number in numbers):
        got = ", ".join(type(number).__name__ for number in numbers) or "nothing"
        raise TypeError(f"run() takes five whole numbers: {', '.join(_NUMBERS)}; it got {got}")
    given = zip(_NUMBERS, numbers, strict=True)
    serve([(key, str(number), "argument of run") for key, number in given if number != 0])


def run_default() -> None:
    """Runs a broker with the defaults until a signal ends it: `run(0, 0, 0, 0, 0)`."""
    run(0, 0, 0, 0, 0)
