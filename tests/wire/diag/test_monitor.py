"""`/queue/monitor`, and the end of idle queues: docs/behaviour.md 1 and 9."""

from __future__ import annotations

import time

import pytest

from tests.support import frames
from tests.support.acks import ack_and_wait
from tests.support.clients import Clients, OpenWebSocket, StartBroker
from tests.support.diagnostics import MONITOR, parse_monitor
from tests.support.frames import VERSIONS
from tests.support.process import BrokerProcess
from tests.support.queues import fill, left_in, take, until_receipt
from tests.support.wire import TIMEOUT, Wire


def wait_for_report(wire: Wire, expected: dict[str, tuple[int, int, int]]) -> None:
    """Returns when the monitor reports these queues; the first reports may be older than the last of the messages."""
    found = []
    while expected not in found:
        message = wire.expect_message(destination=MONITOR, subscription="m")
        assert message["content-type"].startswith("text/plain")
        found.append(parse_monitor(message.text))
        assert len(found) <= 4, f"expected {expected}, got {found}"


def test_the_monitor_reports_the_queues_every_five_seconds(
    client: Clients, ws: OpenWebSocket, start_broker: StartBroker
) -> None:
    """One wait shows both the contents of the report and who gets it."""
    broker = start_broker(queue_idle_expiry="300ms")
    wires: list[Wire] = [client(version, to=broker) for version in VERSIONS]
    wires.append(ws(to=broker))
    pattern, worker, publisher = (client(to=broker) for _ in range(3))
    fill(publisher, "/queue/vanishes", "x")
    assert len(left_in(worker, "/queue/vanishes")) == 1
    for wire in wires:
        wire.subscribe(MONITOR, "m")
    pattern.subscribe("/queue/m*")
    fill(publisher, "/queue/waiting", *"12345")
    fill(publisher, "/queue/empty", *"123")
    fill(publisher, "/queue/held", *"1234")
    worker.send(frames.subscribe("/queue/empty", "empty"))
    take(worker, *"123")
    worker.send(frames.subscribe("/queue/held", "held", ack="client-individual", prefetch_count=2))
    first, _ = take(worker, "1", "2")
    assert [message.text for message in ack_and_wait(worker, first) or [worker.expect_message()]] == ["3"]
    expected = {"/queue/waiting": (5, 0, 5), "/queue/empty": (0, 3, 3), "/queue/held": (3, 1, 4)}
    for wire in wires:
        wait_for_report(wire, expected)
    # the pattern does not match the monitor
    publisher.send(frames.send("/queue/more", "end"))
    pattern.expect_message("end")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_send_to_the_monitor_is_an_error(client: Clients, version: str) -> None:
    wire, other = client(version), client(version)
    other.subscribe(MONITOR)
    wire.send(frames.send(MONITOR, "x", receipt="r"))
    wire.expect_error("E-READ-ONLY", receipt_id="r")
    other.barrier()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_send_to_the_monitor_in_a_transaction_is_an_error(client: Clients, queue: str, version: str) -> None:
    wire, other = client(version), client(version)
    wire.send(frames.begin("t"), frames.send(queue, "never", transaction="t"))
    wire.send(frames.send(MONITOR, "x", transaction="t", receipt="r"))
    wire.expect_error("E-READ-ONLY", receipt_id="r")
    assert left_in(other, queue) == []


# -- idle queues ---------------------------------------------------------------------------------------------------


def is_accepted(client: Clients, broker: BrokerProcess, queue: str) -> bool:
    """Whether a message to a queue is accepted; if not, the reason must be the number of destinations."""
    wire = client(to=broker)
    wire.send(frames.send(queue, "x", receipt="r"))
    if wire.recv_frame().command == "RECEIPT":
        wire.disconnect()
        return True
    wire.discard()
    return False


def wait_for_room(client: Clients, broker: BrokerProcess, queue: str) -> None:
    """Returns when there is room for one more queue."""
    deadline = time.monotonic() + TIMEOUT
    while not is_accepted(client, broker, queue):
        assert time.monotonic() < deadline, "an idle queue still takes room"


def test_an_empty_idle_queue_makes_room_for_another(client: Clients, start_broker: StartBroker) -> None:
    broker = start_broker(queue_idle_expiry="200ms", max_destinations=10)
    wire = client(to=broker)
    for number in range(10):
        wire.send(frames.send(f"/queue/{number}", "x", receipt=str(number)))
        wire.expect_receipt(str(number))
    refused = client(to=broker)
    refused.send(frames.send("/queue/more", "x", receipt="r"))
    refused.expect_error("E-DEST-COUNT", receipt_id="r")
    assert [message.text for message in left_in(wire, "/queue/0")] == ["x"]
    wait_for_room(client, broker, "/queue/more")
    # the queues that hold messages still exist
    for number in range(1, 10):
        assert [message.text for message in left_in(wire, f"/queue/{number}")] == ["x"]


def test_a_queue_with_a_message_is_never_forgotten(client: Clients, start_broker: StartBroker) -> None:
    """Neither a waiting message nor one in flight leaves a queue empty."""
    broker = start_broker(queue_idle_expiry="100ms", max_destinations=4)
    wire, worker = client(to=broker), client(to=broker)
    fill(wire, "/queue/waiting", "waiting")
    fill(wire, "/queue/held", "held")
    worker.subscribe("/queue/watched", "watched")
    worker.send(frames.subscribe("/queue/held", "held", ack="client", receipt="s"))
    (message,) = until_receipt(worker, "s") or [worker.expect_message("held")]
    for number in range(5):
        # each of these must be forgotten before there is room for the next
        wait_for_room(client, broker, f"/queue/clock-{number}")
        assert [message.text for message in left_in(wire, f"/queue/clock-{number}")] == ["x"]
    wire.send(frames.send("/queue/watched", "still watched"))
    worker.expect_message("still watched")
    assert ack_and_wait(worker, message) == []
    assert [message.text for message in left_in(wire, "/queue/waiting")] == ["waiting"]


def test_a_queue_that_was_forgotten_works_again(client: Clients, start_broker: StartBroker) -> None:
    broker = start_broker(queue_idle_expiry="100ms", max_destinations=1)
    wire = client(to=broker)
    for number in range(3):
        wait_for_room(client, broker, f"/queue/{number}")
        assert [message.text for message in left_in(wire, f"/queue/{number}")] == ["x"]
    wait_for_room(client, broker, "/queue/0")
    wire.send(frames.subscribe("/queue/0"))
    wire.expect_message("x", redelivered=None)
