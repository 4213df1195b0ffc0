"""The loads that C stompica was tested with: no message is lost, delivered twice or out of order."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.support import frames
from tests.support.clients import Clients, StartBroker
from tests.support.probes import raised_descriptor_limit
from tests.support.process import BrokerProcess
from tests.support.wire import Wire
from tests.support.ws import WebSocket

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def descriptors() -> Iterator[int]:
    """The descriptor limit of this process, raised for the test."""
    with raised_descriptor_limit() as limit:
        yield limit


def test_1000_subscriptions_of_one_connection_get_1000_sends(client: Clients, compat: BrokerProcess) -> None:
    """Every SEND goes to the destination of one subscription."""
    wire = client(to=compat, timeout=30)
    wire.send(*(frames.subscribe(f"/q/one/{number}", f"sub-{number}") for number in range(1000)))
    wire.send(*(frames.send(f"/q/one/{number}", f"hello {number}") for number in range(1000)))
    for number in range(1000):
        wire.expect_message(f"hello {number}", subscription=f"sub-{number}", destination=f"/q/one/{number}")
    wire.barrier()


def test_100_subscriptions_to_one_topic_get_all_of_1000_sends(client: Clients, compat: BrokerProcess) -> None:
    """Every SEND goes to every subscription: 100,000 deliveries to one connection."""
    wire, publisher = client(to=compat, timeout=60), client(to=compat, timeout=60)
    wire.send(*(frames.subscribe("/q/shared", f"sub-{number}") for number in range(100)))
    wire.barrier()
    sender = threading.Thread(target=publisher.send, args=[frames.send("/q/shared", f"{at}") for at in range(1000)])
    sender.start()
    following = dict.fromkeys((f"sub-{number}" for number in range(100)), 0)
    for _ in range(100_000):
        message = wire.recv_frame()
        subscription = message["subscription"]
        assert message.text == str(following[subscription])
        following[subscription] += 1
    sender.join()
    assert set(following.values()) == {1000}
    wire.barrier(publisher)


def test_100_subscriptions_of_the_sending_connection_get_all_of_its_sends(
    client: Clients, compat: BrokerProcess
) -> None:
    """The sender is also the receiver: the client reads while it sends, otherwise both sides would wait."""
    wire = client(to=compat, timeout=60)
    wire.send(*(frames.subscribe("/q/own", f"sub-{number}") for number in range(100)))
    wire.barrier()
    for start in range(0, 200, 10):
        wire.send(*(frames.send("/q/own", f"{number}") for number in range(start, start + 10)))
        bodies = [wire.expect_message().text for _ in range(1000)]
        assert sorted(bodies) == sorted(str(number) for number in range(start, start + 10) for _ in range(100))
    wire.barrier()


def test_5000_connections_get_their_messages(client: Clients, start_broker: StartBroker, descriptors: int) -> None:
    """Each connection subscribes to its own topic and to a shared one, and gets both messages."""
    if descriptors < 5200:
        pytest.skip(f"needs 5,200 descriptors, the limit here is {descriptors}: raise `ulimit -Hn`")
    broker = start_broker(compat="stompica", heartbeat="0,0", login_timeout="60s")
    wires: list[Wire] = []
    for number in range(5000):
        wire = client.raw(broker, timeout=60)
        wire.send(
            frames.connect("1.2"),
            frames.subscribe(f"/q/many/{number}", "own"),
            frames.subscribe("/q/many", "shared", receipt="r"),
        )
        wires.append(wire)
    for wire in wires:
        wire.expect("CONNECTED")
        wire.version = "1.2"
        wire.expect_receipt("r")
    publisher = client(to=broker, timeout=60)
    for number in range(5000):
        publisher.send(frames.send(f"/q/many/{number}", str(number)))
    publisher.send(frames.send("/q/many", "all"))
    for number, wire in enumerate(wires):
        wire.expect_message(str(number), subscription="own")
        wire.expect_message("all", subscription="shared")
    for wire in wires:
        wire.send(frames.disconnect())
    for wire in wires:
        wire.expect_closed()
        wire.close()
    publisher.barrier()


def test_1000_websocket_clients_get_the_messages_of_their_topics(
    client: Clients, start_broker: StartBroker, descriptors: int
) -> None:
    if descriptors < 1200:
        pytest.skip(f"needs 1,200 descriptors, the limit here is {descriptors}: raise `ulimit -Hn`")
    broker = start_broker(compat="stompica", heartbeat="0,0", login_timeout="60s")
    sockets: list[WebSocket] = []
    try:
        for number in range(1000):
            socket = WebSocket.connected(broker.port)
            sockets.append(socket)
            socket.subscribe(f"/q/web/{number}")
        for _ in range(3):
            for number, socket in enumerate(sockets):
                socket.send(frames.send(f"/q/web/{number}", f"hello {number}"))
            for number, socket in enumerate(sockets):
                socket.expect_message(f"hello {number}", destination=f"/q/web/{number}")
        sockets[0].barrier(sockets[-1])
    finally:
        for socket in sockets:
            socket.close()
