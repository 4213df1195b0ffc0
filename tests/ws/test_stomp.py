"""STOMP over WebSocket (docs/behaviour.md, sections 3 and 4): how frames map to messages, and how sessions end."""

from __future__ import annotations

import signal

import pytest

from tests.support import frames
from tests.support.clients import Clients, OpenWebSocket, StartBroker
from tests.support.ws import BINARY, CLOSE, PING, TEXT, encode_frame
from tests.ws.cuts import expect_delivered_at_every_cut

# one stream of bytes, independent of message boundaries


def test_one_frame_over_several_messages_is_processed(ws: OpenWebSocket, topic: str) -> None:
    client = ws()
    client.subscribe(topic)
    sent = frames.send_counted(topic, "in three messages")
    client.send_pieces(sent[:7], sent[7:30], sent[30:])
    client.expect_message("in three messages")


def test_one_frame_cut_at_every_byte_into_two_messages_is_processed(ws: OpenWebSocket, topic: str) -> None:
    client = ws()
    expect_delivered_at_every_cut(client, topic, "cut", client.send_pieces)


def test_session_works_with_one_byte_in_each_message(ws: OpenWebSocket, topic: str) -> None:
    client = ws(None)
    client.send_bytewise(frames.connect())
    client.expect("CONNECTED", version="1.2")
    client.version = "1.2"
    client.send_bytewise(frames.subscribe(topic, "0", receipt="r"))
    client.expect_receipt("r")
    client.send_bytewise(frames.send(topic, "bytes"))
    client.expect_message("bytes")


def test_several_frames_in_one_message_are_processed(ws: OpenWebSocket, topic: str) -> None:
    client = ws(None)
    client.send(
        frames.connect(),
        frames.subscribe(topic, "0", receipt="r"),
        frames.send(topic, "one"),
        b"\n\n",
        frames.send(topic, "two"),
    )
    client.expect("CONNECTED", version="1.2")
    client.version = "1.2"
    came = [client.recv_frame() for _ in range(3)]
    assert [frame.text for frame in came if frame.command == "MESSAGE"] == ["one", "two"]
    assert [frame["receipt-id"] for frame in came if frame.command == "RECEIPT"] == ["r"]


def test_frames_that_begin_and_end_inside_messages_are_processed(ws: OpenWebSocket, topic: str) -> None:
    client = ws()
    client.subscribe(topic)
    sent = b"".join(frames.send_counted(topic, f"number {at}") for at in range(100))
    client.send_pieces(*(sent[at : at + 61] for at in range(0, len(sent), 61)))
    for at in range(100):
        client.expect_message(f"number {at}")


def test_frame_over_text_and_binary_messages_is_processed(ws: OpenWebSocket, topic: str) -> None:
    client = ws()
    client.subscribe(topic)
    sent = frames.send_counted(topic, "text and binary")
    client.send_frame(TEXT, sent[:9])
    client.send_frame(BINARY, sent[9:])
    client.expect_message("text and binary")


def test_thousand_frames_in_one_message_and_in_one_segment_are_processed(ws: OpenWebSocket, topic: str) -> None:
    client = ws()
    client.subscribe(topic)
    client.send(*(frames.send(topic, f"{at}") for at in range(1000)))
    client.send_raw(b"".join(encode_frame(TEXT, frames.send(topic, f"{at}")) for at in range(1000, 2000)))
    for at in range(2000):
        client.expect_message(f"{at}")


def test_each_message_of_the_server_holds_complete_frames(ws: OpenWebSocket, topic: str) -> None:
    """Not required, but what the libraries of browsers handle best: no frame extends over several messages."""
    client = ws()
    client.subscribe(topic)
    client.send(*(frames.send(topic, f"{at}") for at in range(100)))
    seen = 0
    while seen < 100:
        message = client.recv_message()
        assert message is not None
        assert message[1].rstrip(b"\n").endswith(b"\0"), message
        seen += message[1].count(b"\0")
    assert seen == 100


@pytest.mark.parametrize("version", frames.VERSIONS)
def test_every_version_works(ws: OpenWebSocket, topic: str, version: str) -> None:
    client = ws(version)
    client.subscribe(topic)
    client.send(frames.send_counted(topic, "body", key="value"))
    client.expect_message("body", key="value")
    client.send(frames.disconnect(receipt="bye"))
    client.expect_receipt("bye")
    client.expect_close(1000)


# how a session ends


def test_disconnect_with_receipt_ends_with_1000(ws: OpenWebSocket) -> None:
    client = ws()
    client.send(frames.disconnect(receipt="bye"))
    client.expect_receipt("bye")
    client.expect_close(1000)


def test_disconnect_without_receipt_ends_with_1000(ws: OpenWebSocket) -> None:
    client = ws()
    client.send(frames.disconnect())
    client.expect_close(1000)


PROTOCOL_ERRORS = {
    "E-COMMAND": frames.frame("HELLO"),
    "E-HEADER": b"SEND\nno colon\n\n\0",
    "E-ESCAPE": frames.send("/topic/a", "", x="\\t"),
    "E-CONTENT-LENGTH": frames.send("/topic/a", "abc", content_length=2),
    "E-BODY": frames.frame("SUBSCRIBE", body="x", destination="/topic/a", id="0"),
    "E-CONNECTED": frames.connect(),
    "E-DEST-MISSING": frames.frame("SEND"),
    "E-DEST-WILDCARD": frames.send("/topic/*", "x"),
    "E-ID-MISSING": frames.subscribe("/topic/a", None),
    "E-SUB-DUPLICATE": frames.subscribe("/topic/a", "x") + frames.subscribe("/topic/b", "x"),
    "E-SUB-UNKNOWN": frames.unsubscribe("never"),
    "E-ACK-MODE": frames.subscribe("/topic/a", "x", ack="perhaps"),
    "E-ACK-UNKNOWN": frames.ack(id="never"),
    "E-TX-MISSING": frames.begin(None),
    "E-TX-UNKNOWN": frames.commit("never"),
}


@pytest.mark.parametrize("code", PROTOCOL_ERRORS)
def test_protocol_error_gets_an_error_and_is_closed_with_1002(ws: OpenWebSocket, code: str) -> None:
    client = ws()
    client.opcode = BINARY
    client.send(PROTOCOL_ERRORS[code])
    client.expect_error_and_close(code, 1002)


@pytest.mark.parametrize(
    ("code", "sent"),
    [
        ("E-NOT-CONNECTED", frames.send("/topic/a", "x")),
        ("E-VERSION", frames.connect("3.0")),
        ("E-HEART-BEAT", frames.connect("1.2", heart_beat="a,b")),
    ],
)
def test_error_before_login_gets_an_error_and_is_closed_with_1002(ws: OpenWebSocket, code: str, sent: bytes) -> None:
    client = ws(None)
    client.send(sent)
    client.expect_error_and_close(code, 1002)


def test_header_that_is_not_utf8_in_a_binary_message_gets_an_error(ws: OpenWebSocket) -> None:
    client = ws()
    client.opcode = BINARY
    client.send(frames.send("/topic/a", "x", ("key", b"\xff")))
    client.expect_error_and_close("E-UTF8", 1002)


def test_use_of_a_missing_feature_is_closed_with_1008(ws: OpenWebSocket) -> None:
    client = ws()
    client.send(frames.subscribe("/topic/a", "0", selector="a = 1"))
    client.expect_error_and_close("E-NOT-SUPPORTED", 1008)


def test_too_many_subscriptions_are_closed_with_1008(ws: OpenWebSocket, shared_broker: StartBroker) -> None:
    client = ws(to=shared_broker(max_subscriptions=2))
    client.send(*(frames.subscribe("/topic/a", f"{at}") for at in range(3)))
    client.expect_error_and_close("E-SUB-COUNT", 1008)


def test_login_timeout_is_closed_with_1008(ws: OpenWebSocket, shared_broker: StartBroker) -> None:
    client = ws(None, to=shared_broker(login_timeout="1500ms"))
    client.expect_error_and_close("E-LOGIN-TIMEOUT", 1008)


def test_error_comes_after_the_frames_before_it(ws: OpenWebSocket, topic: str) -> None:
    client = ws()
    client.subscribe(topic)
    client.send(frames.send(topic, "first", receipt="r"), frames.unsubscribe("never"), frames.send(topic, "never"))
    seen = client.frames_until_closed()
    assert [frame.command for frame in seen[-1:]] == ["ERROR"]
    assert sorted(frame.command for frame in seen[:-1]) == ["MESSAGE", "RECEIPT"]
    assert client.closed is not None and client.closed.code == 1002


def test_error_reaches_a_client_that_was_still_sending(ws: OpenWebSocket, topic: str) -> None:
    """To close with unread input would reset the connection, and the ERROR would be lost."""
    client = ws()
    client.send_raw(
        encode_frame(TEXT, frames.unsubscribe("never"))
        + b"".join(encode_frame(TEXT, frames.send(topic, "x" * 1000)) for _ in range(200))
    )
    client.expect_error_and_close("E-SUB-UNKNOWN", 1002)


def test_sigterm_ends_with_1001(ws: OpenWebSocket, start_broker: StartBroker) -> None:
    broker = start_broker()
    sessions, bare = [ws(to=broker) for _ in range(5)], ws(None, to=broker)
    broker.signal(signal.SIGTERM)
    for client in [*sessions, bare]:
        client.expect_close(1001)
    assert broker.wait() == 0


# TCP and WebSocket together


@pytest.mark.parametrize("version", frames.VERSIONS)
@pytest.mark.parametrize("other", frames.VERSIONS)
def test_tcp_and_websocket_exchange_messages(
    ws: OpenWebSocket, client: Clients, topic: str, version: str, other: str
) -> None:
    near, far = ws(version), client(other)
    near.subscribe(topic)
    far.subscribe(topic)
    near.send(frames.send_counted(topic, "from websocket", colour="red"))
    far.expect_message("from websocket", colour="red", destination=topic)
    near.expect_message("from websocket", colour="red", destination=topic)
    far.send(frames.send_counted(topic, b"\xff from tcp", colour="blue"))
    near.expect_message(b"\xff from tcp", colour="blue", destination=topic)
    far.expect_message(b"\xff from tcp", colour="blue", destination=topic)


def test_many_clients_over_both_transports_receive_the_same_in_the_same_order(
    ws: OpenWebSocket, client: Clients, topic: str
) -> None:
    listeners = [ws() for _ in range(6)] + [client() for _ in range(6)]
    for listener in listeners:
        listener.subscribe(topic)
    publishers = [ws(), client()]
    for at in range(200):
        publishers[at % 2].send(frames.send(topic, f"{at}", by=at % 2))
    for listener in listeners:
        by: dict[str, list[int]] = {"0": [], "1": []}
        for _ in range(200):
            message = listener.expect("MESSAGE")
            by[message["by"]].append(int(message.text))
        assert by == {"0": list(range(0, 200, 2)), "1": list(range(1, 200, 2))}


def test_ping_and_close_of_one_client_do_not_affect_the_other(ws: OpenWebSocket, client: Clients, topic: str) -> None:
    near, far = ws(), client()
    far.subscribe(topic)
    near.send_frame(PING, b"x")
    assert near.recv_pong() == b"x"
    near.send_frame(CLOSE)
    near.expect_close(None, 1000)
    far.barrier()
