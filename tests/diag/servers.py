"""Servers that are no broker: they send prepared answers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def server(*answers: bytes, lingers: bool = False) -> Iterator[str]:
    """Answers each thing that it reads with the next answer; then closes, or with `lingers` waits for the client's end.

    Yields its address.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                for answer in answers:
                    connection.recv(65536)
                    connection.sendall(answer)
                while lingers and connection.recv(65536):
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        thread.join()
