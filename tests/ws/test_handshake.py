"""RFC 6455, section 4: the opening handshake, and the Origin rules of docs/behaviour.md, section 4."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.support import frames
from tests.support.clients import StartBroker
from tests.support.process import BrokerProcess
from tests.support.ws import PING, TEXT, RawStream, Response, WebSocket, encode_frame, handshake_request

SAMPLE_KEY = "dGhlIHNhbXBsZSBub25jZQ=="
SAMPLE_ACCEPT = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


def upgrade(broker: BrokerProcess, **variation: Any) -> Response:
    """Returns the response to one handshake request on a new connection."""
    with RawStream(broker.port) as stream:
        stream.send(handshake_request(port=broker.port, **variation))
        return stream.read_response()


def refused(broker: BrokerProcess, *statuses: int, **variation: Any) -> Response:
    """As `upgrade`; the response must have one of these statuses, be complete, and be followed by the end."""
    with RawStream(broker.port) as stream:
        stream.send(handshake_request(port=broker.port, **variation))
        response = stream.read_response()
        assert response.status in statuses, response
        assert response.header("Content-Length") is not None, "the client needs it to find the end"
        assert "close" in (response.header("Connection") or "").lower().split(", ")
        stream.expect_eof()
        return response


# 4.2.2: what the server answers


def test_4_2_2_response_has_upgrade_connection_and_the_accept_of_the_sample_key(broker: BrokerProcess) -> None:
    response = upgrade(broker, key=SAMPLE_KEY)
    assert response.status == 101
    assert (response.header("Upgrade") or "").lower() == "websocket"
    assert (response.header("Connection") or "").lower() == "upgrade"
    assert response.all("Sec-WebSocket-Accept") == [SAMPLE_ACCEPT]


@pytest.mark.parametrize("path", ["/", "/ws", "/stomp", "/stomp/websocket", "/a/b?token=x&y=%20", "/%C3%A4"])
def test_4_2_2_every_path_is_upgraded(broker: BrokerProcess, path: str) -> None:
    with WebSocket.open(broker.port, path=path) as client:
        client.connect()


@pytest.mark.parametrize(
    "variation",
    [
        {"upgrade": "WebSocket"},
        {"upgrade": "WEBSOCKET"},
        {"connection": "upgrade"},
        {"connection": "keep-alive, Upgrade"},
        {"connection": "Upgrade,keep-alive"},
        {"headers": [("User-Agent", "x"), ("Cookie", "a=b; c=d"), ("Accept-Encoding", "gzip, deflate, br")]},
    ],
    ids=["camel-case", "upper-case", "lower-case", "in-a-list", "first-in-a-list", "other-headers"],
)
def test_4_2_1_tokens_are_case_insensitive_and_other_headers_ignored(
    broker: BrokerProcess, variation: dict[str, Any]
) -> None:
    assert upgrade(broker, **variation).status == 101


def test_4_2_1_header_names_are_case_insensitive(broker: BrokerProcess) -> None:
    request = handshake_request(port=broker.port)
    head, _, rest = request.partition(b"\r\n")
    lines = [line.partition(b":") for line in rest.split(b"\r\n")]
    lowered = b"\r\n".join(name.lower() + colon + value for name, colon, value in lines)
    with RawStream(broker.port) as stream:
        stream.send(head + b"\r\n" + lowered)
        assert stream.read_response().status == 101


def test_4_2_1_white_space_around_header_values_is_optional(broker: BrokerProcess) -> None:
    request = handshake_request(port=broker.port)
    head, _, rest = request.partition(b"\r\n")
    padded = rest.replace(b": ", b":\t  ").replace(b"\r\n", b" \t\r\n", 5)
    with RawStream(broker.port) as stream:
        stream.send(head + b"\r\n" + padded)
        response = stream.read_response()
        assert (response.status, response.header("Sec-WebSocket-Accept")) == (101, SAMPLE_ACCEPT)


def test_4_request_may_come_byte_by_byte(broker: BrokerProcess) -> None:
    with RawStream(broker.port) as stream:
        stream.send_bytewise(handshake_request(port=broker.port, subprotocols=["v12.stomp"]))
        assert stream.read_response().status == 101
        WebSocket(stream).connect()


@pytest.mark.parametrize("cut", [1, 3, 4, 5, 14, 16, 40, -1, -2, -3])
def test_4_request_may_be_split_at_any_byte(broker: BrokerProcess, cut: int) -> None:
    request = handshake_request(port=broker.port)
    with RawStream(broker.port) as stream:
        stream.send(request[:cut])
        stream.send(request[cut:])
        assert stream.read_response().status == 101
        WebSocket(stream).connect()


def test_4_frames_may_follow_the_request_in_the_same_segment(broker: BrokerProcess) -> None:
    with RawStream(broker.port) as stream:
        early = encode_frame(TEXT, frames.connect()) + encode_frame(PING, b"now")
        stream.send(handshake_request(port=broker.port) + early)
        assert stream.read_response().status == 101
        client = WebSocket(stream)
        client.expect("CONNECTED", version="1.2")
        assert client.recv_pong() == b"now"


# 4.2.2 /subprotocol/, 1.9


@pytest.mark.parametrize(
    ("requested", "chosen"),
    [
        ([], None),
        (["v12.stomp"], "v12.stomp"),
        (["v11.stomp"], "v11.stomp"),
        (["v10.stomp"], "v10.stomp"),
        (["v10.stomp", "v11.stomp", "v12.stomp"], "v12.stomp"),
        (["v12.stomp", "v11.stomp", "v10.stomp"], "v12.stomp"),
        (["v10.stomp", "v11.stomp"], "v11.stomp"),
        (["mqtt", "v11.stomp", "wamp"], "v11.stomp"),
        (["mqtt"], None),
        (["V12.STOMP"], None),
        (["v13.stomp", "v12.stompx"], None),
    ],
)
def test_4_2_2_best_known_subprotocol_is_chosen(
    broker: BrokerProcess, requested: list[str], chosen: str | None
) -> None:
    response = upgrade(broker, subprotocols=requested)
    assert response.status == 101
    assert response.all("Sec-WebSocket-Protocol") == ([] if chosen is None else [chosen])


def test_4_1_subprotocols_may_be_spread_over_several_header_lines(broker: BrokerProcess) -> None:
    lines = [("Sec-WebSocket-Protocol", name) for name in ("mqtt", "v10.stomp", "v12.stomp, v11.stomp")]
    assert upgrade(broker, headers=lines).all("Sec-WebSocket-Protocol") == ["v12.stomp"]


@pytest.mark.parametrize("subprotocols", [[], ["v12.stomp"], ["v10.stomp"], ["mqtt"]])
def test_session_works_with_any_requested_subprotocols(broker: BrokerProcess, subprotocols: list[str]) -> None:
    with WebSocket.open(broker.port, subprotocols=subprotocols) as client:
        client.connect("1.0,1.1,1.2")


def test_9_1_unsupported_extension_is_declined(broker: BrokerProcess) -> None:
    offer = [("Sec-WebSocket-Extensions", "permessage-deflate; client_max_window_bits")]
    response = upgrade(broker, headers=offer)
    assert response.status == 101
    assert response.all("Sec-WebSocket-Extensions") == []


# 4.2.1, 4.4: what is refused


@pytest.mark.parametrize(
    "key",
    [None, "", "short", "dGhlIHNhbXBsZSBub25j", "dGhlIHNhbXBsZSBub25jZQ", "!" * 24, "dGhlIHNhbXBsZSBub25jZSE0NTY="],
)
def test_4_2_1_key_must_be_sixteen_bytes_in_base64(broker: BrokerProcess, key: str | None) -> None:
    refused(broker, 400, key=key)


@pytest.mark.parametrize("version", ["0", "7", "8", "12", "14", "99", "abc", "13, 8"])
def test_4_4_unknown_version_gets_426_and_the_supported_version(broker: BrokerProcess, version: str) -> None:
    response = refused(broker, 426, version=version)
    assert response.all("Sec-WebSocket-Version") == ["13"]


def test_4_2_1_version_is_required(broker: BrokerProcess) -> None:
    refused(broker, 400, 426, version=None)


@pytest.mark.parametrize("method", ["POST", "PUT", "HEAD", "OPTIONS", "DELETE"])
def test_4_2_1_method_must_be_get(broker: BrokerProcess, method: str) -> None:
    with RawStream(broker.port) as stream:
        stream.send(handshake_request(port=broker.port, method=method))
        head = stream.take_until(b"\r\n\r\n").decode()
        assert 400 <= int(head.split(" ")[1]) < 500, head


def test_4_2_1_method_post_is_405(broker: BrokerProcess) -> None:
    response = refused(broker, 405, method="POST")
    assert "GET" in (response.header("Allow") or "")


def test_4_2_1_http_1_0_is_refused(broker: BrokerProcess) -> None:
    refused(broker, 400, 426, 505, http="HTTP/1.0")


def test_4_2_1_host_is_required(broker: BrokerProcess) -> None:
    refused(broker, 400, host=None)


@pytest.mark.parametrize(
    "variation",
    [{"upgrade": None}, {"upgrade": "h2c"}, {"connection": None}, {"connection": "keep-alive"}],
    ids=["no-upgrade", "other-upgrade", "no-connection", "other-connection"],
)
def test_4_2_1_upgrade_and_connection_are_required(broker: BrokerProcess, variation: dict[str, Any]) -> None:
    refused(broker, 400, 404, 405, 426, path="/ws", **variation)


@pytest.mark.parametrize(
    "request_head",
    [
        b"GET /\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHo st: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\x00b\r\n\r\n",
        b"GET  HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
    ids=["no-version", "version-9.9", "no-colon", "space-in-name", "nul", "no-path"],
)
def test_4_2_1_malformed_request_gets_a_complete_response(broker: BrokerProcess, request_head: bytes) -> None:
    with RawStream(broker.port) as stream:
        stream.send(request_head)
        assert stream.read_response().status in (400, 505)
        stream.expect_eof()


def test_10_4_oversize_head_gets_431(broker: BrokerProcess) -> None:
    refused(broker, 431, headers=[("Cookie", "c" * 20_000)])


def test_10_4_oversize_head_without_end_gets_431(broker: BrokerProcess) -> None:
    with RawStream(broker.port) as stream:
        stream.send(b"GET / HTTP/1.1\r\nHost: x\r\nCookie: " + b"c" * 20_000)
        assert stream.read_response().status == 431
        stream.expect_eof()


def test_10_4_too_many_headers_get_a_complete_response(broker: BrokerProcess) -> None:
    refused(broker, 400, 431, headers=[(f"X-{at}", "y") for at in range(500)])


def test_10_4_oversize_path_gets_a_complete_response(broker: BrokerProcess) -> None:
    refused(broker, 414, 431, path="/" + "p" * 20_000)


def test_each_key_gets_its_own_accept_value(broker: BrokerProcess) -> None:
    first, second = (
        upgrade(broker, key=base64.b64encode(bytes([fill]) * 16).decode()).header("Sec-WebSocket-Accept")
        for fill in (0, 255)
    )
    assert first != second


# 10.2, docs/behaviour.md, section 4: Origin


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("127.0.0.1:{port}", None),
        ("127.0.0.1:{port}", "http://127.0.0.1:{port}"),
        ("127.0.0.1:{port}", "http://127.0.0.1"),
        ("127.0.0.1:{port}", "http://127.0.0.1:8080"),
        ("127.0.0.1:{port}", "https://127.0.0.1"),
        ("127.0.0.1:{port}", "http://localhost:8080"),
        ("localhost:{port}", "http://127.0.0.1:5173"),
        ("localhost:{port}", "http://[::1]:5173"),
        ("[::1]:{port}", "http://localhost"),
        ("LOCALHOST:{port}", "http://localhost:1"),
        ("broker.example:{port}", "https://broker.example"),
        ("broker.example", "https://Broker.Example:8443"),
    ],
)
def test_10_2_origin_of_the_same_host_or_none_is_accepted(broker: BrokerProcess, host: str, origin: str | None) -> None:
    named = None if origin is None else origin.format(port=broker.port)
    assert upgrade(broker, host=host.format(port=broker.port), origin=named).status == 101


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "http://evil.example",
        "http://127.0.0.1.evil.example",
        "http://evil.example/127.0.0.1",
        "http://127.0.0.1@evil.example",
        "http://128.0.0.1",
        "http://xlocalhost",
        "http://localhost.example",
        "",
        "127.0.0.1",
        "file://",
    ],
)
def test_10_2_origin_of_another_host_gets_403(broker: BrokerProcess, origin: str) -> None:
    refused(broker, 403, 400, origin=origin)


def test_10_2_foreign_origin_gets_403(broker: BrokerProcess) -> None:
    refused(broker, 403, origin="https://evil.example")


def test_10_2_loopback_origin_is_foreign_to_a_named_host(broker: BrokerProcess) -> None:
    refused(broker, 403, host="broker.example", origin="http://localhost:3000")


def test_10_2_ws_origins_allows_exactly_the_listed_origins(start_broker: StartBroker) -> None:
    broker = start_broker(ws_origins="https://app.example,http://other.example:8080")
    assert upgrade(broker, origin="https://app.example").status == 101
    assert upgrade(broker, origin="http://other.example:8080").status == 101
    assert upgrade(broker).status == 101, "programs send no Origin"
    assert upgrade(broker, origin="https://evil.example").status == 403
    assert upgrade(broker, origin="http://other.example:8081").status == 403
    assert upgrade(broker, origin="null").status == 403


# docs/behaviour.md, section 2


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_plain_http_health_answers_200(broker: BrokerProcess, path: str) -> None:
    with RawStream(broker.port) as stream:
        stream.send(b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % path.encode())
        assert stream.read_response().status == 200
        stream.expect_eof()


@pytest.mark.parametrize("path", ["/nothing-here", "/ws"])
def test_plain_http_to_other_paths_gets_a_4xx(broker: BrokerProcess, path: str) -> None:
    with RawStream(broker.port) as stream:
        stream.send(b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % path.encode())
        assert 400 <= stream.read_response().status < 500
        stream.expect_eof()
