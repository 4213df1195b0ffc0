"""Limits: a client that exceeds one gets an ERROR, other clients are not affected.

See docs/behaviour.md, sections 1 and 7; docs/specification.md, item 46.
"""

from __future__ import annotations

import socket

import pytest

from tests.support import frames
from tests.support.clients import Clients, StartBroker
from tests.support.frames import VERSIONS
from tests.support.process import BrokerProcess
from tests.support.wire import Wire

SMALL = {"max_message_size": 1000, "max_header_size": 200, "max_headers": 10}


@pytest.fixture
def small(shared_broker: StartBroker) -> BrokerProcess:
    """A broker with small limits for messages and headers."""
    return shared_broker(**SMALL)


@pytest.fixture
def limited(client: Clients, small: BrokerProcess, version: str) -> Wire:
    """A client, of the version by which the test is parametrised, of a broker with small limits."""
    return client(version, to=small)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("counted", [True, False], ids=["counted", "uncounted"])
def test_a_body_of_exactly_the_limit_is_accepted(limited: Wire, topic: str, counted: bool) -> None:
    limited.subscribe(topic)
    build = frames.send_counted if counted else frames.send
    limited.send(build(topic, "x" * 1000))
    limited.expect_message("x" * 1000)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [1001, 5000, 3_000_000])
@pytest.mark.parametrize("counted", [True, False], ids=["counted", "uncounted"])
def test_a_larger_body_is_an_error(
    client: Clients, limited: Wire, small: BrokerProcess, topic: str, size: int, counted: bool
) -> None:
    bystander = client(to=small)
    bystander.subscribe(topic)
    build = frames.send_counted if counted else frames.send
    limited.send(build(topic, "x" * size, ("receipt", "r")))
    limited.expect_error("E-MESSAGE-SIZE", receipt_id="r")
    bystander.barrier()


@pytest.mark.parametrize(
    ("sent", "codes"),
    [
        pytest.param("SEND\ndestination:TOPIC\ncontent-length:1001\n\n", ["E-MESSAGE-SIZE"], id="content-length"),
        pytest.param("SEND\ndestination:TOPIC\n\n" + "x" * 1001, ["E-MESSAGE-SIZE"], id="body"),
        pytest.param("SEND\ndestination:TOPIC\nk:" + "v" * 200, ["E-HEADER-SIZE"], id="header line"),
        pytest.param("A" * 201, ["E-HEADER-SIZE", "E-COMMAND"], id="command"),
    ],
)
def test_an_oversized_frame_is_refused_before_its_end(
    client: Clients, small: BrokerProcess, topic: str, sent: str, codes: list[str]
) -> None:
    wire = client(to=small)
    wire.send(sent.replace("TOPIC", topic).encode())
    wire.expect_error(*codes)


def test_the_default_limit_of_a_body_is_16_mib(client: Clients, topic: str) -> None:
    wire = client()
    wire.send(f"SEND\ndestination:{topic}\ncontent-length:{(16 << 20) + 1}\n\n".encode())
    wire.expect_error("E-MESSAGE-SIZE")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_header_line_of_exactly_the_limit_is_accepted(limited: Wire, topic: str) -> None:
    limited.subscribe(topic)
    limited.send(frames.send(topic, "x", ("k", "v" * 198)))
    limited.expect_message("x", k="v" * 198)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [199, 2_000, 2_000_000])
def test_a_longer_header_line_is_an_error(limited: Wire, topic: str, size: int) -> None:
    limited.send(frames.send(topic, "x", ("k", "v" * size)))
    limited.expect_error("E-HEADER-SIZE")


def test_an_endless_command_before_connect_is_refused(client: Clients, small: BrokerProcess) -> None:
    wire = client.raw(small)
    wire.send(b"A" * 70_000)
    wire.expect_error("E-HEADER-SIZE", "E-COMMAND", "E-LOGIN-SIZE")


def test_the_default_limit_of_a_header_line_is_10_kib(client: Clients, topic: str) -> None:
    wire = client()
    wire.subscribe(topic)
    fits = "v" * (10 * 1024 - 2)
    wire.send(frames.send(topic, "x", ("k", fits)))
    wire.expect_message("x", k=fits)
    wire.send(frames.send(topic, "x", ("k", fits + "v")))
    wire.expect_error("E-HEADER-SIZE")


@pytest.mark.parametrize("version", VERSIONS)
def test_exactly_as_many_headers_as_allowed_are_accepted(limited: Wire, topic: str) -> None:
    limited.subscribe(topic)
    pairs = [(f"k{number}", "v") for number in range(9)]
    limited.send(frames.send(topic, "x", *pairs))
    message = limited.expect_message("x")
    assert [pair for pair in message.headers if pair in pairs] == pairs


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("count", [10, 11, 1000])
def test_more_headers_are_an_error(limited: Wire, topic: str, count: int) -> None:
    limited.send(frames.send(topic, "x", *((f"k{number}", "v") for number in range(count))))
    limited.expect_error("E-HEADER-COUNT")


def test_the_default_limit_of_headers_is_100(client: Clients, topic: str) -> None:
    wire = client()
    wire.subscribe(topic)
    wire.send(frames.send(topic, "x", *((f"k{number}", "v") for number in range(99))))
    wire.expect_message("x", k98="v")
    wire.send(frames.send(topic, "x", *((f"k{number}", "v") for number in range(100))))
    wire.expect_error("E-HEADER-COUNT")


def test_a_frame_before_login_has_at_most_64_kib(client: Clients) -> None:
    wire = client.raw()
    wire.send(frames.connect("1.2", *((f"k{number}", "v" * 900) for number in range(60))))
    wire.expect("CONNECTED")
    wire = client.raw()
    wire.send(frames.connect("1.2", *((f"k{number}", "v" * 900) for number in range(80))))
    wire.expect_error("E-LOGIN-SIZE")


def test_an_endless_frame_before_login_is_refused_before_its_end(client: Clients) -> None:
    wire = client.raw()
    wire.send(b"CONNECT\n", b"".join(b"k%d:%s\n" % (number, b"v" * 900) for number in range(80)))
    wire.expect_error("E-LOGIN-SIZE")


@pytest.mark.parametrize("version", VERSIONS)
def test_more_subscriptions_than_allowed_are_an_error(
    client: Clients, shared_broker: StartBroker, topic: str, version: str
) -> None:
    broker = shared_broker(max_subscriptions=10)
    wire, other = client(version, to=broker), client(version, to=broker)
    for number in range(10):
        wire.subscribe(f"{topic}/{number}", str(number))
        other.subscribe(f"{topic}/{number}", str(number))
    wire.send(frames.unsubscribe("0"))
    wire.subscribe(f"{topic}/again", "again")
    wire.send(frames.subscribe(f"{topic}/more", "more", receipt="r"))
    wire.expect_error("E-SUB-COUNT", receipt_id="r", subscription="more")


def test_more_destinations_than_allowed_are_an_error(client: Clients, start_broker: StartBroker, topic: str) -> None:
    broker = start_broker(max_destinations=10)
    wire, other = client(to=broker), client(to=broker)
    for number in range(10):
        wire.subscribe(f"{topic}/{number}", str(number))
    other.subscribe(f"{topic}/0", "known")
    other.send(frames.subscribe(f"{topic}/new", "new", receipt="r"))
    other.expect_error("E-DEST-COUNT", receipt_id="r")
    wire.send(frames.send(f"{topic}/0", "x"))
    wire.expect_message("x")


def test_more_connections_than_allowed_are_refused_with_an_error(client: Clients, start_broker: StartBroker) -> None:
    broker = start_broker(max_connections=5)
    wires = [client(to=broker) for _ in range(5)]
    for _ in range(3):
        refused = client.raw(broker)
        refused.send(frames.connect("1.2"))
        refused.expect_error("E-CONNECTIONS")
    web = client.raw(broker)
    web.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert _everything(web.sock).startswith(b"HTTP/1.1 503 ")
    for wire in wires:
        wire.barrier()


def test_a_connection_that_ends_makes_room_for_another(client: Clients, start_broker: StartBroker) -> None:
    broker = start_broker(max_connections=2)
    stays = client(to=broker)
    for _ in range(20):
        # Both ends of the last connection may be closed a moment before the broker counts it as ended.
        assert any(connects(client.raw(broker)) for _ in range(100))
    stays.barrier()


def test_a_silent_connection_over_the_limit_is_closed(client: Clients, start_broker: StartBroker) -> None:
    broker = start_broker(max_connections=1)
    stays = client(to=broker)
    silent = client.raw(broker)
    assert all(frame.command == "ERROR" for frame in silent.frames_until_closed())
    stays.barrier()


@pytest.mark.parametrize("said", [b"", b"\n\n", b"CONN", b"CONNECT\naccept-version:1.2\n", b"GET /healthz HT"])
def test_a_client_that_does_not_log_in_in_time_is_closed(
    client: Clients, shared_broker: StartBroker, said: bytes
) -> None:
    broker = shared_broker(login_timeout="1s")
    wire = client.raw(broker)
    wire.send(said)
    wire.sock.settimeout(wire.timeout)
    received = _everything(wire.sock)
    if said.startswith(b"CONN"):
        assert b"\ncode:E-LOGIN-TIMEOUT\n" in received
    elif said.startswith(b"GET"):
        assert received == b"" or received.startswith(b"HTTP/1.1 408 ")


def test_a_slow_login_does_not_prolong_the_timeout(client: Clients, shared_broker: StartBroker) -> None:
    broker = shared_broker(login_timeout="1s")
    clock = client("1.2", to=shared_broker(heartbeat="100,300"), heart_beat="0,100")
    wire = client.raw(broker)
    wire.send(b"CONNECT\naccept-version:1.2\nk:")
    for _ in range(40):
        clock.wait_beats(1)
        try:
            wire.send(b"v")
        except OSError:
            break
        wire.sock.setblocking(False)
        try:
            if wire.sock.recv(1, socket.MSG_PEEK):
                break
        except BlockingIOError:
            pass
    wire.expect("ERROR", code="E-LOGIN-TIMEOUT")


def test_a_session_outlives_the_login_timeout(client: Clients, shared_broker: StartBroker) -> None:
    wire = client("1.2", to=shared_broker(login_timeout="1s"), heart_beat="0,0")
    clock = client("1.2", to=shared_broker(heartbeat="100,300"), heart_beat="0,100")
    clock.wait_beats(15)
    wire.barrier()


def connects(wire: Wire) -> bool:
    """Whether the broker opens a session; it is closed again."""
    wire.send(frames.connect("1.2"))
    if wire.recv_frame().command == "CONNECTED":
        wire.disconnect()
        return True
    wire.expect_closed()
    wire.close()
    return False


def _everything(sock: socket.socket) -> bytes:
    received = b""
    while piece := sock.recv(65536):
        received += piece
    return received
