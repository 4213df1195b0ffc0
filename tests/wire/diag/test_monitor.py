"""`/queue/monitor`: docs/behaviour.md, section 9."""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.acks import ack_and_wait
from tests.support.clients import Clients, OpenWebSocket, StartBroker
from tests.support.diagnostics import MONITOR, parse_monitor
from tests.support.frames import VERSIONS
from tests.support.queues import fill, left_in, take
from tests.support.wire import Wire

PATIENCE = 15.0
"""Seconds to wait for a report; one is due every 5 s."""


def wait_for_report(wire: Wire, expected: dict[str, tuple[int, int, int]], *, most: int = 4) -> None:
    """Returns when one of the next `most` reports says this; each is acknowledged if its subscription wants that.

    Reports that are older than the last of the messages may say less.
    """
    found = []
    for _ in range(most):
        message = wire.expect_message(destination=MONITOR, redelivered=None)
        assert message["content-type"].startswith("text/plain")
        assert message.header("subscription") in ("m", None)
        if "ack" in message:
            wire.send(frames.ack(id=message["ack"]))
        found.append(parse_monitor(message.text))
        if found[-1] == expected:
            return
    raise AssertionError(f"expected {expected}, got {found}")


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
    fill(publisher, "/queue/two\\nlines", "1")
    worker.send(frames.subscribe("/queue/empty", "empty"))
    take(worker, *"123")
    worker.send(frames.subscribe("/queue/held", "held", ack="client-individual", prefetch_count=2))
    first, _ = take(worker, "1", "2")
    assert [message.text for message in ack_and_wait(worker, first) or [worker.expect_message()]] == ["3"]
    expected = {"/queue/waiting": (5, 0, 5), "/queue/empty": (0, 3, 3), "/queue/held": (3, 1, 4)}
    expected["/queue/two\\nlines"] = (1, 0, 1)
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


def test_each_report_tells_the_current_state(client: Clients, ws: OpenWebSocket, start_broker: StartBroker) -> None:
    """It goes to every version, WebSocket and ack mode, but not to a client that left or to a pattern."""
    broker = start_broker()
    watching: list[Wire] = [client(version, to=broker) for version in VERSIONS]
    watching.append(ws(to=broker))
    leaving, late, nameless, acking, bystander, publisher = (
        client(version, to=broker) for version in ("1.2", "1.2", "1.0", "1.2", "1.2", "1.2")
    )
    for wire in (*watching, leaving):
        wire.subscribe(MONITOR, "m")
    nameless.subscribe(MONITOR, None)
    acking.subscribe(MONITOR, "m", ack="client-individual", prefetch_count=1)
    for number, pattern in enumerate(("*", ">", "/queue/*", "/queue/>")):
        bystander.subscribe(pattern, str(number))
    for wire in (*watching, leaving, late, nameless, acking):
        wire.timeout = PATIENCE
    for wire in (*watching, leaving, nameless, acking):
        wait_for_report(wire, {}, most=3)
    leaving.send(frames.unsubscribe("m", receipt="left"))
    leaving.expect_receipt("left")
    late.subscribe(MONITOR, "m")
    for number in range(4):
        bystander.send(frames.unsubscribe(str(number), receipt=str(number)))
        bystander.expect_receipt(str(number))
    fill(publisher, "/queue/a", *"12345")
    fill(publisher, "/queue/b", *"12")
    publisher.send(frames.subscribe("/queue/b"))
    take(publisher, *"12")
    for wire in (*watching, late, nameless, acking):
        wait_for_report(wire, {"/queue/a": (5, 0, 5), "/queue/b": (0, 2, 2)}, most=3)
    for wire in (leaving, bystander):
        wire.barrier()
