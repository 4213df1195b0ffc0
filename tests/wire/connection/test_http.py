"""HTTP on the same port: health checks, and a proper 4xx for the rest.

See docs/behaviour.md, section 2. WebSocket has its own tests.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass

import pytest

from tests.support import frames
from tests.support.clients import Clients
from tests.support.wire import Wire

CLIENT_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200)


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


def answer(wire: Wire, *, head_only: bool = False) -> Answer:
    """Reads a response up to the end of the stream, which must come in order, and checks its form."""
    received = b""
    while piece := wire.sock.recv(65536):
        received += piece
    head, _, body = received.partition(b"\r\n\r\n")
    status, *lines = head.decode("ascii").split("\r\n")
    assert status.startswith("HTTP/1.1 "), received
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    assert headers["connection"].lower() == "close", headers
    if head_only:
        assert body == b""
    else:
        assert int(headers["content-length"]) == len(body), received
    return Answer(int(status.split(" ")[1]), headers, body)


def ask(wire: Wire, request: str, **headers: str) -> Answer:
    """Sends a request with Host and these headers; returns the response."""
    lines = [request, "Host: localhost", *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
    wire.send("\r\n".join([*lines, "", ""]).encode())
    return answer(wire, head_only=request.startswith("HEAD "))


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/healthz?verbose=1"])
def test_health_is_ok(client: Clients, path: str) -> None:
    found = ask(client.raw(), f"GET {path} HTTP/1.1")
    assert found.status == 200
    assert found.body
    assert found.headers["content-type"].startswith("text/plain")


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_a_head_request_gets_no_body(client: Clients, path: str) -> None:
    full = ask(client.raw(), f"GET {path} HTTP/1.1")
    found = ask(client.raw(), f"HEAD {path} HTTP/1.1")
    assert found.status == 200
    assert found.headers["content-length"] == str(len(full.body))


def test_http_1_0_is_served(client: Clients) -> None:
    wire = client.raw()
    wire.send(b"GET /healthz HTTP/1.0\r\n\r\n")
    assert answer(wire).status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"])
def test_another_method_is_405_and_allow_lists_the_allowed_ones(client: Clients, method: str) -> None:
    found = ask(client.raw(), f"{method} /healthz HTTP/1.1", Content_Length="0")
    assert found.status == 405
    assert {name.strip() for name in found.headers["allow"].split(",")} == {"GET", "HEAD"}


@pytest.mark.parametrize("path", ["/nothing", "/healthz/x", "/HEALTHZ", "/favicon.ico", "/metrics", "/api/v1/overview"])
def test_an_unknown_path_is_404(client: Clients, path: str) -> None:
    assert ask(client.raw(), f"GET {path} HTTP/1.1").status == 404


@pytest.mark.parametrize("path", ["/", "/ws", "/stomp"])
def test_a_websocket_path_without_upgrade_is_a_4xx(client: Clients, path: str) -> None:
    found = ask(client.raw(), f"GET {path} HTTP/1.1")
    assert found.status in (400, 404, 426)
    if found.status == 426:
        assert found.headers["upgrade"].lower() == "websocket"


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /healthz\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nbad name: x\r\n\r\n",
        b"GET  HTTP/1.1\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\n\r\n",
        b"GET /healthz FTP/1.1\r\n\r\n",
    ],
)
def test_a_malformed_request_is_400(client: Clients, request_bytes: bytes) -> None:
    wire = client.raw()
    wire.send(request_bytes)
    assert answer(wire).status == 400


@pytest.mark.parametrize("version", ["HTTP/2.0", "HTTP/3.0"])
def test_another_http_version_is_refused(client: Clients, version: str) -> None:
    wire = client.raw()
    wire.send(f"GET /healthz {version}\r\nHost: h\r\n\r\n".encode())
    assert answer(wire).status in (400, 505)


def test_a_request_without_host_is_400_in_http_1_1(client: Clients) -> None:
    wire = client.raw()
    wire.send(b"GET /healthz HTTP/1.1\r\n\r\n")
    assert answer(wire).status == 400


@pytest.mark.parametrize(
    ("head", "statuses"),
    [
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n", (414, 431)),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 70_000, (431,)),
        (b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: y\r\n" % number for number in range(3000)), (431,)),
    ],
    ids=["target", "header", "headers"],
)
def test_an_oversized_head_is_refused_before_its_end_comes(
    client: Clients, head: bytes, statuses: tuple[int, ...]
) -> None:
    wire = client.raw()
    wire.send(head)
    assert answer(wire).status in statuses


def test_a_request_may_arrive_byte_by_byte(client: Clients) -> None:
    wire = client.raw()
    wire.send_bytewise(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nUser-Agent: drip\r\n\r\n")
    assert answer(wire).status == 200


def test_a_response_arrives_although_a_request_body_is_unread(client: Clients) -> None:
    wire = client.raw()
    wire.send(b"POST /healthz HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n", b"x" * 1_000_000)
    assert answer(wire).status == 405


def test_connect_with_a_target_is_http_and_without_one_is_stomp(client: Clients) -> None:
    web = client.raw()
    web.send(b"CONNECT example.org:443 HTTP/1.1\r\nHost: example.org\r\n\r\n")
    assert 400 <= answer(web).status < 500
    stomp = client.raw()
    stomp.send(frames.connect("1.2"))
    stomp.expect("CONNECTED")


def test_a_lower_case_method_is_not_http(client: Clients) -> None:
    wire = client.raw()
    wire.send(b"get /healthz http/1.1\n\n\0")
    wire.expect_error("E-COMMAND")


def test_http_does_not_disturb_sessions(client: Clients, topic: str) -> None:
    stomp = client()
    stomp.subscribe(topic)
    for _ in range(50):
        assert ask(client.raw(), "GET /healthz HTTP/1.1").status == 200
    stomp.send(frames.send(topic, "x"))
    stomp.expect_message("x")


@pytest.mark.parametrize("junk", [CLIENT_HELLO, bytes(range(256)), b"\xff" * 64])
def test_tls_or_junk_on_the_plain_port_is_closed(client: Clients, junk: bytes) -> None:
    wire = client.raw()
    wire.send(junk)
    while wire.sock.recv(65536):
        pass
    client().barrier()


def test_a_client_that_leaves_inside_a_request_is_forgotten(client: Clients) -> None:
    for _ in range(20):
        wire = client.raw()
        wire.send(b"GET /healthz HTT")
        wire.sock.shutdown(socket.SHUT_WR)
        while wire.sock.recv(65536):
            pass
