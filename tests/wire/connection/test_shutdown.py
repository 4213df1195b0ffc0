"""SIGTERM and SIGINT: received frames are handled, RECEIPTs that are due are sent, the status is 0.

See docs/behaviour.md, section 1.
"""

from __future__ import annotations

import signal
import socket

import pytest

from tests.support import frames
from tests.support.clients import Clients, StartBroker
from tests.support.frames import VERSIONS
from tests.support.process import BrokerProcess
from tests.support.wire import Wire

STOP_SIGNALS = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])


@STOP_SIGNALS
def test_an_idle_broker_ends_with_status_0(start_broker: StartBroker, number: signal.Signals) -> None:
    broker = start_broker()
    broker.signal(number)
    assert broker.wait() == 0


@STOP_SIGNALS
@pytest.mark.parametrize("version", VERSIONS)
def test_sessions_end_in_order_and_the_status_is_0(
    client: Clients, start_broker: StartBroker, number: signal.Signals, version: str
) -> None:
    broker = start_broker()
    wires = [client(version, to=broker) for _ in range(10)]
    for wire in wires:
        wire.subscribe("/topic/a")
    wires[0].send(frames.send("/topic/a", "x"))
    for wire in wires:
        wire.expect_message("x")
    broker.signal(number)
    for wire in wires:
        assert all(frame.command == "ERROR" for frame in wire.frames_until_closed())
        wire.close()
    assert broker.wait() == 0


def test_connecting_is_refused_after_shutdown(client: Clients, start_broker: StartBroker) -> None:
    broker = start_broker()
    client(to=broker)
    broker.terminate()
    assert broker.wait() == 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((broker.host, broker.port), timeout=20)


def test_every_receipted_message_is_delivered_under_load(client: Clients, start_broker: StartBroker) -> None:
    broker = start_broker(drain="60s")
    wire, publisher = client(to=broker), client(to=broker)
    wire.subscribe("/topic/a")
    publisher.send(*(frames.send("/topic/a", str(number), receipt=str(number)) for number in range(5000)))
    publisher.expect_receipt("0")
    broker.terminate()
    receipts = [frame for frame in publisher.frames_until_closed() if frame.command == "RECEIPT"]
    assert [frame["receipt-id"] for frame in receipts] == [str(at) for at in range(1, len(receipts) + 1)]
    messages = [frame.text for frame in wire.frames_until_closed() if frame.command == "MESSAGE"]
    assert messages == [str(at) for at in range(len(messages))]
    assert len(messages) >= len(receipts) + 1
    publisher.close()
    wire.close()
    assert broker.wait() == 0


def test_outboxes_are_flushed_to_a_slow_reader(client: Clients, start_broker: StartBroker) -> None:
    broker = start_broker(drain="60s")
    wire = client.raw(broker, receive_buffer=4096)
    wire.connect("1.2")
    publisher = client(to=broker)
    wire.subscribe("/topic/a")
    publisher.send(*(frames.send("/topic/a", f"{number:05d}" + "x" * 1000) for number in range(3000)))
    publisher.send(frames.begin("t", receipt="r"))
    publisher.expect_receipt("r")
    publisher.close()
    broker.terminate()
    messages = [frame.text for frame in wire.frames_until_closed() if frame.command == "MESSAGE"]
    assert [text[:5] for text in messages] == [f"{number:05d}" for number in range(3000)]
    wire.close()
    assert broker.wait() == 0


def publish_to_a_client_that_never_reads(client: Clients, broker: BrokerProcess) -> Wire:
    """Fills the outbox of a subscriber that does not read; returns the publisher."""
    wire = client.raw(broker, receive_buffer=4096)
    wire.connect("1.2")
    wire.subscribe("/topic/a")
    publisher = client(to=broker)
    publisher.send(*(frames.send("/topic/a", "x" * 10_000) for _ in range(1500)), frames.begin("t", receipt="r"))
    publisher.expect_receipt("r")
    return publisher


def test_a_client_that_never_reads_is_cut_off_when_drain_is_over(client: Clients, start_broker: StartBroker) -> None:
    broker = start_broker(drain="1s")
    publish_to_a_client_that_never_reads(client, broker)
    broker.terminate()
    assert broker.wait() == 0


def test_a_second_signal_stops_at_once(client: Clients, start_broker: StartBroker) -> None:
    broker = start_broker(drain="1h")
    publisher = publish_to_a_client_that_never_reads(client, broker)
    broker.terminate()
    publisher.frames_until_closed()
    assert broker.alive
    broker.terminate()
    broker.wait()


def test_several_brokers_run_side_by_side(client: Clients, start_broker: StartBroker) -> None:
    brokers = [start_broker() for _ in range(3)]
    assert len({broker.port for broker in brokers}) == 3
    wires = [client(to=broker) for broker in brokers]
    for wire in wires:
        wire.subscribe("/topic/a")
    wires[0].send(frames.send("/topic/a", "x"))
    wires[0].expect_message("x")
    for wire in wires[1:]:
        wire.barrier()
