"""A consumer in a process of its own, to be killed: `python consumer.py PORT DESTINATION ACK PREFETCH hold|work`.

It prints `took BODY` for each MESSAGE. With `work` it acknowledges each one and prints `acked BODY` when the RECEIPT
comes; with `hold` it acknowledges none. It needs no packages, so `python -S -E` starts it fast.
"""

import socket
import sys
from collections.abc import Iterator


def frames(sock: socket.socket) -> Iterator[tuple[str, dict[str, str], str]]:
    """Yields command, headers and body of every frame that comes; no header here needs an escape."""
    with sock.makefile("rb") as stream:
        for line in stream:
            command = line.decode().strip()
            if command:
                headers: dict[str, str] = {}
                while pair := stream.readline().decode().rstrip("\n"):
                    name, _, value = pair.partition(":")
                    headers.setdefault(name, value)
                body = stream.read(int(headers.get("content-length", "0"))).decode()
                assert stream.read(1) == b"\0"
                yield command, headers, body


def main(port: str, destination: str, ack: str, prefetch: str, action: str) -> None:
    sock = socket.create_connection(("127.0.0.1", int(port)))
    sock.sendall(
        b"CONNECT\naccept-version:1.2\nhost:localhost\n\n\0"
        b"SUBSCRIBE\nid:0\ndestination:%b\nack:%b\nprefetch-count:%b\n\n\0"
        % (destination.encode(), ack.encode(), prefetch.encode())
    )
    for command, headers, body in frames(sock):
        if command == "MESSAGE":
            print("took", body, flush=True)
            if action == "work":
                sock.sendall(f"ACK\nid:{headers['ack']}\nreceipt:{body}\n\n\0".encode())
        elif command == "RECEIPT":
            print("acked", headers["receipt-id"], flush=True)
        else:
            assert command == "CONNECTED", (command, headers, body)


main(*sys.argv[1:])
