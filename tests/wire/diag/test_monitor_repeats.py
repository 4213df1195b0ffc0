"""The second report of `/queue/monitor` goes to everybody who has subscribed by then: docs/behaviour.md 9."""

from __future__ import annotations

from tests.support import frames
from tests.support.clients import Clients, OpenWebSocket, StartBroker
from tests.support.diagnostics import MONITOR, parse_monitor
from tests.support.frames import VERSIONS
from tests.support.queues import fill, take
from tests.support.wire import Wire

PATIENCE = 15.0
"""Seconds to wait for a text; one is due every 5 s."""


def wait_for_report(wire: Wire, expected: dict[str, tuple[int, int, int]]) -> None:
    """Returns when a report says this. Earlier ones, while the queues fill, may say less; each is acknowledged."""
    found = None
    for _ in range(3):
        message = wire.expect_message(destination=MONITOR, redelivered=None)
        assert message["content-type"].startswith("text/plain")
        if "ack" in message:
            wire.send(frames.ack(id=message["ack"]))
        found = parse_monitor(message.text)
        if found == expected:
            return
    raise AssertionError(f"the last report says {found}, not {expected}")


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
        wait_for_report(wire, {})
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
        wait_for_report(wire, {"/queue/a": (5, 0, 5), "/queue/b": (0, 2, 2)})
    for wire in (leaving, bystander):
        wire.barrier()
