"""The `websockets` library as a client: it checks every byte that the broker sends with its own RFC 6455 code."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from websockets.exceptions import ConnectionClosedError, ConnectionClosedOK, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin, Subprotocol

from tests.support import frames
from tests.support.parser import Frame, Parser
from tests.support.process import BrokerProcess

PROTOCOLS = [Subprotocol(name) for name in ("v10.stomp", "v11.stomp", "v12.stomp")]


class Session:
    """STOMP over a connection of the library."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.parser = Parser("1.2")

    def receive(self, timeout: float = 10) -> Frame:
        """Returns the next frame."""
        while (frame := self.parser.next_frame()) is None:
            message = self.connection.recv(timeout)
            self.parser.feed(message.encode() if isinstance(message, str) else message)
        return frame

    def expect(self, command: str, **headers: str) -> Frame:
        """Returns the next frame, which must have this command and these headers."""
        frame = self.receive()
        assert frame.command == command, frame
        for name, value in headers.items():
            assert frame[name.replace("_", "-")] == value, frame
        return frame

    def start(self, topic: str) -> None:
        """Sends CONNECT and a SUBSCRIBE."""
        self.connection.send(frames.connect("1.2").decode())
        self.expect("CONNECTED", version="1.2")
        self.connection.send(frames.subscribe(topic, "0", receipt="ready").decode())
        self.expect("RECEIPT", receipt_id="ready")


@pytest.fixture
def url(broker: BrokerProcess) -> str:
    return f"ws://127.0.0.1:{broker.port}/stomp"


@pytest.fixture
def session(url: str, topic: str) -> Iterator[Session]:
    with connect(url, subprotocols=PROTOCOLS, max_size=None, compression="deflate") as connection:
        session = Session(connection)
        session.start(topic)
        yield session


def test_subprotocol_is_chosen_and_extension_declined(session: Session) -> None:
    """The library offers permessage-deflate by default; it is declined."""
    assert session.connection.subprotocol == "v12.stomp"
    assert session.connection.protocol.extensions == []


@pytest.mark.parametrize("size", [0, 1, 125, 126, 10_000, 65_536, 1 << 20, 16 << 20])
def test_text_comes_back_as_str(session: Session, topic: str, size: int) -> None:
    body = ("\u00e4bcdefgh" * (size // 9 + 1)).encode()[: size - size % 9]
    session.connection.send(frames.send_counted(topic, body).decode())
    assert session.expect("MESSAGE").body == body


@pytest.mark.parametrize("size", [1, 10_000, 1 << 20, 16 << 20])
def test_bytes_come_back_as_bytes(session: Session, topic: str, size: int) -> None:
    body = (bytes(range(256)) * (size // 256 + 1))[:size]
    session.connection.send(frames.send_counted(topic, body))
    assert session.expect("MESSAGE").body == body


def test_fragments_sent_by_the_library_are_processed(session: Session, topic: str) -> None:
    """The library sends an iterable as one message with a frame for each item."""
    body = "\u20ac0123456789" * 1000
    sent = frames.send_counted(topic, body).decode()
    session.connection.send(sent[at : at + 97] for at in range(0, len(sent), 97))
    assert session.expect("MESSAGE").text == body
    octets = frames.send_counted(topic, b"\xff" * 5000)
    session.connection.send(octets[at : at + 101] for at in range(0, len(octets), 101))
    assert session.expect("MESSAGE").body == b"\xff" * 5000


def test_ping_of_the_library_is_answered(session: Session) -> None:
    for payload in (b"", b"payload", bytes(125)):
        assert session.connection.ping(payload).wait(10)


def test_thousand_messages_arrive_in_order(session: Session, topic: str) -> None:
    for at in range(1000):
        session.connection.send(frames.send(topic, f"{at}").decode())
    assert [session.expect("MESSAGE").text for _ in range(1000)] == [f"{at}" for at in range(1000)]


def test_close_of_the_library_is_answered(session: Session) -> None:
    session.connection.close(4000, "enough")
    assert session.connection.close_code == 4000


def test_disconnect_closes_with_1000(session: Session) -> None:
    session.connection.send(frames.disconnect(receipt="bye").decode())
    session.expect("RECEIPT", receipt_id="bye")
    with pytest.raises(ConnectionClosedOK) as closed:
        session.receive()
    assert closed.value.rcvd is not None and closed.value.rcvd.code == 1000


def test_error_closes_with_its_code(session: Session) -> None:
    session.connection.send(frames.unsubscribe("never").decode())
    session.expect("ERROR", code="E-SUB-UNKNOWN")
    with pytest.raises(ConnectionClosedError) as closed:
        session.receive()
    assert closed.value.rcvd is not None and closed.value.rcvd.code == 1002


def test_foreign_origin_is_refused(url: str) -> None:
    with pytest.raises(InvalidStatus) as refused, connect(url, origin=Origin("https://evil.example")):
        pass
    assert refused.value.response.status_code == 403


def test_same_origin_is_accepted(url: str) -> None:
    with connect(url, origin=Origin("http://localhost:8000"), subprotocols=PROTOCOLS) as connection:
        assert connection.subprotocol == "v12.stomp"
